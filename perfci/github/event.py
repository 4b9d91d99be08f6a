"""Which commit, which pull request, which run: read from the event that GitHub wrote, never from a bundle."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from perfci.errors import UsageError

FULL_SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
"""A full commit id: SHA-1, or SHA-256 in repositories that use it."""

_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]{1,100}/[A-Za-z0-9_.-]{1,100}")
_MAX_EVENT_BYTES = 32 * 1024 * 1024


class EventKind(StrEnum):
    """Events that perfci answers."""

    PULL_REQUEST = "pull_request"
    PUSH = "push"
    WORKFLOW_RUN = "workflow_run"
    ISSUE_COMMENT = "issue_comment"
    MERGE_GROUP = "merge_group"
    SCHEDULE = "schedule"
    WORKFLOW_DISPATCH = "workflow_dispatch"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueCommentInfo:
    """The comment of an ``issue_comment`` event: text from anybody."""

    id: int
    author: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The identity of a measurement as GitHub states it.

    ``head_sha`` is the commit that results belong to: for a pull request its head, never the test merge that
    ``GITHUB_SHA`` names. It is None for a comment, where the head must be asked for. ``pull_request`` is None where
    there is none (push, merge queue) or where GitHub does not say (``workflow_run`` of a fork).
    ``run_id`` and ``run_attempt`` name the run that MEASURED: of ``workflow_run`` the triggering run, else this one.
    ``origin`` is the event that started the measuring run.
    """

    kind: EventKind
    origin: EventKind
    repository: str
    default_branch: str
    run_id: int
    run_attempt: int
    head_sha: str | None
    head_repository: str | None
    head_branch: str | None
    base_sha: str | None = None
    base_branch: str | None = None
    pull_request: int | None = None
    conclusion: str | None = None
    """How the measuring run ended (``workflow_run`` only): anything but success means that something is missing."""
    comment: IssueCommentInfo | None = None

    @property
    def trusted_code(self) -> bool:
        """True when the measured code is on the default branch of the repository itself: only then may its numbers
        enter the history that other pull requests are compared with."""
        return (
            self.origin in (EventKind.PUSH, EventKind.SCHEDULE, EventKind.WORKFLOW_DISPATCH)
            and self.head_repository == self.repository
            and self.head_branch == self.default_branch
        )

    @property
    def order(self) -> tuple[int, int]:
        """Later measuring runs of a repository have greater numbers: decides which result is the newer one."""
        return (self.run_id, self.run_attempt)


def event_from_environment(environ: Mapping[str, str]) -> Event:
    """The event of the running workflow: GITHUB_EVENT_NAME and the file GITHUB_EVENT_PATH. Raises UsageError."""
    name, path = environ.get("GITHUB_EVENT_NAME", ""), environ.get("GITHUB_EVENT_PATH", "")
    if not name or not path:
        raise UsageError(
            "this is not a GitHub Actions job: GITHUB_EVENT_NAME or GITHUB_EVENT_PATH is not set",
            todo="run it inside a workflow, see docs/github.md",
        )
    try:
        file = Path(path)
        if file.stat().st_size > _MAX_EVENT_BYTES:
            raise UsageError(f"the event file {path} is larger than any event of GitHub")
        payload = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read the event file: {error.strerror}: {path}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"the event file {path} is not JSON") from None
    return parse_event(name, payload, environ)


def parse_event(name: str, payload: Any, environ: Mapping[str, str]) -> Event:
    """The event ``name`` with its payload; run numbers come from the environment. UsageError when it is unknown or
    lacks what GitHub documents."""
    try:
        kind = EventKind(name.removesuffix("_target"))
    except ValueError:
        raise UsageError(
            f"perfci does not know the event {name!r}", wanted=", ".join(kind.value for kind in EventKind)
        ) from None
    try:
        return _PARSERS[kind](payload, environ)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"the {name} event lacks what GitHub documents ({type(error).__name__}: {error})",
            todo="check that GITHUB_EVENT_PATH names the event of this very job",
        ) from None


def _pull_request(payload: Any, environ: Mapping[str, str]) -> Event:
    pull = payload["pull_request"]
    repository = pull["head"].get("repo")
    return Event(
        **_here(payload, environ, EventKind.PULL_REQUEST),
        head_sha=_sha(pull["head"]["sha"]),
        head_repository=_repository(repository["full_name"]) if repository else None,
        head_branch=str(pull["head"]["ref"]),
        base_sha=_sha(pull["base"]["sha"]),
        base_branch=str(pull["base"]["ref"]),
        pull_request=int(pull["number"]),
    )


def _push(payload: Any, environ: Mapping[str, str]) -> Event:
    before = payload.get("before") or ""
    return Event(
        **_here(payload, environ, EventKind.PUSH),
        head_sha=_sha(payload["after"]),
        head_repository=_repository(payload["repository"]["full_name"]),
        head_branch=str(payload["ref"]).removeprefix("refs/heads/"),
        base_sha=_sha(before) if before.strip("0") else None,
        base_branch=str(payload["ref"]).removeprefix("refs/heads/"),
    )


