"""From an event to the one pull request whose head it measured, asked of GitHub at the time of posting."""

from dataclasses import dataclass

from perfci.github.event import Event, EventKind
from perfci.github.port import GitHubPort, PullRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """``pull`` is the pull request to speak to, or None with the reason in ``why_none``. ``stale``: there is one, but
    its head has moved on since the measurement (its head is ``pull.head_sha``)."""

    pull: PullRequest | None = None
    stale: bool = False
    why_none: str = ""


def locate_pull_request(  # noqa: PLR0911  (one line per case)
    port: GitHubPort, event: Event, *, hint: int | None = None
) -> Located:
    """Find the open pull request with this head commit in this head repository.

    A number in the event is trusted, but its head is read again. Without a number (fork, or several pull requests),
    candidates are asked for by owner and branch and, failing that, by commit; only those whose head commit *and* head
    repository are the measured ones stay. When several stay (one branch proposed to two bases), ``hint`` - a number
    that may come from the bundle, so from anybody - may choose among them and nothing else.
    """
    if event.origin is EventKind.MERGE_GROUP:
        return Located(why_none="a merge queue entry has no pull request to comment on")
    if event.origin not in (EventKind.PULL_REQUEST, EventKind.ISSUE_COMMENT):
        return Located(why_none=f"a {event.origin.value} event has no pull request")
    if event.pull_request is not None:
        return _checked(port.pull_request(event.pull_request), event)
    candidates = [pull for pull in _candidates(port, event) if _same_head_repository(pull, event)]
    matching = [pull for pull in candidates if pull.head_sha == event.head_sha]
    if len(matching) > 1 and hint is not None:
        matching = [pull for pull in matching if pull.number == hint] or matching
    if len(matching) == 1:
        return _checked(port.pull_request(matching[0].number), event)
    if matching:
        numbers = ", ".join(f"#{pull.number}" for pull in matching)
        return Located(why_none=f"several pull requests have this head ({numbers}); none was named")
    if len(candidates) == 1:
        return Located(pull=candidates[0], stale=True)
    return Located(why_none="no open pull request has this head commit")


def _candidates(port: GitHubPort, event: Event) -> tuple[PullRequest, ...]:
    assert event.head_sha is not None
    found: tuple[PullRequest, ...] = ()
    if event.head_repository is not None and event.head_branch:
        owner = event.head_repository.partition("/")[0]
        found = port.open_pull_requests(head_owner=owner, head_branch=event.head_branch)
    if not any(pull.head_sha == event.head_sha for pull in found):
        found += tuple(p for p in port.pull_requests_of(event.head_sha) if p.number not in {q.number for q in found})
    return found


def _same_head_repository(pull: PullRequest, event: Event) -> bool:
    if pull.base_repository.lower() != event.repository.lower():
        return False
    if event.head_repository is None or pull.head_repository is None:
        return event.head_repository is pull.head_repository
    return pull.head_repository.lower() == event.head_repository.lower()


def _checked(pull: PullRequest, event: Event) -> Located:
    if pull.state != "open":
        return Located(why_none=f"pull request #{pull.number} is {pull.state}")
    if event.head_sha is None:
        return Located(pull=pull)
    return Located(pull=pull, stale=pull.head_sha != event.head_sha)
