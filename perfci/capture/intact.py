"""Every launch of a revision runs the code of that revision: what a launch does to tracked files is undone."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from perfci.capture.git import GitAnswer, run_git
from perfci.errors import MeasurementError


@contextmanager
def kept_intact(checkout: Path) -> Iterator[list[str]]:
    """Put tracked files of ``checkout`` back that change while inside. The list is then filled with their paths,
    relative to the checkout; it stays empty for a folder that is no checkout of its own.

    What was changed before (by ``prepare:``) stays so. MeasurementError when files cannot be put back: the next launch
    would run other code.
    """
    changed: list[str] = []
    content = _content(checkout)
    try:
        yield changed
    except MeasurementError:
        with suppress(MeasurementError):  # the first failure tells more
            _put_back(checkout, content)
        raise
    changed += _put_back(checkout, content)


def _git(checkout: Path, *arguments: str, stdin: str | None = None) -> GitAnswer:
    # The workload may delete the checkout's .git: git must then not find the user's repository, which lies around it.
    environment = {"GIT_CEILING_DIRECTORIES": str(checkout.resolve().parent), "GIT_LITERAL_PATHSPECS": "1"}
    return run_git(checkout, *arguments, stdin=stdin, environment=environment)


def _content(checkout: Path) -> str:
    """A commit with the content of all tracked files as it is now; empty for a folder that is no checkout."""
    head = _git(checkout, "rev-parse", "--verify", "--quiet", "HEAD") if checkout.is_dir() else None
    if head is None or head.code != 0:
        return ""
    made = _git(checkout, "stash", "create")  # names nothing, touches nothing; says nothing when all is as in HEAD
    return (made.out if made.code == 0 else "").strip() or head.out.strip()


def _put_back(checkout: Path, content: str) -> list[str]:
    if not content or not checkout.is_dir():
        return []
    done = _git(checkout, "diff", "--ignore-submodules=all", "--no-renames", "--name-only", "-z", content, "--")
    paths = [path for path in done.out.split("\0") if path] if done.code == 0 else []
    if paths:
        put = ("restore", f"--source={content}", "--staged", "--worktree", "--pathspec-from-file=-")
        done = _git(checkout, *put, "--pathspec-file-nul", stdin="\0".join(paths))
    if done.code != 0:
        raise MeasurementError(
            f"a launch may have changed its checkout, which cannot be put back: {' '.join(done.err.split())[:300]}",
            wanted="a workload that leaves tracked files and git as they are: all launches of a revision run there",
            todo="let it write into another folder, or into ignored files",
        )
    return paths