def _merge_group(payload: Any, environ: Mapping[str, str]) -> Event:
    group = payload["merge_group"]
    return Event(
        **_here(payload, environ, EventKind.MERGE_GROUP),
        head_sha=_sha(group["head_sha"]),
        head_repository=_repository(payload["repository"]["full_name"]),
        head_branch=str(group["head_ref"]).removeprefix("refs/heads/"),
        base_sha=_sha(group["base_sha"]),
        base_branch=str(group["base_ref"]).removeprefix("refs/heads/"),
    )


def _issue_comment(payload: Any, environ: Mapping[str, str]) -> Event:
    on_pull = "pull_request" in payload["issue"] and payload["issue"]["pull_request"]
    comment = payload["comment"]
    return Event(
        **_here(payload, environ, EventKind.ISSUE_COMMENT),
        head_sha=None,
        head_repository=None,
        head_branch=None,
        pull_request=int(payload["issue"]["number"]) if on_pull else None,
        comment=IssueCommentInfo(
            id=int(comment["id"]),
            author=str((comment.get("user") or {}).get("login") or ""),
            body=str(comment.get("body") or ""),
        ),
    )


Parser = Callable[[Any, Mapping[str, str]], Event]


def _on_default_branch(kind: EventKind) -> Parser:
    def parse(payload: Any, environ: Mapping[str, str]) -> Event:
        ref = payload.get("ref") or environ.get("GITHUB_REF", "")
        return Event(
            **_here(payload, environ, kind),
            head_sha=_sha(environ["GITHUB_SHA"]),
            head_repository=_repository(payload["repository"]["full_name"]),
            head_branch=str(ref).removeprefix("refs/heads/"),
        )

    return parse


def _workflow_run(payload: Any, environ: Mapping[str, str]) -> Event:
    """Everything about the measuring run is in ``workflow_run``. Its ``pull_requests`` is empty for forks, and lists
    pull requests of *other* repositories of a network too: only one of this repository with this very head counts."""
    del environ
    run = payload["workflow_run"]
    repository = _repository(payload["repository"]["full_name"])
    head = run.get("head_repository")
    sha = _sha(run["head_sha"])
    mine = [
        pull
        for pull in run.get("pull_requests") or ()
        if pull["head"]["sha"] == sha and pull["base"]["repo"]["id"] == payload["repository"]["id"]
    ]
    only = mine[0] if len(mine) == 1 else None
    return Event(
        kind=EventKind.WORKFLOW_RUN,
        origin=EventKind(str(run["event"]).removesuffix("_target")),
        repository=repository,
        default_branch=str(payload["repository"]["default_branch"]),
        run_id=int(run["id"]),
        run_attempt=int(run["run_attempt"]),
        head_sha=sha,
        head_repository=_repository(head["full_name"]) if head else None,
        head_branch=str(run["head_branch"]) if run.get("head_branch") else None,
        base_branch=str(only["base"]["ref"]) if only else None,
        pull_request=int(only["number"]) if only else None,
        conclusion=str(run["conclusion"]) if run.get("conclusion") else None,
    )


_PARSERS: dict[EventKind, Parser] = {
    EventKind.PULL_REQUEST: _pull_request,
    EventKind.PUSH: _push,
    EventKind.WORKFLOW_RUN: _workflow_run,
    EventKind.ISSUE_COMMENT: _issue_comment,
    EventKind.MERGE_GROUP: _merge_group,
    EventKind.SCHEDULE: _on_default_branch(EventKind.SCHEDULE),
    EventKind.WORKFLOW_DISPATCH: _on_default_branch(EventKind.WORKFLOW_DISPATCH),
}


def _here(payload: Any, environ: Mapping[str, str], kind: EventKind) -> dict[str, Any]:
    """What this job itself says. The default branch is read from the event, so a renamed one needs no setting."""
    repository = payload.get("repository") or {}
    return {
        "kind": kind,
        "origin": kind,
        "repository": _repository(repository.get("full_name") or environ["GITHUB_REPOSITORY"]),
        "default_branch": str(repository.get("default_branch") or "main"),
        "run_id": int(environ["GITHUB_RUN_ID"]),
        "run_attempt": int(environ.get("GITHUB_RUN_ATTEMPT") or 1),
    }


def _sha(value: Any) -> str:
    if not isinstance(value, str) or not FULL_SHA.fullmatch(value):
        raise ValueError(f"{value!r} is not a full commit id")
    return value


def _repository(value: Any) -> str:
    if not isinstance(value, str) or not _REPOSITORY.fullmatch(value) or "/.." in value or value.startswith(".."):
        raise ValueError(f"{value!r} is not owner/name")
    return value
