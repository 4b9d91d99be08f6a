"""Checkouts of the revisions under measurement: temporary git worktrees below ``.perfci/worktrees``.

The user's files, index and branches are never touched. A checkout is named for its tree (``<tree>.<slot>``), so that
the same code lands on the same path and a prepared build can be reused (prepare.py); the slot number keeps two users
of one tree apart. Each checkout in use is held by a file lock, which the kernel drops when its holder dies: a checkout
without a holder is a left-over of a crash and is removed by whoever comes next
(docs/decisions/0036-worktrees-named-for-their-tree.md).
"""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from filelock import FileLock, Timeout

from perfci.capture.git import GitAnswer, run_git
from perfci.capture.interruption import clean_up_on_termination
from perfci.capture.repository import Repository
from perfci.capture.supervise import end_left_over
from perfci.capture.uncommitted import PRIVATE_DIRECTORY, untracked_paths
from perfci.errors import MeasurementError
from perfci.model.run import Note, Revision

_TREE_DIGITS = 16
_REGISTRY_TIMEOUT_S = 300.0
_SUBMODULES, _LFS = "submodules-empty", "lfs-pointers"
CONTENT_CODES = frozenset({_SUBMODULES, _LFS})
"""Codes of the notes of ``missing_content``."""
_LFS_HEADER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Worktree:
    """One checkout. ``notes`` say what it lacks (submodules, LFS files, untracked files of the working tree)."""

    path: Path
    revision: Revision
    notes: tuple[Note, ...] = ()


