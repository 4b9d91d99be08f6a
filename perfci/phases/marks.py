"""Ranges around steps and phases: almost free when nobody listens, NVTX or torch.profiler ranges when somebody does."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache, wraps
from types import TracebackType
from typing import Any, TypeVar, cast

STEP = "step"
DATA = "data"
RESERVED = frozenset({STEP, "run", "background", "unmarked"})
"""Names with a meaning of their own in every result: no user phase may bear them."""

_NESTED = ""
_KEPT_MARKS = 1024
_PLAIN = " !#$&'()*+,-./:;<=>?@[]^_`{|}~"
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Marks:
    """A way to mark ranges. ``push`` opens a range on the calling thread, ``pop`` closes the last one it opened.

    A range closes only where it was opened under the same Marks on the same thread, so a collector may start and stop
    between the opening and the closing of a ``with`` block without unbalancing anything.
    """

    def __init__(self, kind: str, push: Callable[[str], object], pop: Callable[[], object]) -> None:
        self.kind = kind
        self._push = push
        self._pop = pop
        self._threads = threading.local()

    def _names(self) -> list[str]:
        try:
            names: list[str] = self._threads.names
        except AttributeError:
            names = self._threads.names = []
        return names

    def open(self, name: str) -> None:
        """Open a range. A step inside a step is the same step: only the outer one is marked."""
        names = self._names()
        if name == STEP and STEP in names:
            names.append(_NESTED)
            return
        names.append(name)
        self._push(name)

    def close(self, name: str) -> None:
        """Close the range ``name`` when it is the innermost open one; otherwise it was opened before these marks."""
        names = self._names()
        if not names:
            return
        if names[-1] == name:
            names.pop()
            self._pop()
        elif names[-1] == _NESTED and name == STEP:
            names.pop()


_open: Callable[[str], None] | None = None
_close: Callable[[str], None] | None = None


def activate(marks: Marks) -> None:
    """From now on every mark is written to ``marks``."""
    global _open, _close
    _open, _close = marks.open, marks.close


def deactivate() -> None:
    """From now on a mark costs one comparison at each end."""
    global _open, _close  # noqa: PLW0603
    _open = _close = None


class Mark:
    """One named range, for ``with`` and as a decorator; reusable, reentrant, safe on any thread."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if _open is not None:
            _open(self.name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if _close is not None:
            _close(self.name)

    def __call__(self, function: _Function) -> _Function:
        """Mark every call of ``function`` (plain or ``async``). Generators have no one call to mark: TypeError."""
        flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
        if flags & (_GENERATOR | _ASYNC_GENERATOR):
            raise TypeError(f"perfci marks calls, and {function!r} is a generator: use `with` inside it instead")
        if flags & _COROUTINE:

            @wraps(function)
            async def marked(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)
        else:

            @wraps(function)
            def marked(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return function(*args, **kwargs)

        return cast(_Function, marked)

    def __repr__(self) -> str:
        return f"<perfci mark {self.name!r}>"


_kept: dict[str, Mark] = {}
_step = Mark(STEP)


def step() -> Mark:
    """One training step (one optimizer step when gradients are accumulated). `loop` marks its steps by itself: a step
    inside one of them is the same step."""
    return _step


def phase(name: str) -> Mark:
    """A part of a step: ``data``, ``h2d``, ``forward``, ``backward``, ``optimizer``, ``log``, ``validation`` or your
    own name. ValueError for names that have another meaning in results, TypeError for what is no string."""
    mark = _kept.get(name)
    return mark if mark is not None else _new_phase(name)


def _new_phase(name: str) -> Mark:
    if not isinstance(name, str):
        raise TypeError(f"a phase name is a string, got {type(name).__name__}")
    if not name or name in RESERVED:
        raise ValueError(f"{name!r} is no name for a phase; {', '.join(sorted(RESERVED))} and the empty name are taken")
    return _keep(name)


def epoch(number: int) -> Mark:
    """One pass over the data, around its steps."""
    return _kept.get(f"epoch {number}") or _keep(f"epoch {number}")


def _keep(name: str) -> Mark:
    mark = Mark(name)
    if len(_kept) < _KEPT_MARKS:  # names made from data must not grow without bound
        _kept[name] = mark
    return mark


def nvtx_marks() -> Marks | None:
    """NVTX ranges: torch's own where torch was built with CUDA, else the ``nvtx`` package, else None.

    The package is looked for in the process's own path first, then in the folder ``PERFCI_NVTX_PATH`` that the runner
    offers to environments that lack it. torch is used only when the program has imported it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.version.cuda is not None:
        ranges = torch.cuda.nvtx
        return Marks("torch-nvtx", ranges.range_push, ranges.range_pop)
    try:
        import nvtx  # noqa: PLC0415  (only when somebody listens)
    except ImportError:
        offered = os.environ.get("PERFCI_NVTX_PATH")
        if not offered:
            return None
        sys.path.append(offered)
        try:
            import nvtx  # noqa: PLC0415
        except ImportError:  # built for another Python
            return None
        finally:
            sys.path.remove(offered)
    return Marks("nvtx", nvtx.push_range, nvtx.pop_range)


def torch_profiler_marks() -> Marks:
    """Ranges of torch.profiler, named ``perfci:<name>``. Needs torch.

    Kineto writes names into its JSON without escaping them and calls those that are not printable ASCII all "unknown",
    so the name is percent-encoded where it must be.
    """
    from urllib.parse import quote  # noqa: PLC0415

    from torch.profiler import record_function  # noqa: PLC0415

    @lru_cache(maxsize=_KEPT_MARKS)
    def label(name: str) -> str:
        return f"perfci:{quote(name, safe=_PLAIN, errors='replace')}"

    threads = threading.local()

    def push(name: str) -> None:
        if not hasattr(threads, "ranges"):
            threads.ranges = []
        opened = record_function(label(name))
        opened.__enter__()
        threads.ranges.append(opened)

    def pop() -> None:
        threads.ranges.pop().__exit__(None, None, None)

    return Marks("torch-profiler", push, pop)


def _open_first(name: str) -> None:
    """First mark of a program that runs under nsys by hand: only now it is known whether it uses torch with CUDA."""
    marks = nvtx_marks()
    if marks is None:
        deactivate()
        return
    activate(marks)
    marks.open(name)


def listen_by_hand() -> None:
    """Mark from the start when the user profiles the program without perfci's runner, or asks by ``PERFCI_MARKS=1``.

    Under the runner it is the driver that says when: never in the unprofiled window.
    """
    global _open  # noqa: PLW0603
    if os.environ.get("PERFCI_SIDECAR"):
        return
    if os.environ.get("PERFCI_MARKS") == "1" or "NSYS_PROFILING_SESSION_ID" in os.environ:
        _open = _open_first


def listening() -> bool:
    """True while marks are written somewhere."""
    return _open is not None


def used() -> bool:
    """True once the program has asked for a mark of a phase or an epoch."""
    return bool(_kept)
