"""The `/perf` comment command: who may ask for what, checked before anything runs on a GPU."""

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from perfci.github.event import FULL_SHA, Event, EventKind
from perfci.github.port import GitHubPort, PullRequest
from perfci.github.sticky import StickyState, our_comments, state_of

WRITERS = frozenset({"admin", "maintain", "write"})
"""Permissions that may start a measurement and accept a regression."""

_NAME = re.compile(r"[A-Za-z0-9*?][A-Za-z0-9._*?-]{0,99}")
MAX_REASON_CHARS = 500


class Verb(StrEnum):
    """What a command asks for."""

    RUN = "run"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """``/perf run SHA [WORKLOAD…]`` or ``/perf accept SHA REASON``."""

    verb: Verb
    sha: str
    workloads: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a command is not obeyed. ``silent``: it was no command at all."""

    why: str
    silent: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorized:
    """A command that may be obeyed, with the pull request it is about. ``measured`` is Event.order of the result that
    stands in our comment for this head (accept only): the run whose bundles are to be published again. ``complete``:
    that run measured all that it was to measure."""

    command: Command
    pull: PullRequest
    author: str
    measured: tuple[int, int] | None = None
    complete: bool = True


def parse_command(body: str) -> Command | Refusal:  # noqa: PLR0911  (one line per refusal)
    """Read the first line of a comment. The full commit id is asked for, so that what runs or is accepted is what the
    author of the comment has seen, and not what was pushed a second later."""
    first, _, rest = body.replace("\r\n", "\n").strip().partition("\n")
    words = first.split()
    if not words or words[0] != "/perf":
        return Refusal(why="not a command", silent=True)
    usage = "wanted `/perf run FULL_SHA [WORKLOAD…]` or `/perf accept FULL_SHA REASON`"
    if len(words) < 3 or words[1] not in {verb.value for verb in Verb}:
        return Refusal(why=usage)
    verb, sha, arguments = Verb(words[1]), words[2].lower(), words[3:]
    if not FULL_SHA.fullmatch(sha):
        return Refusal(why=f"{usage}; the commit id must be the full one")
    if verb is Verb.ACCEPT:
        reason = " ".join([*arguments, *rest.split()])
        if len(reason) < 8:
            return Refusal(why="an acceptance needs a reason in words")
        return Command(verb=verb, sha=sha, reason=reason[:MAX_REASON_CHARS])
    if not all(_NAME.fullmatch(name) for name in arguments):
        return Refusal(why=f"{usage}; a workload is a name or a glob")
    return Command(verb=verb, sha=sha, workloads=tuple(arguments))


def authorize(  # noqa: PLR0911  (one line per refusal)
    port: GitHubPort, event: Event, *, name: str = "perfci"
) -> Authorized | Refusal:
    """Decide about the command of an ``issue_comment`` event: it must be on an open pull request, by an account with
    write permission (asked of GitHub, not taken from the event's author_association), and name the present head.
    ``name`` is that of the check, see PublishSettings."""
    if event.kind is not EventKind.ISSUE_COMMENT or event.comment is None:
        return Refusal(why="no comment", silent=True)
    command = parse_command(event.comment.body)
    if isinstance(command, Refusal):
        return command
    if event.pull_request is None:
        return Refusal(why="the comment is on an issue, not on a pull request", silent=True)
    if not event.comment.author or port.permission(event.comment.author) not in WRITERS:
        return Refusal(why="only accounts with write permission may use /perf")
    pull = port.pull_request(event.pull_request)
    if pull.state != "open":
        return Refusal(why=f"pull request #{pull.number} is {pull.state}")
    if pull.head_sha != command.sha:
        return Refusal(why=f"the head of #{pull.number} is {pull.head_sha}, not the commit you named")
    author = event.comment.author
    if command.verb is Verb.RUN:
        return Authorized(command=command, pull=pull, author=author)
    shown = _shown(port, pull, name)
    if shown is None:
        return Refusal(why="nothing was measured for this commit yet, so there is nothing to accept")
    return Authorized(command=command, pull=pull, author=author, measured=shown.measured, complete=not shown.missing)


def _shown(port: GitHubPort, pull: PullRequest, name: str) -> StickyState | None:
    """What our comment says of this head: of several, the newest measurement."""
    states = [state_of(comment.body) for comment in our_comments(port, pull.number, name)]
    mine = [state for state in states if state is not None and state.head_sha == pull.head_sha]
    return max(mine, key=lambda state: state.measured, default=None)


def authorization_outputs(authorized: Authorized) -> str:
    """Lines for GITHUB_OUTPUT. Every value is of a closed shape (hash, number, word, glob), so none can add a line."""
    command = authorized.command
    outputs = {
        "verb": command.verb.value,
        "head_sha": authorized.pull.head_sha,
        "base_sha": authorized.pull.base_sha,
        "workloads": " ".join(command.workloads),
        "measured_run": str(authorized.measured[0]) if authorized.measured is not None else "",
    }
    return "".join(f"{name}={value}\n" for name, value in outputs.items())


def measured_event(event: Event, authorized: Authorized) -> Event:
    """The event of an authorised command with the identity of what it measures: from here on like a pull request."""
    pull = authorized.pull
    return replace(
        event,
        head_sha=pull.head_sha,
        head_repository=pull.head_repository,
        head_branch=pull.head_ref,
        base_sha=pull.base_sha,
        base_branch=pull.base_ref,
    )
