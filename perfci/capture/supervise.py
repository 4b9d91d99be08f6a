"""Running a program that may hang, crash, fork, or print without end, and leaving nothing of it behind."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

MARKER = "PERFCI_LAUNCH"
"""Environment variable by which all processes of a launch are known, also those that left its session."""

_HEAD_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_TERMINATE_S = 5.0
_LINGER_S = 3.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a supervised program ended. ``exit_code`` is negative for a signal, None when it was ended for its time."""

    exit_code: int | None
    duration_ns: int
    dropped_bytes: int
    left_behind: int
    """Processes that outlived the program and were ended."""


class _CappedLog:
    """Copies a pipe into a file: the first 8 MiB and the last 64 KiB, with a line between that counts the rest."""

    def __init__(self, pipe: IO[bytes], path: Path) -> None:
        self.dropped_bytes = 0
        self._pipe = pipe
        self._file = path.open("wb")
        self._room = _HEAD_BYTES
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._thread = threading.Thread(target=self._copy, name="perfci-log", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        with contextlib.suppress(
            OSError, ValueError
        ):  # the pipe is closed under us when a stranger holds its other end
            while chunk := os.read(self._pipe.fileno(), _CHUNK_BYTES):
                self._keep(chunk)

    def _keep(self, chunk: bytes) -> None:
        head, rest = chunk[: self._room], chunk[self._room :]
        if head:
            self._room -= len(head)
            self._file.write(head)
            self._file.flush()
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= _TAIL_BYTES:
                gone = len(self._tail.popleft())
                self._tail_bytes -= gone
                self.dropped_bytes += gone

    def close(self) -> None:
        """Finish the file. A process that escaped and still holds the pipe is not waited for."""
        self._thread.join(timeout=_LINGER_S)
        self._pipe.close()
        self._thread.join(timeout=1)
        if self.dropped_bytes:
            self._file.write(f"\n[perfci: {self.dropped_bytes} bytes of output left out here]\n".encode())
        self._file.write(b"".join(self._tail))
        self._file.close()


def _stat(process: str) -> tuple[int, int, str] | None:
    """(parent, session, state) of a process, None when it is gone."""
    try:
        fields = Path("/proc", process, "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[1]), int(fields[3]), fields[0]


def _belonging(root: int, marker: str) -> list[int]:
    """Living processes of a launch: marked by environment, in the root's session, or descended from one of these."""
    wanted = f"{MARKER}={marker}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():  # noqa: PTH112, PTH208  (hundreds of names)
        if not name.isdigit():
            continue
        stat = _stat(name)
        if stat is None or stat[2] in "ZX":
            continue
        pid = int(name)
        parents[pid] = stat[0]
        try:
            marked = wanted in Path("/proc", name, "environ").read_bytes().split(b"\0")
        except OSError:  # another user's, or just gone
            marked = False
        if marked or stat[1] == root:
            found.add(pid)
    while more := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= more
    return sorted(found - {os.getpid()})


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _wait_gone(process: subprocess.Popen[bytes], marker: str, seconds: float) -> list[int]:
    """Wait until no process of the launch is left, or the time is up; returns those left."""
    end = time.monotonic() + seconds
    while True:
        process.poll()  # reap, or it stays as a zombie
        left = _belonging(process.pid, marker)
        if not left or time.monotonic() >= end:
            return left
        time.sleep(_POLL_S)


def _end_all(process: subprocess.Popen[bytes], marker: str) -> None:
    """Terminate, then kill, every process of the launch."""
    _signal_all(_belonging(process.pid, marker) or [process.pid], signal.SIGTERM)
    if _wait_gone(process, marker, _TERMINATE_S) or process.poll() is None:
        _signal_all([*_belonging(process.pid, marker), process.pid], signal.SIGKILL)
        _wait_gone(process, marker, _TERMINATE_S)


def supervise(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: Path,
    log_path: Path,
    timeout_s: float,
    marker: str,
) -> Outcome:
    """Run ``argv`` to its end, its output into ``log_path`` (capped), for ``timeout_s`` at most.

    When it returns or raises, also for KeyboardInterrupt, no process of the launch is left. OSError when the program
    cannot be started or the log not be written.
    """
    start = time.monotonic_ns()
    process = subprocess.Popen(  # noqa: S603  (running the user's program is the purpose)
        argv,
        cwd=directory,
        env={**environment, MARKER: marker},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    exit_code: int | None = None
    left: list[int] = []
    log: _CappedLog | None = None
    try:
        log = _CappedLog(process.stdout, log_path)
        with contextlib.suppress(subprocess.TimeoutExpired):
            exit_code = process.wait(timeout=timeout_s)
        duration_ns = time.monotonic_ns() - start
        if exit_code is not None:
            left = _wait_gone(process, marker, _LINGER_S)
    finally:
        if process.poll() is None or left or exit_code is None:
            _end_all(process, marker)
        if log is not None:
            log.close()
        else:
            process.stdout.close()
    return Outcome(exit_code=exit_code, duration_ns=duration_ns, dropped_bytes=log.dropped_bytes, left_behind=len(left))
