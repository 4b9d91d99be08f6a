"""The process's own stdout and stderr, such that what becomes of them never becomes the verdict."""

import io
import os
import sys
from typing import TYPE_CHECKING

from perfci.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT, _STDERR = 1, 2


class _Kept(io.FileIO):
    """A standard stream. A reader that left (head, a pager) is not our failure: the rest is dropped, what remains to be
    done is done, and the exit code stays that of the verdict. Other failures are told once: UsageError on stdout."""

    _gone = False

    def write(self, data: "ReadableBuffer", /) -> int | None:  # type: ignore[override]
        size = memoryview(data).nbytes
        if self._gone:
            return size
        try:
            return super().write(data)
        except BrokenPipeError:
            self._gone = True
        except OSError as error:
            self._gone = True
            if self.fileno() == _STDOUT:
                raise UsageError(
                    f"stdout cannot be written: {error.strerror}", todo="send the output elsewhere, or give -o FILE"
                ) from error
        return size


def keep_streams() -> None:
    """Make stdout and stderr last until the end of the process. Streams that were closed before it began lead nowhere.
    Streams that somebody put in their place (a test, a caller in Python) stay as they are."""
    for descriptor in (0, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number, which is this one
    if sys.stdout is None or (sys.stdout is sys.__stdout__ and _is_own(sys.stdout, _STDOUT)):
        sys.stdout = _text(_STDOUT, sys.stdout)
    if sys.stderr is None or (sys.stderr is sys.__stderr__ and _is_own(sys.stderr, _STDERR)):
        sys.stderr = _text(_STDERR, sys.stderr)


def _is_own(stream: object, descriptor: int) -> bool:
    if not isinstance(stream, io.TextIOWrapper):
        return False
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):
        return False


def _text(descriptor: int, before: object) -> io.TextIOWrapper:
    """Text on the descriptor, written as the stream before was."""
    old = before if isinstance(before, io.TextIOWrapper) else None
    if old is not None:
        old.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_Kept(descriptor, "wb", closefd=False)),
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else "backslashreplace",
        line_buffering=old.line_buffering if old else False,
        write_through=old.write_through if old else False,
    )
