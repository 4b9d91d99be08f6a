"""What perfci needs of GitHub, as a small protocol: one repository, plain values in and out, errors as BackendError."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal, Protocol

from perfci.errors import BackendError


class GitHubRefused(BackendError):  # noqa: N818  (reads as a sentence: GitHub refused)
    """GitHub answered, and the answer is no for good: permission, validation, not found. Repeating does not help."""

    def __init__(self, seen: str, *, status: int, wanted: str = "", todo: str = "") -> None:
        super().__init__(seen, wanted=wanted, todo=todo)
        self.status = status


class GitHubUnavailable(BackendError):  # noqa: N818
    """No usable answer: the network, a server error, or a rate limit that ends too late. Repeating later may help."""


class CheckConclusion(StrEnum):
    """How a check run ends. Neutral lets a required check through; failure does not."""

    SUCCESS = "success"
    FAILURE = "failure"
    NEUTRAL = "neutral"


class AnnotationLevel(StrEnum):
    """GitHub's three levels."""

    NOTICE = "notice"
    WARNING = "warning"
    FAILURE = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A remark at a line of a file of the head commit."""

    path: str
    line: int
    level: AnnotationLevel
    title: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """A finished check run to be shown. ``external_id`` is ours: it marks the check run and orders results."""

    name: str
    head_sha: str
    external_id: str
    conclusion: CheckConclusion
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = ()
    details_url: str | None = None
    completed_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRunRef:
    """A check run on GitHub."""

    id: int
    name: str
    external_id: str
    annotation_count: int
    html_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """A comment of a pull request. ``author`` is empty for a deleted account."""

    id: int
    author: str
    body: str
    created_at: datetime
    html_url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequest:
    """A pull request as GitHub has it now. ``head_repository`` is None when the fork was deleted."""

    number: int
    state: str
    head_sha: str
    head_ref: str
    head_repository: str | None
    base_sha: str
    base_ref: str
    base_repository: str
    labels: tuple[str, ...] = ()
    html_url: str = ""

    @property
    def from_fork(self) -> bool:
        """True when the head lives in another repository (or in none any more)."""
        return self.head_repository is None or self.head_repository.lower() != self.base_repository.lower()


StatusState = Literal["success", "failure", "error", "pending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A commit status: the fallback where check runs are not to be had. The newest of a context counts."""

    sha: str
    state: StatusState
    context: str
    description: str
    target_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """What perfci reads of a commit."""

    sha: str
    message: str
    parents: tuple[str, ...] = field(default=())


class GitHubPort(Protocol):
    """One repository. Every method raises GitHubRefused or GitHubUnavailable and no other exception."""

    def login(self) -> str:
        """The account under which this port writes."""

    def pull_request(self, number: int) -> PullRequest:
        """The pull request as it is now."""

    def open_pull_requests(self, *, head_owner: str, head_branch: str) -> tuple[PullRequest, ...]:
        """Open pull requests whose head is this branch of a repository of this owner."""

    def pull_requests_of(self, sha: str) -> tuple[PullRequest, ...]:
        """Open pull requests that GitHub links with the commit."""

    def comments(self, number: int) -> Iterable[Comment]:
        """All comments of a pull request (not review comments), oldest first."""

    def create_comment(self, number: int, body: str, *, marker: str) -> Comment:
        """Add a comment. ``marker`` is a text that only this body holds: when the answer is lost, the comment is looked
        for before anything is repeated."""

    def edit_comment(self, comment_id: int, body: str) -> None:
        """Replace the body."""

    def delete_comment(self, comment_id: int) -> None:
        """Delete; already deleted is fine."""

    def check_runs(self, sha: str, *, name: str) -> tuple[CheckRunRef, ...]:
        """All check runs of this name on the commit that hold an external id."""

    def create_check_run(self, check: CheckRun) -> CheckRunRef:
        """Create it, all annotations included."""

    def update_check_run(self, check_id: int, check: CheckRun) -> CheckRunRef:
        """Replace title, summary and conclusion; annotations that it already holds are not sent again."""

    def create_status(self, status: Status) -> None:
        """Set the status of a context."""

    def permission(self, login: str) -> str:
        """The account's permission on the repository: admin, write, read or none (maintain counts as write, triage as
        read)."""

    def commit(self, sha: str) -> CommitInfo:
        """A commit of the repository (commits of forks with an open pull request included)."""
