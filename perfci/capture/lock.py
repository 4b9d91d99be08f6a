"""One measurement at a time on one GPU (or on a machine without one), across processes, jobs and users.

The lock is ``flock`` on a file in a folder that all users share: the kernel releases it when the holder dies, however
it dies, so a lock can never be stale. Beside it lies a note about the holder, for messages only; a note that outlived
its holder is recognised because the lock itself was free (docs/decisions/0038-lock-per-gpu.md).
"""

import getpass
import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from filelock import FileLock, Timeout

from perfci.errors import MeasurementError

LOCK_DIRECTORY_VARIABLE = "PERFCI_LOCK_DIR"
DEFAULT_TIMEOUT_S = 3600.0

_REPEAT_MESSAGE_S = 60.0
_POLL_S = 0.2
_LONGEST_NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who holds a lock: for people."""

    pid: int
    user: str
    job: str
    since: str

    def __str__(self) -> str:
        return f"pid {self.pid} of {self.user} ({self.job}, since {self.since})"


def lock_directory() -> Path:
    """Where the locks of this machine lie: a folder ``perfci`` in ``$PERFCI_LOCK_DIR``, else in ``/run/lock`` where
    everyone may write there, else in ``/tmp``. The same for every user of the machine; containers that share a GPU
    must share this folder."""
    chosen = os.environ.get(LOCK_DIRECTORY_VARIABLE)
    base = Path(chosen) if chosen else Path("/run/lock")
    # Judged by its mode, not by whether *we* can write: root must not choose another folder than everyone else.
    if not chosen and not (base.is_dir() and base.stat().st_mode & stat.S_IWOTH):
        base = Path("/tmp")  # noqa: S108  (the lock files are opened without following links)
    return base / "perfci"


def _make_directory(folder: Path) -> None:
    # Open to all and not sticky: filelock refuses the files of other users in a sticky folder, because their owner
    # could swap a lock under its holder. Users who share a GPU must trust each other as far as that anyway.
    try:
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    except FileExistsError:
        if folder.is_symlink() or not folder.is_dir():
            raise _unusable(f"the lock folder {folder} is a link or a file") from None
    except OSError as error:
        raise _unusable(f"cannot create the lock folder {folder}: {error.strerror}") from error


def _unusable(seen: str) -> MeasurementError:
    return MeasurementError(
        seen,
        wanted="a folder in which every user who measures may write",
        todo=f"set {LOCK_DIRECTORY_VARIABLE} to such a folder, the same for all of them",
    )


@contextmanager
def hold_machine(
    gpu_uuids: Sequence[str],
    *,
    job: str,
    say: Callable[[str], None],
    timeout_s: float = DEFAULT_TIMEOUT_S,
    directory: Path | None = None,
) -> Iterator[tuple[Holder, ...]]:
    """Hold the lock of every given GPU, or of the machine when there is none, while inside.

    Waits up to ``timeout_s`` for each and tells through ``say`` whom it waits for; MeasurementError when the time is
    up or the lock folder cannot be used. Gives the holders that died without letting go, so that the caller can tell.
    Locks are taken in one global order: two jobs that want the same GPUs cannot wait for each other for ever.
    """
    folder = lock_directory() if directory is None else directory
    _make_directory(folder)
    targets = sorted({(_file_name(uuid), f"GPU {uuid[:12]}") for uuid in gpu_uuids}) or [
        ("perfci-machine", "this machine")
    ]
    with ExitStack() as stack:
        died = []
        for name, title in targets:
            died.append(stack.enter_context(_hold(folder / f"{name}.lock", title, job, say, timeout_s)))
        yield tuple(holder for holder in died if holder is not None)


def _file_name(uuid: str) -> str:
    return f"perfci-gpu-{hashlib.sha256(uuid.encode()).hexdigest()[:16]}"


@contextmanager
def _hold(path: Path, title: str, job: str, say: Callable[[str], None], timeout_s: float) -> Iterator[Holder | None]:
    # 0666: the next holder may be another user. is_singleton stays off: two holds within one process must wait too.
    lock = FileLock(path, mode=0o666, is_singleton=False, thread_local=False)
    note = path.with_suffix(".holder")
    _acquire(lock, note, title, say, timeout_s)
    try:
        died = _read_note(note)
        since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        _write_note(note, Holder(pid=os.getpid(), user=_user(), job=job, since=since))
        try:
            yield died
        finally:
            _write_note(note, None)
    finally:
        lock.release()


def _acquire(lock: FileLock, note: Path, title: str, say: Callable[[str], None], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    patience_s = 0.0
    while True:
        try:
            lock.acquire(timeout=patience_s, poll_interval=_POLL_S)
        except Timeout as error:
            holder = _read_note(note) or "a process that left no name"
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise MeasurementError(
                    f"{title} is in use by another measurement: {holder}; gave up after {timeout_s:g} s",
                    todo="wait for it to end, or end it",
                ) from error
            say(f"waiting for {title}, in use by another measurement: {holder}; at most {left_s:.0f} s more")
            patience_s = min(left_s, _REPEAT_MESSAGE_S)
        except OSError as error:
            raise _unusable(f"cannot use the lock file {lock.lock_file}: {error.strerror}") from error
        else:
            return


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, as in many containers
        return f"uid {os.getuid()}"


def _read_note(path: Path) -> Holder | None:
    """The note, or None when it is absent, empty or not one of ours (half written, or somebody's joke)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, encoding="utf-8", errors="replace") as stream:
            fields = json.loads(stream.read(_LONGEST_NOTE_BYTES))
        return Holder(
            pid=int(fields["pid"]),
            user=_printable(fields["user"]),
            job=_printable(fields["job"]),
            since=_printable(fields["since"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _printable(text: object) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(text))[:200]


def _write_note(path: Path, holder: Holder | None) -> None:
    """Best effort: the lock holds without it. Written in place and without following links; it may be the file
    of another user."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            os.fchmod(descriptor, 0o666)
        except FileExistsError:
            descriptor = os.open(path, flags | os.O_TRUNC)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            if holder is not None:
                json.dump(asdict(holder), stream)
    except OSError:
        return
