"""Revisions of the user's repository and their history, without changing anything the user can see."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfci.capture.git import GitAnswer, git_failed, git_output, run_git
from perfci.capture.uncommitted import refuse_changes, tree_with_changes
from perfci.errors import UsageError
from perfci.model.run import Revision

_SHORT_HASH_DIGITS = 12
_HASH = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HASH_PREFIX = re.compile(r"[0-9a-f]{4,64}")
_LONGEST_REVISION = 1000
_MEASURED_ANCESTORS_TRIED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A commit and how many commits the descendant has that it has not (``git rev-list --count ancestor..commit``)."""

    commit: str
    distance: int


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
        raise git_failed("git rev-parse", answer)

    def git(self, *arguments: str, stdin: str | None = None, environment: Mapping[str, str] | None = None) -> GitAnswer:
        """Run git at the top of this repository."""
        return run_git(self.root, *arguments, stdin=stdin, environment=environment)

    @property
    def shallow(self) -> bool:
        """True when the clone holds only the newest part of the history."""
        return git_output(self.root, "rev-parse", "--is-shallow-repository") == "true"

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
                refuse_changes(self.root)
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
            raise git_failed("git merge-base", answer)
        seen = f"{one.label} and {other.label} have no common ancestor"
        if self.shallow:
            raise UsageError(
                f"{seen} in this shallow clone",
                wanted="the history back to the merge base",
                todo="git fetch --unshallow (in GitHub Actions: actions/checkout with fetch-depth: 0)",
            )
        raise UsageError(f"{seen}: unrelated histories", todo="compare the two tips with A..B instead of A...B")

    def working_tree(self) -> Revision:
        """The working tree as a revision: HEAD's commit and the tree of all files as they are now, including
        untracked ones that are not ignored. A clean working tree is simply HEAD.

        UsageError for unmerged files and for changes inside a submodule, which one tree hash cannot hold.
        """
        head = self.resolve("HEAD")
        tree = tree_with_changes(self.root)
        if tree is None or tree == head.tree:  # equal: for example only file times, or an added and removed file
            return head
        commit = _commit(head)
        return Revision(label=f"{commit[:_SHORT_HASH_DIGITS]}+dirty", commit=commit, tree=tree, dirty=True)

    def distance(self, ancestor: str, descendant: str) -> int | None:
        """Number of commits that ``descendant`` has and ``ancestor`` has not; None when it is no ancestor (as far as
        this clone knows)."""
        answer = self.git("merge-base", "--is-ancestor", ancestor, descendant)
        if answer.code != 0:
            return None
        return int(git_output(self.root, "rev-list", "--count", f"{ancestor}..{descendant}"))

    def nearest_ancestor(self, revision: Revision, measured: Collection[str], *, limit: int) -> Ancestor | None:
        """The measured commit with the smallest distance from ``revision``, at most ``limit``: a stand-in baseline.

        The revision itself counts, with distance 0. None when there is none within the limit. Distance is the number
        of commits between the two on all branches, not only the first-parent chain: each of them may hold a change
        that would wrongly be charged to the candidate.
        """
        wanted = set(measured)
        # Within the distance limit means within limit + 1 commits of some order; date order walks both sides of a
        # merge alike, so a generous window finds them without reading the whole history.
        window = git_output(self.root, "rev-list", f"--max-count={10 * limit + 100}", _commit(revision)).split("\n")
        near = [commit for commit in window if commit in wanted][:_MEASURED_ANCESTORS_TRIED]
        best: Ancestor | None = None
        for commit in near:
            steps = self.distance(commit, _commit(revision))
            if steps is not None and steps <= limit and (best is None or steps < best.distance):
                best = Ancestor(commit=commit, distance=steps)
        return best

    def first_parents(self, revision: Revision, *, limit: int) -> tuple[str, ...]:
        """The newest ``limit`` commits of the main line that ends in ``revision``, newest first, itself included."""
        text = git_output(self.root, "rev-list", "--first-parent", f"--max-count={limit}", _commit(revision))
        return tuple(text.split("\n")) if text else ()

    def changed_paths(self, one: Revision, other: Revision, within: str = ".") -> tuple[str, ...]:
        """Paths below the folder or file ``within`` (relative to the top) whose content differs, sorted."""
        text = git_output(
            self.root, "--literal-pathspecs", "diff-tree", "-r", "-z", "--name-only", "--no-renames",
            _tree(one), _tree(other), "--", within,
        )  # fmt: skip
        return tuple(sorted(path for path in text.split("\0") if path))

    def _revision(self, label: str, commit: str) -> Revision:
        return Revision(
            label=label, commit=commit, tree=git_output(self.root, "rev-parse", "--verify", f"{commit}^{{tree}}")
        )

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
        listed = git_output(
            self.root,
            "for-each-ref",
            "--format=%(refname)",
            f"refs/heads/{text}",
            f"refs/tags/{text}",
            f"refs/remotes/{text}",
        )  # fmt: skip
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
