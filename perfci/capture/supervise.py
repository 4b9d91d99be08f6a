"""Running a program that may hang, crash, fork, or print without end, and leaving nothing of it behind."""

import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARKER = "PERFCI_LAUNCH"
"""Environment variable by which all processes of a launch are known, also those that left its session."""

_HEAD_BYTES = 8 << 20
_TAIL_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 10
_TERMINATE_S = 5.0
_LINGER_S = 3.0
_POLL_S = 0.05
_NO_SESSION = -1
"""No process has it; 0 is that of processes whose session began outside of a container."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a supervised program ended. ``exit_code`` is negative for a signal, None when it was ended for its time."""

    exit_code: int | None
    duration_ns: int
    dropped_bytes: int
    disk_full: bool
    left_behind: int
    """Processes that outlived the program and were ended."""


class _CappedLog:
    """Copies pipes into a file: the first 8 MiB and the last 64 KiB, with a line between that counts the rest.

    A full disk ends the writing, not the reading: the program must not block on a pipe that nobody empties.
    """

    def __init__(self, path: Path) -> None:
        self.dropped_bytes = 0
        self.disk_full = False
        self._file = path.open("wb", buffering=0)
        self._room = _HEAD_BYTES
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0

    def add(self, chunk: bytes) -> None:
        head, rest = chunk[: self._room], chunk[self._room :]
        if head:
            self._room -= len(head)
            self._write(head)
        if rest:
            self._tail.append(rest)
            self._tail_bytes += len(rest)
            while self._tail_bytes - len(self._tail[0]) >= _TAIL_BYTES:
                gone = len(self._tail.popleft())
                self._tail_bytes -= gone
                self.dropped_bytes += gone

    def close(self) -> None:
        if self.dropped_bytes:
            self._write(f"\n[perfci: {self.dropped_bytes} bytes of output left out here]\n".encode())
        self._write(b"".join(self._tail))
        self._file.close()

    def _write(self, data: bytes) -> None:
        while data and not self.disk_full:
            try:
                data = data[self._file.write(data) :]
            except OSError:
                self.disk_full = True


class _Reader:
    """Empties the program's pipes into a log, on a thread of its own, until told to finish."""

    def __init__(self, files: Sequence[int], log: _CappedLog) -> None:
        self._log = log
        self._open = list(files)
        self._finishing = threading.Event()
        self._thread = threading.Thread(target=self._copy, name="perfci-log", daemon=True)
        for file in files:
            os.set_blocking(file, False)
        self._thread.start()

    def _copy(self) -> None:
        while self._open:
            ready = select.select(self._open, [], [], _POLL_S)[0]
            if not ready and self._finishing.is_set():
                return
            for file in ready:
                chunk = os.read(file, _CHUNK_BYTES)
                if chunk:
                    self._log.add(chunk)
                else:
                    self._open.remove(file)

    def finish(self) -> None:
        """Read what is still in the pipes; a process that escaped and still holds one is not waited for."""
        self._finishing.set()
        self._thread.join(timeout=_LINGER_S)


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


def _signal_launch(process: subprocess.Popen[bytes], marker: str, number: signal.Signals) -> None:
    _signal_all(_belonging(process.pid, marker), number)
    if process.poll() is None:  # also where there is no /proc to look into
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def _end_all(process: subprocess.Popen[bytes], marker: str) -> None:
    """Terminate, then kill, every process of the launch."""
    _signal_launch(process, marker, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_TERMINATE_S)
    if _wait_gone(process, marker, _TERMINATE_S) or process.poll() is None:
        _signal_launch(process, marker, signal.SIGKILL)
        process.wait()
        _wait_gone(process, marker, _TERMINATE_S)


def end_left_over(folder: Path) -> int:
    """End the launches whose supervisor was killed: all processes of each launch that has one at work in ``folder`` or
    below. Returns how many processes there were. Only for a folder that no living perfci uses."""
    markers = set()
    for process in Path("/proc").iterdir() if Path("/proc/self").exists() else ():
        try:
            if process.name.isdigit() and (process / "cwd").readlink().is_relative_to(folder):
                variables = (process / "environ").read_bytes().split(b"\0")
                markers |= {value for value in variables if value.startswith(f"{MARKER}=".encode())}
        except OSError:  # another user's, or just gone
            continue
    left = [pid for text in markers for pid in _belonging(_NO_SESSION, os.fsdecode(text).partition("=")[2])]
    _signal_all(left, signal.SIGTERM)
    end = time.monotonic() + _TERMINATE_S
    while time.monotonic() < end and not all(_is_gone(pid) for pid in left):
        time.sleep(_POLL_S)
    _signal_all([pid for pid in left if not _is_gone(pid)], signal.SIGKILL)
    return len(left)


def _is_gone(pid: int) -> bool:
    stat = _stat(str(pid))
    return stat is None or stat[2] in "ZX"


def supervise(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    directory: Path,
    log_path: Path,
    timeout_s: float,
    marker: str,
    output_pipe: Path | None = None,
) -> Outcome:
    """Run ``argv`` to its end, its output into ``log_path`` (capped), for ``timeout_s`` at most.

    ``output_pipe`` is a named pipe to create for programs that cannot be handed an open file: what is written there
    goes into the log too. When it returns or raises, also for KeyboardInterrupt, no process of the launch is left.
    OSError when the program cannot be started or the log not be created.
    """
    log = _CappedLog(log_path)
    with contextlib.ExitStack() as stack:
        stack.callback(log.close)
        files = []
        if output_pipe is not None:
            os.mkfifo(output_pipe)
            stack.callback(output_pipe.unlink, missing_ok=True)  # a program may delete more than is its own
            files.append(os.open(output_pipe, os.O_RDWR | os.O_NONBLOCK))  # also a writer: opening must not wait
            stack.callback(os.close, files[0])
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
        stack.enter_context(process.stdout)
        reader = _Reader([process.stdout.fileno(), *files], log)
        stack.callback(reader.finish)
        exit_code: int | None = None
        left: list[int] = []
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                exit_code = process.wait(timeout=timeout_s)
            duration_ns = time.monotonic_ns() - start
            if exit_code is not None:
                left = _wait_gone(process, marker, _LINGER_S)
        finally:
            if exit_code is None or left:
                _end_all(process, marker)
        reader.finish()
        if left:
            log.add(f"[perfci: processes that outlived the program: {len(left)}, ended]\n".encode())
    return Outcome(
        exit_code=exit_code,
        duration_ns=duration_ns,
        dropped_bytes=log.dropped_bytes,
        disk_full=log.disk_full,
        left_behind=len(left),
    )