def private_directory(repository: Repository) -> Path:
    """The repository's ``.perfci`` folder, created with a ``.gitignore`` of its own so that git never shows it."""
    folder = repository.root / PRIVATE_DIRECTORY
    try:
        folder.mkdir(exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n")
    except OSError as error:
        raise MeasurementError(
            f"cannot write {folder}: {error.strerror}", todo="make the repository's top folder writable"
        ) from error
    return folder


@contextmanager
def worktrees(repository: Repository, revisions: Sequence[Revision]) -> Iterator[tuple[Worktree, ...]]:
    """Checkouts of all ``revisions``, in order, removed at the end: also after an exception, Ctrl-C, SIGTERM.

    Equal revisions get a checkout each. Left-overs of killed perfci processes are removed first; checkouts of living
    ones are left alone. MeasurementError when git cannot make a checkout (for example: disk full).
    """
    folder = private_directory(repository) / "worktrees"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise _unwritable(folder.parent, error) from error
    with clean_up_on_termination():
        remove_stale(repository)
        with ExitStack() as stack:
            made = tuple(stack.enter_context(_checkout(repository, folder, revision)) for revision in revisions)
            if any(revision.dirty for revision in revisions):  # its new files are the change under measurement
                yield made
            else:
                yield tuple(replace(one, notes=(*one.notes, *_left_behind(repository, one.revision))) for one in made)


def remove_stale(repository: Repository) -> tuple[Path, ...]:
    """Remove checkouts whose perfci process is gone, and end what it had launched there; their paths. Those in use
    stay."""
    folder = repository.root / PRIVATE_DIRECTORY / "worktrees"
    removed = []
    if folder.is_dir():
        with _registry_lock(folder):
            for path in sorted(p for p in folder.iterdir() if p.is_dir()):
                hold = _hold(path)
                if hold is not None:
                    end_left_over(path)  # it would go on beside the next measurement, and its time limit died too
                    _remove(repository, path)
                    _forget(path, hold)
                    removed.append(path)
    return tuple(removed)


@contextmanager
def _checkout(repository: Repository, folder: Path, revision: Revision) -> Iterator[Worktree]:
    with _registry_lock(folder):
        path, hold = _free_slot(folder, revision)
    try:
        _remove(repository, path)  # a left-over that came into being since remove_stale
        _fill(repository, path, revision)
        yield Worktree(path=path, revision=revision, notes=missing_content(path))
    finally:
        _remove(repository, path)
        with _registry_lock(folder):
            _forget(path, hold)


def _free_slot(folder: Path, revision: Revision) -> tuple[Path, FileLock]:
    if revision.tree is None or revision.commit is None:
        raise MeasurementError(
            f"{revision.label!r} is the label of an import: there is no code to measure",
            todo="name a git revision",
        )
    for slot in count():
        path = folder / f"{revision.tree[:_TREE_DIGITS]}.{slot}"
        hold = _hold(path)
        if hold is not None:
            return path, hold
    raise AssertionError("unreachable: count() has no end")


@contextmanager
def _registry_lock(folder: Path) -> Iterator[None]:
    # Held for moments only, while slots are taken, given back or found stale.
    lock = FileLock(folder / "registry.lock", timeout=_REGISTRY_TIMEOUT_S, is_singleton=False)
    try:
        lock.acquire()
    except Timeout as error:
        raise MeasurementError(
            f"another perfci has been busy in {folder} for {_REGISTRY_TIMEOUT_S:.0f} s", todo="see whether it hangs"
        ) from error
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        yield
    finally:
        lock.release()


def _unwritable(path: Path, error: OSError) -> MeasurementError:
    return MeasurementError(
        f"cannot write in {path}: {error.strerror}",
        wanted="a folder for temporary checkouts",
        todo="mend the permissions and owner of the repository's folder .perfci and of all in it",
    )


def _hold(path: Path) -> FileLock | None:
    """The lock of a checkout, or None when somebody holds it. Call with the registry lock held."""
    lock = FileLock(_lock_path(path), timeout=0, is_singleton=False)
    try:
        lock.acquire()
    except Timeout:
        return None
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    return lock


def _forget(path: Path, hold: FileLock) -> None:
    _lock_path(path).unlink(missing_ok=True)
    hold.release()


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")


def _fill(repository: Repository, path: Path, revision: Revision) -> None:
    assert revision.commit is not None
    assert revision.tree is not None
    # No checkout by `worktree add`: reading the tree afterwards serves commits and dirty trees alike.
    answer = repository.git("worktree", "add", "--quiet", "--detach", "--no-checkout", str(path), revision.commit)
    _check(answer, revision, path)
    _check(run_git(path, "read-tree", "--reset", "-u", revision.tree), revision, path)


def _check(answer: GitAnswer, revision: Revision, path: Path) -> None:
    if answer.code != 0:
        said = " ".join(answer.err.split())[:500] or "no message"
        raise MeasurementError(
            f"git could not check {revision.label} out into {path}: {said}",
            todo="see that the disk has room and that the repository's .git folder is writable",
        )


def _remove(repository: Repository, path: Path) -> None:
    # `git worktree prune` would do the second half too, but for every worktree, also for one of the user's that
    # lies on a disk that is not mounted at the moment.
    if path.exists() or _is_registered(repository, path):
        repository.git("worktree", "remove", "--force", "--force", str(path))
    if path.exists():
        shutil.rmtree(path, ignore_errors=True)
        repository.git("worktree", "remove", "--force", "--force", str(path))


def _is_registered(repository: Repository, path: Path) -> bool:
    listed = repository.git("worktree", "list", "--porcelain").out.splitlines()  # -z would need git 2.36
    return f"worktree {path}" in listed


def missing_content(path: Path) -> tuple[Note, ...]:
    """What a checkout lacks at this moment: the content of submodules and of git-lfs files."""
    notes = []
    staged = run_git(path, "ls-files", "--stage", "-z").out.split("\0")
    modules = sorted(entry.split("\t", 1)[1] for entry in staged if entry.startswith("160000 "))
    modules = [name for name in modules if not _holds_something(path / name)]
    if modules:
        notes.append(
            Note(
                code=_SUBMODULES,
                text=f"the checkout holds no submodules ({_some(modules)}): let `prepare:` run "
                "`git submodule update --init` when the workload needs them",
            )
        )
    pointers = _lfs_pointers(path)
    if pointers:
        notes.append(
            Note(
                code=_LFS,
                text=f"git-lfs files are pointers, not content ({_some(pointers)}): install git-lfs, or let "
                "`prepare:` run `git lfs pull`",
            )
        )
    return tuple(notes)


def _left_behind(repository: Repository, revision: Revision) -> tuple[Note, ...]:
    """What stands beside the files of the checked-out commit and is not part of it."""
    head = repository.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").out.strip()
    if revision.commit != head:
        return ()
    paths = untracked_paths(repository.root)
    if not paths:
        return ()
    text = (
        f"untracked files of the working tree are not part of {revision.label} ({_some(paths)}): commit them, or "
        "measure with --dirty, when the workload needs them"
    )
    return (Note(code="untracked-files", text=text),)


def _lfs_pointers(path: Path) -> list[str]:
    # Asking every path for its attributes is slow in a large tree: first see whether anything can be in LFS at all.
    if run_git(path, "grep", "-q", "-F", "filter=lfs", "--", "*.gitattributes").code != 0:
        return []
    listed = run_git(path, "ls-files", "-z").out
    attributes = run_git(path, "check-attr", "-z", "--stdin", "filter", stdin=listed).out.split("\0")
    tracked = (attributes[i] for i in range(0, len(attributes) - 2, 3) if attributes[i + 2] == "lfs")
    return sorted(name for name in tracked if _is_pointer(path / name))


def _holds_something(folder: Path) -> bool:
    try:
        return any(folder.iterdir())
    except OSError:
        return False


def _is_pointer(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            return stream.read(len(_LFS_HEADER)) == _LFS_HEADER
    except OSError:
        return False


def _some(names: Sequence[str]) -> str:
    # Git gives names as bytes; those that are no text cannot be stored.
    said = ", ".join(names[:3]).encode(errors="surrogateescape").decode(errors="replace")
    return said + (f" and {len(names) - 3} more" if len(names) > 3 else "")
