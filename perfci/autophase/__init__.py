"""Marks steps and phases of a training script that says nothing of perfci (docs/autophase.md).

The runner puts ``perfci/autophase/inject`` in front of ``PYTHONPATH`` and sets ``PERFCI_AUTOPHASE=1``. The
``sitecustomize`` module in that folder chains to the environment's own one and waits until the script imports torch;
nothing but two optimizer hooks is installed until the first optimizer step of a process shows that it trains. So
launchers, DataLoader workers and compilers, which never step an optimizer, are left alone.

`importing` waits for torch, `hooks` turns calls into torch into signs, `tracker` turns signs into steps and phases of
`perfci.phases`. Without the variable nothing of this is loaded.
"""
