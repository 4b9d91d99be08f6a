"""GitHub's JSON as values of the port and back. What GitHub leaves out or sets to null is expected here."""

from datetime import UTC, datetime
from typing import Any

from perfci.github.port import Annotation, CheckRun, CheckRunRef, Comment, PullRequest

Json = dict[str, Any]


def timestamp(at: datetime) -> str:
    """ISO 8601 in UTC, as the API asks for it."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_output(check: CheckRun, annotations: tuple[Annotation, ...]) -> Json:
    """The ``output`` of a check run with these annotations."""
    output: Json = {"title": check.title, "summary": check.summary}
    if annotations:
        output["annotations"] = [
            {
                "path": a.path,
                "start_line": a.line,
                "end_line": a.line,
                "annotation_level": a.level.value,
                "title": a.title,
                "message": a.message,
            }
            for a in annotations
        ]
    return output


def pull_of(data: Json) -> PullRequest:
    """A pull request; its head repository is null when the fork was deleted."""
    head_repository = data["head"].get("repo")
    return PullRequest(
        number=int(data["number"]),
        state=str(data["state"]),
        head_sha=str(data["head"]["sha"]),
        head_ref=str(data["head"]["ref"]),
        head_repository=str(head_repository["full_name"]) if head_repository else None,
        base_sha=str(data["base"]["sha"]),
        base_ref=str(data["base"]["ref"]),
        base_repository=str(data["base"]["repo"]["full_name"]),
        labels=tuple(str(label["name"]) for label in data.get("labels", ())),
        html_url=str(data.get("html_url") or ""),
    )


def comment_of(data: Json) -> Comment:
    """A comment; its user is null when the account was deleted."""
    return Comment(
        id=int(data["id"]),
        author=str((data.get("user") or {}).get("login") or ""),
        body=str(data.get("body") or ""),
        created_at=datetime.fromisoformat(str(data["created_at"])),
        html_url=str(data.get("html_url") or ""),
    )


def check_of(data: Json) -> CheckRunRef:
    """A check run."""
    return CheckRunRef(
        id=int(data["id"]),
        name=str(data["name"]),
        external_id=str(data.get("external_id") or ""),
        annotation_count=int(data["output"]["annotations_count"]),
        html_url=str(data.get("html_url") or ""),
    )
