"""What the working tree holds that no commit holds.

Read only, with one exception that git itself makes invisible: ``tree_with_changes`` writes the content of uncommitted
files to the object database (as ``git stash`` does). The index, branches and files of the user stay as they are, also
their time stamps in the index.
"""

import shutil
import tempfile
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfci.capture.git import git_output, run_git
from perfci.errors import UsageError

PRIVATE_DIRECTORY = ".perfci"
"""perfci's own folder in the repository: never part of a revision."""


class ChangeKind(StrEnum):
    """What happened to a file. A submodule is changed inside, or holds new files only."""

    CHANGED = "changed"
    UNTRACKED = "untracked"
    UNMERGED = "unmerged"
    SUBMODULE = "submodule"
    SUBMODULE_UNTRACKED = "submodule untracked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A file that differs from HEAD or is untracked and not ignored."""

    path: str
    kind: ChangeKind


_IN_NO_COMMIT = (ChangeKind.UNTRACKED, ChangeKind.SUBMODULE_UNTRACKED)
_KINDS_OF_SUBMODULES = {  # git's field <sub>: S, new commit, modified content, untracked content
    "S..U": ChangeKind.SUBMODULE_UNTRACKED,
    **dict.fromkeys(("S.M.", "S.MU", "SCM.", "SCMU", "SC.U"), ChangeKind.SUBMODULE),
}


def changes(root: Path, *, untracked: str = "all") -> tuple[Change, ...]:
    """The changes in the working tree whose top folder is ``root``, in git's order; none for a clean tree.

    ``untracked`` is git's: all, normal (a folder of nothing else is one entry, which ends in ``/``) or no.
    """
    text = git_output(
        root,
        "status", "--porcelain=v2", "-z", f"--untracked-files={untracked}", "--no-renames",
        "--ignore-submodules=none",
        "--", ".", f":(exclude,top){PRIVATE_DIRECTORY}",
    )  # fmt: skip
    found = []
    for entry in text.split("\0"):
        if entry.startswith("1 "):
            fields = entry.split(" ", 8)
            kind = _KINDS_OF_SUBMODULES.get(fields[2], ChangeKind.CHANGED)
            found.append(Change(path=fields[8], kind=kind))
        elif entry.startswith("u "):
            found.append(Change(path=entry.split(" ", 10)[10], kind=ChangeKind.UNMERGED))
        elif entry.startswith("? "):
            found.append(Change(path=entry[2:], kind=ChangeKind.UNTRACKED))
    return tuple(found)


def untracked_paths(root: Path) -> tuple[str, ...]:
    """Files that no commit holds and that are not ignored, sorted; a folder of nothing else is one entry, which
    ends in ``/``."""
    return tuple(sorted({one.path for one in changes(root, untracked="normal") if one.kind in _IN_NO_COMMIT}))


def refuse_changes(root: Path) -> None:
    """UsageError when tracked files differ from HEAD; untracked ones are in no commit and do not count."""
    paths = sorted({one.path for one in changes(root) if one.kind not in _IN_NO_COMMIT})
    if not paths:
        return
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    raise UsageError(
        f"the working tree has uncommitted changes: {', '.join(paths[:3])}{more}",
        wanted="a clean tree, so that the numbers belong to a commit",
        todo="commit or stash them, or give --dirty to measure the working tree as it is",
    )


def tree_with_changes(root: Path) -> str | None:
    """Hash of the tree of all files as they are now, including untracked ones that are not ignored; None when nothing
    changed.

    UsageError for unmerged files and for changes inside a submodule, which one tree hash cannot hold.
    """
    found = changes(root)
    for one in found:
        if one.kind is ChangeKind.UNMERGED:
            raise UsageError(f"{one.path} has unresolved merge conflicts", todo="resolve the merge, then measure")
        if one.kind in (ChangeKind.SUBMODULE, ChangeKind.SUBMODULE_UNTRACKED):
            raise UsageError(
                f"the submodule {one.path} has uncommitted changes, which --dirty cannot hold",
                todo=f"commit them inside {one.path}",
            )
    return _write_tree(root) if found else None


def _write_tree(root: Path) -> str:
    # A copy of the user's index, not an empty one: it carries the skip-worktree bits of a sparse checkout, whose
    # absent files must not look deleted, and the cached hashes of unchanged files.
    with tempfile.TemporaryDirectory(prefix="perfci-index-") as folder:
        index = Path(folder) / "index"
        original = Path(git_output(root, "rev-parse", "--git-path", "index"))
        original = original if original.is_absolute() else root / original
        if original.exists():
            # With its time stamp: git trusts the cached state of files that are older than the index.
            shutil.copy2(original, index)
        own = {"GIT_INDEX_FILE": str(index)}
        # An ignored folder must not be named, not even to exclude it: `git add` fails then.
        ignored = run_git(root, "check-ignore", "--quiet", PRIVATE_DIRECTORY).code == 0
        excluded = () if ignored else (f":(exclude,top){PRIVATE_DIRECTORY}",)
        git_output(root, "add", "--all", "--", ".", *excluded, environment=own)
        return git_output(root, "write-tree", environment=own)
