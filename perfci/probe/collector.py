"""The collector of the probe: watches every operator of the captured steps, and where it was called.

A dispatch mode sees operators and copies, also those of autograd. On a GPU torch's own sync debug mode says which calls
wait (https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html), and the few waits that it
does not know are wrapped. Without a GPU the operators that would have to wait on one are noted instead.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from perfci.phases.collectors import CaptureError
from perfci.phases.marks import Marks
from perfci.probe.frames import UserCode
from perfci.probe.recorder import Recorder

SYNC, PAGEABLE_COPY, COPY, OPERATOR = "sync", "pageable-copy", "copy", "op"
TO_DEVICE, TO_HOST = "host to device", "device to host"

SYNC_WARNING = "called a synchronizing CUDA operation"

_READS = frozenset(
    f"aten::{name}"
    for name in (
        "_local_scalar_dense",
        "_unique",
        "_unique2",
        "bincount",
        "equal",
        "is_nonzero",
        "masked_select",
        "nonzero",
        "repeat_interleave",
        "unique_consecutive",
        "unique_dim",
        "unique_dim_consecutive",
    )
)
"""Operators whose result, or its shape, the CPU must know before it goes on."""
_INDEXED = frozenset({"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"})
"""They wait when an index is a mask."""
_COPIES = frozenset({"aten::_to_copy", "aten::copy_"})


class Probe:
    """Collector of ``PERFCI_CAPTURE=perfci.probe.collector:Probe``. Needs ``PERFCI_PROBE_ROOT``, the checkout."""

    def __init__(self, path: str) -> None:
        root = os.environ.get("PERFCI_PROBE_ROOT")
        if not root:
            raise CaptureError("PERFCI_PROBE_ROOT is not set: the probe must know which code is the user's")
        self._path = path
        self._recorder = Recorder(UserCode(root))
        self.marks = Marks("probe", self._recorder.push, self._recorder.pop)
        self._mode = _Mode(self._recorder)
        self._waits = _Waits(self._recorder, self._mode)

    def start(self) -> None:
        """Watch from here on."""
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        self._mode.notes_reads = not on_gpu
        self._waits.start(on_gpu=on_gpu)
        self._mode.active = True
        self._mode.__enter__()

    def stop(self) -> None:
        """Leave everything as it was found."""
        self._mode.active = False
        if _get_current_dispatch_mode() is self._mode:  # else the program opened one inside and left it open
            self._mode.__exit__(None, None, None)
        self._waits.stop()

    def save(self) -> None:
        """Write the places."""
        with open(self._path, "w", encoding="ascii") as file:  # noqa: PTH123  (pathlib is slow to import)
            json.dump(self._recorder.content(), file)


class _Mode(TorchDispatchMode):  # type: ignore[misc]  # torch does not type it
    """Notes every operator, lets it do its work, and notes copies between host and device by what they gave."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder
        self.active = False
        self.notes_reads = True
        self.last = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if not self.active:
            return func(*args, **named)
        schema = getattr(func, "_schema", None)  # operators that take functions have none
        self.last = name = str(func) if schema is None else schema.name
        self._recorder.note(OPERATOR, name)
        if self.notes_reads and _reads(name, args):
            self._recorder.note(SYNC, name)
        result = func(*args, **named)
        if name in _COPIES:
            self._copied(name, args, named, result)
        return result

    def _copied(self, name: str, args: tuple[Any, ...], named: dict[str, Any], result: Any) -> None:
        source = args[1] if name == "aten::copy_" else args[0]
        hosts = (source.device.type == "cpu", result.device.type == "cpu")
        if hosts[0] == hosts[1]:
            return
        direction = TO_DEVICE if hosts[0] else TO_HOST
        pageable = not _is_pinned(source if hosts[0] else result)
        moved_bytes = source.numel() * source.element_size()
        self._recorder.note(PAGEABLE_COPY if pageable else COPY, direction, moved_bytes=moved_bytes)
        waits = not named.get("non_blocking", args[2] if name == "aten::copy_" and len(args) > 2 else False)
        if self.notes_reads and (waits or (pageable and direction == TO_HOST)):
            self._recorder.note(SYNC, name)


def _is_pinned(tensor: Any) -> bool:
    try:
        return bool(tensor.is_pinned())
    except RuntimeError:  # layouts that cannot tell
        return False


def _reads(name: str, args: tuple[Any, ...]) -> bool:
    if name in _READS:
        return True
    if name not in _INDEXED or len(args) < 2:
        return False
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])


class _Waits:
    """Notes what the mode cannot see: waits that torch warns of, calls of torch.cuda that wait, and tensors that are
    printed (torch sets modes aside for that)."""

    def __init__(self, recorder: Recorder, mode: _Mode) -> None:
        self._recorder = recorder
        self._mode = mode
        self._undo: list[Callable[[], None]] = []

    def start(self, *, on_gpu: bool) -> None:
        self._wrap(torch._tensor_str, "_str", "Tensor.__repr__", waits=not on_gpu)
        if not on_gpu:
            return
        bindings: Any = torch._C
        self._wrap(bindings, "_cuda_synchronize", "torch.cuda.synchronize")
        self._wrap(bindings, "_cuda_emptyCache", "torch.cuda.empty_cache")
        self._wrap(torch.cuda.Stream, "synchronize", "torch.cuda.Stream.synchronize")
        self._wrap(torch.cuda.Event, "synchronize", "torch.cuda.Event.synchronize")
        self._listen_to_warnings()
        before = torch.cuda.get_sync_debug_mode()
        self._undo.append(lambda: _set_sync_debug_mode(before))
        _set_sync_debug_mode("warn")

    def stop(self) -> None:
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def _listen_to_warnings(self) -> None:
        """Take torch's warnings of waits out of the stream of warnings; all others go their way."""
        shown = warnings.showwarning

        def show(message: Any, category: Any, *where: Any, **more: Any) -> None:
            if SYNC_WARNING in str(message):
                self._recorder.note(SYNC, self._mode.last)
            else:
                shown(message, category, *where, **more)

        filters = warnings.filters[:]
        warnings.filterwarnings("always", message=SYNC_WARNING)  # each time, not once per line
        ours = warnings.filters[0]
        warnings.showwarning = show

        def undo() -> None:
            if warnings.showwarning is show:
                warnings.showwarning = shown
            if ours not in filters and ours in warnings.filters:
                warnings.filters.remove(ours)  # type: ignore[attr-defined]  # a list, whatever its stub says

        self._undo.append(undo)

    def _wrap(self, owner: Any, attribute: str, name: str, *, waits: bool = True) -> None:
        """Note calls of ``owner.attribute`` as waits, or only remember the last one as what a warning is about."""
        if not hasattr(owner, attribute):  # another version of torch
            return
        plain = getattr(owner, attribute)
        inherited = attribute not in vars(owner)

        @wraps(plain)
        def noted(*args: Any, **named: Any) -> Any:
            self._mode.last = name
            if waits:
                self._recorder.note(SYNC, name)
            return plain(*args, **named)

        def undo() -> None:
            if inherited:
                delattr(owner, attribute)
            else:
                setattr(owner, attribute, plain)

        setattr(owner, attribute, noted)
        self._undo.append(undo)


def _set_sync_debug_mode(mode: int | str) -> None:
    with warnings.catch_warnings():  # it says that it is a prototype
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode(mode)
