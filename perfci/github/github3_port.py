"""The port over github3.py.

github3.py brings the session, the authentication, pagination, the errors and the models. Lists are read as plain
dictionaries through its iterator, because its models break on answers that the API allows (a comment of a deleted
account has no user). What it has no method for (permission of a collaborator, list of check runs by name) goes through
its session.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from github3 import exceptions as gh_errors
from github3.checks import CheckRun as Github3CheckRun
from github3.github import GitHub
from github3.structs import GitHubIterator

from perfci.github.address import Address, address_from_environment
from perfci.github.answers import Json, check_of, check_output, comment_of, pull_of, timestamp
from perfci.github.http import RetryPolicy, limit_wait_s, open_session
from perfci.github.limits import ANNOTATIONS_PER_REQUEST
from perfci.github.port import (
    CheckRun,
    CheckRunRef,
    Comment,
    CommitInfo,
    GitHubRefused,
    GitHubUnavailable,
    PullRequest,
    Status,
)
from perfci.github.secret import Credential, credential_from_environment, redact

ACTIONS_LOGIN = "github-actions[bot]"
"""The account behind the GITHUB_TOKEN of a workflow; it may not ask `GET /user` for its own name."""

T = TypeVar("T")


class Github3Port:
    """GitHubPort for one repository (``owner/name``)."""

    def __init__(
        self,
        *,
        repository: str,
        credential: Credential,
        address: Address | None = None,
        policy: RetryPolicy | None = None,
        timeout_s: float = 20.0,
        login: str | None = None,
    ) -> None:
        self._owner, _, self._name = repository.partition("/")
        self._credential = credential
        self._policy = policy or RetryPolicy()
        self._session = open_session(
            address=address or Address(), credential=credential, policy=self._policy, timeout_s=timeout_s
        )
        self._github = GitHub(session=self._session)
        self._known_login = login
        self._known_repository: Any = None

    def __repr__(self) -> str:
        return f"Github3Port({self._owner}/{self._name})"

    # reading

    def login(self) -> str:
        """The account under which this port writes."""
        if self._known_login is None:
            if self._credential.kind == "installation":
                self._known_login = ACTIONS_LOGIN
            else:
                self._known_login = str(self._get_json("read the account of the token", "user")["login"])
        return self._known_login

    def pull_request(self, number: int) -> PullRequest:
        """The pull request as it is now."""
        return self._read(
            f"read pull request {number}", lambda: pull_of(self._repository().pull_request(number).as_dict())
        )

    def open_pull_requests(self, *, head_owner: str, head_branch: str) -> tuple[PullRequest, ...]:
        """Open pull requests whose head is this branch of a repository of this owner."""
        params = {"state": "open", "head": f"{head_owner}:{head_branch}"}
        return tuple(self._list("list pull requests", "pulls", pull_of, params=params))

    def pull_requests_of(self, sha: str) -> tuple[PullRequest, ...]:
        """Open pull requests that GitHub links with the commit."""
        found = self._list("list the pull requests of a commit", f"commits/{_segment(sha)}/pulls", pull_of)
        return tuple(pull for pull in found if pull.state == "open")

    def comments(self, number: int) -> Iterator[Comment]:
        """All comments, oldest first."""
        return iter(self._list(f"list the comments of {number}", f"issues/{number}/comments", comment_of))

    def check_runs(self, sha: str, *, name: str) -> tuple[CheckRunRef, ...]:
        """All check runs of this name on the commit that hold an external id."""
        params = {"check_name": name, "filter": "all"}
        found = self._list(
            "list check runs", f"commits/{_segment(sha)}/check-runs", check_of, params=params, list_key="check_runs"
        )
        return tuple(check for check in found if check.external_id)

    def permission(self, login: str) -> str:
        """The account's permission: admin, write, read or none."""
        try:
            answer = self._get_json(
                f"read the permission of {login}", f"{self._root}/collaborators/{_segment(login)}/permission"
            )
        except GitHubRefused as error:
            if error.status == 404:
                return "none"
            raise
        return str(answer["permission"])

    def commit(self, sha: str) -> CommitInfo:
        """A commit of the repository."""
        answer = self._get_json("read a commit", f"{self._root}/git/commits/{_segment(sha)}")
        parents = tuple(str(parent["sha"]) for parent in answer["parents"])
        return CommitInfo(sha=str(answer["sha"]), message=str(answer["message"]), parents=parents)

    # writing

    def create_comment(self, number: int, body: str, *, marker: str) -> Comment:
        """Add a comment; when the answer was lost, look for the marker before repeating."""

        def post() -> Comment:
            return comment_of(self._repository().issue(number).create_comment(body).as_dict())

        def find() -> Comment | None:
            mine = [c for c in self.comments(number) if marker in c.body and c.author == self.login()]
            return mine[0] if mine else None

        return self._post_once(f"comment on pull request {number}", post, find)

    def edit_comment(self, comment_id: int, body: str) -> None:
        """Replace the body. Setting it twice is harmless, so a lost answer is simply repeated."""

        def patch() -> None:
            url = self._url(f"{self._root}/issues/comments/{comment_id}")
            comment_of(self._checked(self._session.patch(url, json={"body": body})).json())

        self._repeat(f"edit comment {comment_id}", patch)

    def delete_comment(self, comment_id: int) -> None:
        """Delete; already deleted is fine."""

        def delete() -> None:
            response = self._session.delete(self._url(f"{self._root}/issues/comments/{comment_id}"))
            if response.status_code != 404:
                self._checked(response)

        self._read(f"delete comment {comment_id}", delete)

    def create_check_run(self, check: CheckRun) -> CheckRunRef:
        """Create it with the first 50 annotations, then append the others by 50."""
        first = check.annotations[:ANNOTATIONS_PER_REQUEST]

        def post() -> CheckRunRef:
            made = self._repository().create_check_run(
                name=check.name,
                head_sha=check.head_sha,
                details_url=check.details_url,
                external_id=check.external_id,
                status="completed",
                conclusion=check.conclusion.value,
                completed_at=timestamp(check.completed_at),
                output=check_output(check, first),
            )
            return check_of(made.as_dict())

        def find() -> CheckRunRef | None:
            same = [c for c in self.check_runs(check.head_sha, name=check.name) if c.external_id == check.external_id]
            return same[-1] if same else None

        made = self._post_once("create a check run", post, find)
        return self._append_annotations(made.id, check) if len(check.annotations) > len(first) else made

    def update_check_run(self, check_id: int, check: CheckRun) -> CheckRunRef:
        """Replace title, summary and conclusion, and append the annotations that are still missing."""

        def patch() -> None:
            run = self._github3_check(check_id)
            if not run.update(
                details_url=check.details_url,
                external_id=check.external_id,
                status="completed",
                conclusion=check.conclusion.value,
                completed_at=timestamp(check.completed_at),
                output=check_output(check, ()),
            ):
                raise GitHubUnavailable("GitHub gave no usable answer to an updated check run")

        self._repeat(f"update check run {check_id}", patch)
        return self._append_annotations(check_id, check)

    def create_status(self, status: Status) -> None:
        """Set the status of a context; the newest counts, so repeating is harmless."""

        def post() -> None:
            self._repository().create_status(
                status.sha,
                status.state,
                target_url=status.target_url,
                description=status.description,
                context=status.context,
            ).as_dict()

        self._repeat("create a commit status", post)

    # parts

    @property
    def _root(self) -> str:
        return f"repos/{_segment(self._owner)}/{_segment(self._name)}"

    def _url(self, path: str) -> str:
        return f"{self._session.base_url}/{path}"

    def _repository(self) -> Any:
        if self._known_repository is None:
            self._known_repository = self._github.repository(self._owner, self._name)
        return self._known_repository

    def _github3_check(self, check_id: int) -> Github3CheckRun:
        return self._repository().check_run(check_id)

    def _append_annotations(self, check_id: int, check: CheckRun) -> CheckRunRef:
        """PATCH appends, so it must not be repeated blindly: after a lost answer GitHub is asked what it has."""
        what = "add annotations"

        def look() -> Github3CheckRun:
            return self._read(what, lambda: self._github3_check(check_id))

        def append(run: Github3CheckRun, sent: int) -> int:
            batch = check.annotations[sent : sent + ANNOTATIONS_PER_REQUEST]
            if not self._read(what, lambda: run.update(output=check_output(check, batch))):
                raise GitHubUnavailable("GitHub gave no usable answer to added annotations")
            return sent + len(batch)

        run = look()
        sent, failed = int(run.output.annotations_count), 0
        while sent < len(check.annotations):
            try:
                sent = append(run, sent)
            except GitHubUnavailable:
                failed += 1
                if failed == self._policy.attempts:
                    raise
                self._policy.pause(failed)
                run = look()
                sent = int(run.output.annotations_count)
        return CheckRunRef(
            id=check_id,
            name=check.name,
            external_id=check.external_id,
            annotation_count=sent,
            html_url=str(run.html_url or ""),
        )

    def _get_json(self, what: str, path: str) -> Json:
        def get() -> Json:
            answer = self._checked(self._session.get(self._url(path))).json()
            if not isinstance(answer, dict):
                raise TypeError("wanted an object")
            return answer

        return self._read(what, get)

    def _list(
        self,
        what: str,
        path: str,
        convert: Callable[[Json], T],
        *,
        params: dict[str, str] | None = None,
        list_key: str | None = None,
    ) -> list[T]:
        def read() -> list[T]:
            pages = GitHubIterator(
                -1, self._url(f"{self._root}/{path}"), dict, self._session, params={**(params or {})}, list_key=list_key
            )
            return [convert(item) for item in pages]

        return self._read(what, read)

    @staticmethod
    def _checked(response: Any) -> Any:
        if response.status_code >= 400:
            raise gh_errors.error_for(response)
        return response

    def _read(self, what: str, action: Callable[[], T]) -> T:
        with self._translated(what):
            return action()

    def _repeat(self, what: str, action: Callable[[], T]) -> T:
        """For actions that may safely happen twice."""
        for attempt in range(self._policy.attempts - 1):
            with contextlib.suppress(GitHubUnavailable):
                return self._read(what, action)
            self._policy.pause(attempt)
        return self._read(what, action)

    def _post_once(self, what: str, post: Callable[[], T], find: Callable[[], T | None]) -> T:
        """For actions that must happen once: when the answer was lost, look before posting again."""
        lost: GitHubUnavailable | None = None
        for attempt in range(self._policy.attempts):
            try:
                return self._read(what, post)
            except GitHubUnavailable as error:
                lost = error
            self._policy.pause(attempt)
            found = find()
            if found is not None:
                return found
        assert lost is not None
        raise lost

    @contextlib.contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        """github3's errors as ours: redacted, with what was tried, and without the chain (it holds request objects)."""
        try:
            yield
        except gh_errors.MissingAppAuthentication:
            raise GitHubRefused(
                f"cannot {what}: a personal token cannot make check runs",
                status=403,
                wanted="the GITHUB_TOKEN of a workflow, or the installation token of an app",
            ) from None
        except gh_errors.UnprocessableResponseBody as error:  # has neither the code nor the text of the others
            raise GitHubUnavailable(f"cannot {what}: GitHub's answer is not as documented ({error.msg})") from None
        except gh_errors.GitHubError as error:
            raise self._explained(what, error) from None
        except gh_errors.GitHubException as error:
            raise GitHubUnavailable(f"cannot {what}: {self._clean(error)}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise GitHubUnavailable(
                f"cannot {what}: GitHub's answer is not as documented ({type(error).__name__}: {self._clean(error)})"
            ) from None

    def _explained(self, what: str, error: gh_errors.GitHubError) -> GitHubRefused | GitHubUnavailable:
        status = error.code or 0
        text = f"cannot {what}: GitHub answered {self._clean(error)}"
        limited = error.response is not None and limit_wait_s(error.response, now_s=0) is not None
        if limited:
            return GitHubUnavailable(f"{text} (rate limit)", todo="publish the same bundle again later")
        if status in (400, 401, 403, 404, 405, 409, 410, 412, 422, 451):
            todo = "look at the permissions of the publishing job, docs/github.md" if status in (401, 403) else ""
            return GitHubRefused(text, status=status, todo=todo)
        if not status:
            return GitHubUnavailable(f"cannot {what}: GitHub's answer is not as documented ({error.msg})"[:500])
        return GitHubUnavailable(text)

    def _clean(self, error: Exception) -> str:
        return redact(str(error), (self._credential.token,))[:500]


def port_from_environment(environ: Mapping[str, str], *, repository: str) -> Github3Port:
    """The port of a workflow job: token, addresses and, for an app of your own, its account (PERFCI_GITHUB_LOGIN, for
    example ``my-app[bot]``) from the environment. Raises UsageError when the token or an address is not usable."""
    return Github3Port(
        repository=repository,
        credential=credential_from_environment(environ),
        address=address_from_environment(environ),
        login=environ.get("PERFCI_GITHUB_LOGIN") or None,
    )


def _segment(text: str) -> str:
    """One path segment: nothing in it can leave its place in the URL."""
    if text in ("", ".", ".."):
        raise GitHubRefused(f"{text!r} is not a name", status=404)
    return quote(text, safe="[]")
