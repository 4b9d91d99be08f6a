"""One comment per pull request, updated in place: found by marker *and* author, ordered by measuring run."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from perfci.github.event import FULL_SHA
from perfci.github.port import Comment, GitHubPort, GitHubRefused

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._/-]{0,59}")
_MARKER = re.compile(r"<!-- perfci (\{[^\r\n]{1,400}\}) -->")


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyState:
    """What a comment remembers in its first, invisible line. ``order`` is Event.order of the result, ``measured`` the
    run whose bundles it came from (another one when it was published again); ``digest`` stands for the verdicts of all
    checks; ``green``: nothing in it asks for attention; ``missing``: something was not measured, so the bundles of that
    run do not hold all that was asked for."""

    name: str
    head_sha: str
    order: tuple[int, int]
    measured: tuple[int, int]
    digest: str
    green: bool
    missing: bool = False

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ValueError(f"{self.name!r} cannot name a check")


def is_name(text: str) -> bool:
    """True for what can name a check: it becomes part of a hidden HTML comment."""
    return bool(_NAME.fullmatch(text)) and "--" not in text


class Upsert(StrEnum):
    """What became of the comment."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    """Quiet mode: nothing new to say."""
    SUPERSEDED = "superseded"
    """A newer result of the same head stands there already."""


def marker_line(state: StickyState) -> str:
    """The first line of the body. JSON of plain characters only: nothing in it can end the HTML comment."""
    fields = {
        "name": state.name,
        "head": state.head_sha,
        "order": state.order,
        "measured": state.measured,
        "digest": state.digest,
        "green": state.green,
        **({"missing": True} if state.missing else {}),
    }
    return f"<!-- perfci {json.dumps(fields, separators=(',', ':'))} -->"


def state_of(body: str) -> StickyState | None:
    """The state in the first line of a body, or None when there is none or it is damaged."""
    found = _MARKER.fullmatch(body.partition("\n")[0].strip())
    if found is None:
        return None
    try:
        fields = json.loads(found.group(1))
        if not FULL_SHA.fullmatch(fields["head"]):
            return None
        return StickyState(
            name=str(fields["name"]),
            head_sha=fields["head"],
            order=_pair(fields["order"]),
            measured=_pair(fields["measured"]),
            digest=str(fields["digest"]),
            green=fields["green"] is True,
            missing=fields.get("missing") is True,
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _pair(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(n, int) for n in value):
        raise ValueError("wanted two numbers")
    return value[0], value[1]


def upsert_comment(port: GitHubPort, number: int, body: str, state: StickyState, *, quiet: bool) -> Upsert:
    """Create or update the one comment.

    Comments of other accounts are ignored, whatever they hold. When a newer result of the same head is there, ours is
    dropped. When two publishers created at once, both see both comments afterwards, and both keep the oldest comment
    with the newest result and delete the others: the outcome does not depend on who is faster.
    """
    mine = our_comments(port, number, state.name)
    if mine:
        return _update(port, number, mine, body, state, quiet=quiet)
    if quiet and state.green:
        return Upsert.UNCHANGED
    made = port.create_comment(number, body, marker=marker_line(state))
    after = our_comments(port, number, state.name)
    if [comment.id for comment in after] != [made.id] and after:
        return _settle(port, after, body, state, made)
    return Upsert.CREATED


def our_comments(port: GitHubPort, number: int, name: str) -> list[Comment]:
    """Our comments on a pull request, oldest first: by our account, with our marker and this name in the first line."""
    login = port.login().lower()
    found = [
        comment
        for comment in port.comments(number)
        if comment.author.lower() == login and (seen := state_of(comment.body)) is not None and seen.name == name
    ]
    return sorted(found, key=lambda comment: comment.id)


def _order(comment: Comment) -> tuple[int, int]:
    state = state_of(comment.body)
    return state.order if state is not None else (0, 0)


def _newest(comments: Sequence[Comment], head_sha: str) -> Comment | None:
    same = [c for c in comments if (s := state_of(c.body)) is not None and s.head_sha == head_sha]
    return max(same, key=_order, default=None)


def _update(
    port: GitHubPort, number: int, mine: list[Comment], body: str, state: StickyState, *, quiet: bool
) -> Upsert:
    keep, others = mine[0], mine[1:]
    newest = _newest(mine, state.head_sha)
    if newest is not None and _order(newest) > state.order:
        if newest.id != keep.id:
            port.edit_comment(keep.id, newest.body)
        _delete(port, others)
        return Upsert.SUPERSEDED
    _delete(port, others)
    before = state_of(keep.body)
    if quiet and before is not None and before.green and state.green and before.digest == state.digest:
        return Upsert.UNCHANGED
    try:
        if keep.body != body:
            port.edit_comment(keep.id, body)
    except GitHubRefused as refused:
        if refused.status not in (404, 410):
            raise
        port.create_comment(number, body, marker=marker_line(state))  # somebody has just deleted it
        return Upsert.CREATED
    return Upsert.UPDATED


def _settle(port: GitHubPort, after: list[Comment], body: str, state: StickyState, made: Comment) -> Upsert:
    newest = _newest(after, state.head_sha)
    superseded = newest is not None and _order(newest) > state.order
    wanted = newest.body if newest is not None and superseded else body
    keep = after[0]
    if keep.body != wanted:
        port.edit_comment(keep.id, wanted)
    _delete(port, after[1:])
    if superseded:
        return Upsert.SUPERSEDED
    return Upsert.CREATED if keep.id == made.id else Upsert.UPDATED


def _delete(port: GitHubPort, comments: Sequence[Comment]) -> None:
    for comment in comments:
        try:
            port.delete_comment(comment.id)
        except GitHubRefused:
            continue  # a second comment is ugly, but no reason to lose the verdict
