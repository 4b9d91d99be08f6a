"""Python imports this module as it starts. It waits for torch, and hands over to the ``sitecustomize`` it hides."""

import importlib.machinery
import importlib.util
import os
import sys


def _hand_over() -> None:
    """Leave the search path as it would be without us, and run the next ``sitecustomize`` on it, if any."""
    here = os.path.dirname(__file__)  # noqa: PTH120  (pathlib is a slow import)
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if os.environ.get("PERFCI_AUTOPHASE") == "1":
    try:
        from perfci.autophase import importing
    except ImportError:  # another perfci, or none, hides the one that injected us: the launch will say that steps lack
        print("perfci: the script cannot be marked: perfci.autophase is not importable", file=sys.stderr)
    else:
        importing.wait_for_torch()
_hand_over()  # last: what it raises is shown by Python as it would be without us
