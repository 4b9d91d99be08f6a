"""Accepting a regression: a label and a written reason, for this head and these regressions only."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from perfci.github.command import WRITERS, Command, Verb, parse_command
from perfci.github.port import Comment, GitHubPort, PullRequest
from perfci.model.comparison import Comparison, Reason, Row, WorkloadComparison
from perfci.model.verdict import Verdict

ACCEPTED_LABEL = "perf-regression-accepted"
_TRAILER = re.compile(r"^Perf-Regression-Accepted:[ \t]*(\S.{7,499})$", re.MULTILINE)

RegressionKey = tuple[str, str, str]
"""(workload, phase, metric)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Somebody with write permission took these regressions of this commit on themselves. To be stored by the caller.

    ``source`` names where it was written: ``comment:ID`` or ``trailer:SHA``. One source is used once: measuring again
    and finding *another* regression needs another comment.
    """

    repository: str
    pull_request: int
    head_sha: str
    regressions: tuple[RegressionKey, ...]
    reason: str
    author: str
    source: str
    accepted_at: datetime


def regression_keys(comparison: Comparison) -> tuple[RegressionKey, ...]:
    """The regressions of a comparison, sorted."""
    return tuple(
        sorted(
            (workload.workload, row.phase, row.metric)
            for workload in comparison.workloads
            for row in workload.rows
            if row.verdict is Verdict.REGRESSION
        )
    )


def apply_acceptances(comparison: Comparison, acceptances: Iterable[Acceptance], *, head_sha: str) -> Comparison:
    """The comparison with the accepted regressions of this very head marked: their rows keep numbers and effect, get
    the reason ACCEPTED and no longer fail. Every other row, and every other bad news, stays as it is."""
    accepted = {key for a in acceptances if a.head_sha == head_sha for key in a.regressions}
    if not accepted:
        return comparison

    def row(workload: WorkloadComparison, old: Row) -> Row:
        if old.verdict is Verdict.REGRESSION and (workload.workload, old.phase, old.metric) in accepted:
            return replace(old, verdict=Verdict.PASS, reason=Reason.ACCEPTED)
        return old

    return replace(
        comparison,
        workloads=tuple(
            replace(workload, rows=tuple(row(workload, old) for old in workload.rows))
            for workload in comparison.workloads
        ),
    )


def accepted_rows(comparison: Comparison) -> tuple[tuple[str, Row], ...]:
    """The rows that apply_acceptances marked, with their workload."""
    return tuple(
        (workload.workload, row)
        for workload in comparison.workloads
        for row in workload.rows
        if row.reason is Reason.ACCEPTED and row.verdict is Verdict.PASS
    )


def find_acceptance(
    port: GitHubPort,
    pull: PullRequest,
    comments: Iterable[Comment],
    comparison: Comparison,
    *,
    stored: Iterable[Acceptance],
    now: datetime,
) -> Acceptance | None:
    """A new acceptance of this head, or None.

    Asked for are both: the label on the pull request (GitHub lets only people with triage permission set it) and the
    reason, either `/perf accept FULL_HEAD_SHA reason` in a comment by an account with write permission, or the trailer
    ``Perf-Regression-Accepted: reason`` in the message of the head commit. The trailer counts only when the head is in
    the repository itself: there the pusher has write permission, while a fork's author writes what he likes and may
    find the label of an earlier head still in place.
    """
    open_keys = regression_keys(comparison)
    if not open_keys or ACCEPTED_LABEL not in pull.labels:
        return None
    used = {acceptance.source for acceptance in stored}
    writers: dict[str, bool] = {}

    def may_accept(login: str) -> bool:
        """Asked once per account, so that a stranger who writes a thousand commands costs one request."""
        if login not in writers:
            writers[login] = bool(login) and port.permission(login) in WRITERS
        return writers[login]

    def made(reason: str, author: str, source: str) -> Acceptance:
        return Acceptance(
            repository=pull.base_repository,
            pull_request=pull.number,
            head_sha=pull.head_sha,
            regressions=open_keys,
            reason=reason,
            author=author,
            source=source,
            accepted_at=now,
        )

    for comment in sorted(comments, key=lambda c: c.id, reverse=True):
        source = f"comment:{comment.id}"
        command = parse_command(comment.body)
        if not isinstance(command, Command) or command.verb is not Verb.ACCEPT or source in used:
            continue
        if command.sha == pull.head_sha and may_accept(comment.author):
            return made(command.reason, comment.author, source)
    source = f"trailer:{pull.head_sha}"
    if not pull.from_fork and source not in used:
        trailers = _TRAILER.findall(_last_paragraph(port.commit(pull.head_sha).message))
        if trailers:
            return made(trailers[-1].strip(), "", source)
    return None


def _last_paragraph(message: str) -> str:
    """Where git keeps trailers."""
    return message.replace("\r\n", "\n").strip().split("\n\n")[-1]
