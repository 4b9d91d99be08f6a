"""Revisions of the user's repository, through the ``git`` program, without changing anything the user can see.

Read only, with one exception that git itself makes invisible: the content of uncommitted files is written to the
object database (as ``git stash`` does) when the working tree becomes a revision. The index, branches and files of the
user stay as they are, also their time stamps in the index.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.errors import UsageError
from perfci.model.run import Revision

PRIVATE_DIRECTORY = ".perfci"
"""perfci's own folder in the repository: never part of a revision."""

_GIT_TIMEOUT_S = 600.0
_SHORT_HASH_DIGITS = 12
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HASH_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_LONGEST_REVISION = 1000
_MEASURED_ANCESTORS_TRIED = 50
_KINDS_OF_SUBMODULES = {  # git's field <sub>: S, new commit, modified content, untracked content
    "S..U": "submodule untracked",
    **dict.fromkeys(("S.M.", "S.MU", "SCM.", "SCMU", "SC.U"), "submodule"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A commit and how many commits the descendant has that it has not (``git rev-list --count ancestor..commit``)."""

    commit: str
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAnswer:
    """What a finished git process said. ``out`` is decoded so that any bytes survive a round trip (surrogates)."""

    code: int
    out: str
    err: str


def run_git(
    directory: Path, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None
) -> GitAnswer:
    """Run git in ``directory`` and wait for it; a non-zero exit is an answer, not an error.

    UsageError when git is missing or does not answer within ten minutes (a hanging network file system).
    """
    command = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", *arguments]
    try:
        done = subprocess.run(  # noqa: S603  (a fixed program, no shell)
            command,
            cwd=directory,
            env=_clean_environment() | dict(environment or {}),
            input=None if stdin is None else os.fsencode(stdin),
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        if shutil.which("git") is not None:
            raise UsageError(f"the folder {directory} does not exist") from error
        raise UsageError(
            "the program git was not found",
            wanted="git 2.31 or newer on PATH",
            todo="install git (apt-get install git)",
        ) from error
    except NotADirectoryError as error:
        raise UsageError(f"{directory} is not a folder") from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"git {arguments[0]} did not answer within {_GIT_TIMEOUT_S:.0f} s") from error
    return GitAnswer(code=done.returncode, out=os.fsdecode(done.stdout), err=os.fsdecode(done.stderr))


def _clean_environment() -> dict[str, str]:
    # Inside a git hook GIT_DIR and GIT_INDEX_FILE point to whatever git is doing at the moment.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name.startswith(("GIT_CONFIG", "GIT_SSH", "GIT_ASKPASS", "GIT_EXEC_PATH"))
    }
    # No optional locks: `git status` would otherwise refresh, that is rewrite, the user's index.
    return kept | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A git repository with a working tree, whose top folder is ``root``."""

    root: Path

    @classmethod
    def discover(cls, path: Path) -> "Repository":
        """The repository that holds ``path``. UsageError when there is none, it is bare, or git distrusts its owner."""
        answer = run_git(path, "rev-parse", "--show-toplevel")
        if answer.code == 0:
            return cls(root=Path(answer.out.removesuffix("\n")))
        if "dubious ownership" in answer.err:
            raise UsageError(
                f"git does not trust the repository at {path}: another user owns it",
                todo=f"git config --global --add safe.directory {path.resolve()}",
            )
        if "must be run in a work tree" in answer.err:
            raise UsageError(
                f"{path} is inside a bare repository or a .git folder",
                wanted="a checkout with a working tree",
                todo="run perfci in a clone of it",
            )
        if "not a git repository" in answer.err:
            raise UsageError(f"{path} is not in a git repository", todo="run perfci in a clone, or git init and commit")
        raise _git_failed("git rev-parse", answer)

    def git(self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> GitAnswer:
        """Run git at the top of this repository."""
        return run_git(self.root, *arguments, stdin=stdin, environment=environment)

    def _must(self, *arguments: str, environment: Mapping[str, str] | None = None) -> str:
        answer = self.git(*arguments, environment=environment)
        if answer.code != 0:
            raise _git_failed(f"git {arguments[0]}", answer)
        return answer.out.rstrip("\n")

    @property
    def shallow(self) -> bool:
        """True when the clone holds only the newest part of the history."""
        return self._must("rev-parse", "--is-shallow-repository") == "true"

    def default_branch(self) -> str | None:
        """The branch that the remote calls its default (as last fetched), else ``main`` or ``master``, else None."""
        answer = self.git("symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
        if answer.code == 0:
            return answer.out.strip()
        names = [name for name in ("main", "master", "origin/main", "origin/master") if self._commit_of(name)]
        return names[0] if names else None

    def resolve(self, text: str) -> Revision:
        """The commit that ``text`` names: branch, tag, full or short hash, HEAD, or git's ``~ ^ @`` notation.

        The label is the text as written, or the short hash for a full one. UsageError when the text names nothing, no
        commit, several commits, or cannot be a revision at all.
        """
        _refuse_impossible(text)
        answer = self.git("rev-parse", "--verify", f"{text}^{{commit}}")
        commit = answer.out.strip()
        if answer.code != 0 or not _HASH.fullmatch(commit):
            raise self._unknown(text, answer)
        if "is ambiguous" in answer.err:
            self._refuse_ambiguous(text)
        label = commit[:_SHORT_HASH_DIGITS] if text == commit else text
        return self._revision(label, commit)

    def resolve_range(self, text: str, *, dirty: bool = False, to_measure: bool = True) -> tuple[Revision, Revision]:
        """Baseline and candidate of a range, with git's meaning.

        ``A..B``: A and B. ``A...B``: the merge base of A and B, and B (what a pull request means). An empty side is
        HEAD. ``A`` alone means ``A..HEAD``. A candidate ``to_measure`` is resolved by ``resolve_measured``; one of
        which only stored runs are wanted may stand in a working tree with changes.
        """
        left, dots, right = _split_range(text)
        baseline = self.resolve(left or "HEAD")
        wanted = right or "HEAD"
        candidate = self.resolve_measured(wanted, dirty=dirty) if to_measure or dirty else self.resolve(wanted)
        return (self.merge_base(baseline, candidate) if dots == "..." else baseline), candidate

    def resolve_measured(self, text: str, *, dirty: bool = False) -> Revision:
        """Like ``resolve``, for code that is about to be measured: uncommitted changes must not be overlooked.

        UsageError when ``text`` means the checked-out state (HEAD, ``@`` or the current branch by name) and tracked
        files have changes; untracked files are in no commit and do not count
        (docs/decisions/0112-untracked-files-do-not-block.md). With ``dirty`` the working tree is taken, changed or not;
        UsageError when it stands on another commit than ``text`` names.
        """
        revision = self.resolve(text)
        if not dirty:
            if text in ("HEAD", "@", self.current_branch()):
                self._refuse_dirty()
            return revision
        head = self.resolve("HEAD")
        if revision.commit != head.commit:
            raise UsageError(
                f"--dirty measures the working tree, which is at {_short(head)}, but {text!r} is {_short(revision)}",
                todo=f"check {text} out first, or leave --dirty away",
            )
        return self.working_tree()

    def current_branch(self) -> str | None:
        """Short name of the branch that is checked out; None when HEAD is detached."""
        answer = self.git("symbolic-ref", "--quiet", "--short", "HEAD")
        return answer.out.strip() if answer.code == 0 else None

    def merge_base(self, one: Revision, other: Revision) -> Revision:
        """The best common ancestor. UsageError when there is none, or when a shallow clone hides it."""
        answer = self.git("merge-base", _commit(one), _commit(other))
        base = answer.out.strip()
        if answer.code == 0:
            return self._revision(base[:_SHORT_HASH_DIGITS], base)
        if answer.code != 1:
            raise _git_failed("git merge-base", answer)
        seen = f"{one.label} and {other.label} have no common ancestor"
        if self.shallow:
            raise UsageError(
                f"{seen} in this shallow clone",
                wanted="the history back to the merge base",
                todo="git fetch --unshallow (in GitHub Actions: actions/checkout with fetch-depth: 0)",
            )
        raise UsageError(f"{seen}: unrelated histories", todo="compare the two tips with A..B instead of A...B")

    def dirty_paths(self) -> tuple[str, ...]:
        """Files that differ from HEAD or are untracked and not ignored, sorted; empty for a clean tree."""
        return tuple(sorted({path for _, path in self._status()}))

    def untracked_paths(self) -> tuple[str, ...]:
        """Files that no commit holds and that are not ignored, sorted; a folder of nothing else is one entry, which
        ends in ``/``."""
        kinds = ("untracked", "submodule untracked")
        return tuple(sorted({path for kind, path in self._status(untracked="normal") if kind in kinds}))

    def working_tree(self) -> Revision:
        """The working tree as a revision: HEAD's commit and the tree of all files as they are now, including
        untracked ones that are not ignored. A clean working tree is simply HEAD.

        UsageError for unmerged files and for changes inside a submodule, which one tree hash cannot hold.
        """
        head = self.resolve("HEAD")
        status = self._status()
        if not status:
            return head
        for kind, path in status:
            if kind == "unmerged":
                raise UsageError(f"{path} has unresolved merge conflicts", todo="resolve the merge, then measure")
            if kind.startswith("submodule"):
                raise UsageError(
                    f"the submodule {path} has uncommitted changes, which --dirty cannot hold",
                    todo=f"commit them inside {path}",
                )
        tree = self._tree_of_working_tree()
        if tree == head.tree:
            return head  # for example only file times, or an added and removed file
        commit = _commit(head)
        return Revision(label=f"{commit[:_SHORT_HASH_DIGITS]}+dirty", commit=commit, tree=tree, dirty=True)

    def distance(self, ancestor: str, descendant: str) -> int | None:
        """Number of commits that ``descendant`` has and ``ancestor`` has not; None when it is no ancestor (as far as
        this clone knows)."""
        answer = self.git("merge-base", "--is-ancestor", ancestor, descendant)
        if answer.code != 0:
            return None
        return int(self._must("rev-list", "--count", f"{ancestor}..{descendant}"))

    def nearest_ancestor(self, revision: Revision, measured: Collection[str], *, limit: int) -> Ancestor | None:
        """The measured commit with the smallest distance from ``revision``, at most ``limit``: a stand-in baseline.

        The revision itself counts, with distance 0. None when there is none within the limit. Distance is the number
        of commits between the two on all branches, not only the first-parent chain: each of them may hold a change
        that would wrongly be charged to the candidate.
        """
        wanted = set(measured)
        # Within the distance limit means within limit + 1 commits of some order; date order walks both sides of a
        # merge alike, so a generous window finds them without reading the whole history.
        window = self._must("rev-list", f"--max-count={10 * limit + 100}", _commit(revision)).split("\n")
        near = [commit for commit in window if commit in wanted][:_MEASURED_ANCESTORS_TRIED]
        best: Ancestor | None = None
        for commit in near:
            steps = self.distance(commit, _commit(revision))
            if steps is not None and steps <= limit and (best is None or steps < best.distance):
                best = Ancestor(commit=commit, distance=steps)
        return best

    def first_parents(self, revision: Revision, *, limit: int) -> tuple[str, ...]:
        """The newest ``limit`` commits of the main line that ends in ``revision``, newest first, itself included."""
        text = self._must("rev-list", "--first-parent", f"--max-count={limit}", _commit(revision))
        return tuple(text.split("\n")) if text else ()

    def changed_paths(self, one: Revision, other: Revision, within: str = ".") -> tuple[str, ...]:
        """Paths below the folder or file ``within`` (relative to the top) whose content differs, sorted."""
        text = self._must(
            "--literal-pathspecs", "diff-tree", "-r", "-z", "--name-only", "--no-renames",
            _tree(one), _tree(other), "--", within,
        )  # fmt: skip
        return tuple(sorted(path for path in text.split("\0") if path))

    def _revision(self, label: str, commit: str) -> Revision:
        return Revision(label=label, commit=commit, tree=self._must("rev-parse", "--verify", f"{commit}^{{tree}}"))

    def _commit_of(self, text: str) -> str | None:
        answer = self.git("rev-parse", "--verify", "--quiet", f"{text}^{{commit}}")
        return answer.out.strip() if answer.code == 0 else None

    def _unknown(self, text: str, answer: GitAnswer) -> UsageError:
        if "is ambiguous" in answer.err:
            hints = [line.removeprefix("hint:").strip() for line in answer.err.splitlines() if " commit " in line]
            return UsageError(
                f"the short hash {text} fits several objects" + (": " + "; ".join(hints) if hints else ""),
                todo="write more digits",
            )
        if not self._commit_of("HEAD"):
            return UsageError(f"{text!r} names no commit: this repository has no commit yet", todo="commit first")
        if self.git("rev-parse", "--verify", "--quiet", f"{text}^{{object}}").code == 0:
            return UsageError(f"{text!r} names a file or folder, not a commit", wanted="a branch, tag or hash")
        return UsageError(
            f"git knows no revision {text!r}", wanted="a branch, tag, hash or HEAD", todo=self._advice(text)
        )

    def _advice(self, text: str) -> str:
        if self._commit_of(f"refs/remotes/origin/{text}"):
            return f"write origin/{text}, or git branch {text} origin/{text}"
        default = self.default_branch()
        if text in ("main", "master", "origin/main", "origin/master") and default:
            return f"the default branch here is {default}: write {default}"
        if self.shallow:
            return "this clone is shallow: git fetch --unshallow --tags (GitHub Actions: fetch-depth: 0)"
        if _HASH_PREFIX.fullmatch(text):
            return "git fetch the branch that holds this commit"
        return "check the spelling with git branch --all and git tag, or git fetch --tags"

    def _refuse_ambiguous(self, text: str) -> None:
        listed = self._must(
            "for-each-ref", "--format=%(refname)", f"refs/heads/{text}", f"refs/tags/{text}", f"refs/remotes/{text}"
        )
        names = [name for name in listed.split("\n") if name.endswith(f"/{text}")]
        meanings = {self._commit_of(name) for name in names}
        if _HASH_PREFIX.fullmatch(text):  # a branch whose name also reads as a hash
            hashed = self.git("rev-parse", f"--disambiguate={text}").out.split()
            meanings |= {self._commit_of(found) for found in hashed} - {None}
        if len(meanings) > 1:
            raise UsageError(
                f"{text!r} is ambiguous, it names several commits: {', '.join(names)}"
                + (" and a hash" if len(names) < len(meanings) else ""),
                todo=f"write the full name, such as {names[0] if names else 'refs/heads/' + text}",
            )

    def _status(self, *, untracked: str = "all") -> list[tuple[str, str]]:
        """(kind, path) of each changed file; kind is changed, untracked, unmerged, submodule (changed inside) or
        submodule untracked (holds new files only). ``untracked`` is git's: all, normal (whole folders) or no."""
        text = self._must(
            "status", "--porcelain=v2", "-z", f"--untracked-files={untracked}", "--no-renames",
            "--ignore-submodules=none",
            "--", ".", f":(exclude,top){PRIVATE_DIRECTORY}",
        )  # fmt: skip
        found = []
        for entry in text.split("\0"):
            if entry.startswith("1 "):
                fields = entry.split(" ", 8)
                found.append((_KINDS_OF_SUBMODULES.get(fields[2], "changed"), fields[8]))
            elif entry.startswith("u "):
                found.append(("unmerged", entry.split(" ", 10)[10]))
            elif entry.startswith("? "):
                found.append(("untracked", entry[2:]))
        return found

    def _refuse_dirty(self) -> None:
        paths = sorted({path for kind, path in self._status() if not kind.endswith("untracked")})
        if not paths:
            return
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        raise UsageError(
            f"the working tree has uncommitted changes: {', '.join(paths[:3])}{more}",
            wanted="a clean tree, so that the numbers belong to a commit",
            todo="commit or stash them, or give --dirty to measure the working tree as it is",
        )

    def _tree_of_working_tree(self) -> str:
        # A copy of the user's index, not an empty one: it carries the skip-worktree bits of a sparse checkout, whose
        # absent files must not look deleted, and the cached hashes of unchanged files.
        with tempfile.TemporaryDirectory(prefix="perfci-index-") as folder:
            index = Path(folder) / "index"
            original = Path(self._must("rev-parse", "--git-path", "index"))
            original = original if original.is_absolute() else self.root / original
            if original.exists():
                # With its time stamp: git trusts the cached state of files that are older than the index.
                shutil.copy2(original, index)
            own = {"GIT_INDEX_FILE": str(index)}
            self._must("add", "--all", "--", ".", f":(exclude,top){PRIVATE_DIRECTORY}", environment=own)
            return self._must("write-tree", environment=own)


def _refuse_impossible(text: str) -> None:
    plain = text == text.strip() and not any(ord(c) < 32 or ord(c) == 127 for c in text)
    if not plain or not 0 < len(text) <= _LONGEST_REVISION:
        raise UsageError(f"{text[:100]!r} cannot be a revision", wanted="a branch, tag, hash or HEAD")
    if text.startswith("-"):
        raise UsageError(
            f"the revision {text!r} starts with a dash and would be taken for an option",
            todo=f"write its full name: refs/heads/{text}",
        )


def _split_range(text: str) -> tuple[str, str, str]:
    for dots in ("...", ".."):
        left, found, right = text.partition(dots)
        if found:
            if ".." in right or left.endswith(".") or right.startswith("."):
                raise UsageError(
                    f"{text!r} is not a revision range",
                    wanted="A..B (two tips), A...B (merge base of A and B with B), or A (A..HEAD)",
                )
            return left, dots, right
    return text, "..", ""


def _commit(revision: Revision) -> str:
    if revision.commit is None:
        raise UsageError(f"{revision.label!r} is the label of an import, not a git revision")
    return revision.commit


def _tree(revision: Revision) -> str:
    return revision.tree or f"{_commit(revision)}^{{tree}}"


def _short(revision: Revision) -> str:
    return _commit(revision)[:_SHORT_HASH_DIGITS]


def _git_failed(what: str, answer: GitAnswer) -> UsageError:
    said = " ".join(answer.err.split())[:500] or "no message"
    return UsageError(f"{what} failed with exit code {answer.code}: {said}")
