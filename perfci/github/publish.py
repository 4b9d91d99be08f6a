"""Post a comparison to GitHub, and say with which exit code the command ends. The verdict decides, posting does not."""

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from perfci.errors import BackendError, ExitCode
from perfci.github import limits
from perfci.github.acceptance import (
    ACCEPTED_LABEL,
    Acceptance,
    apply_acceptances,
    find_acceptance,
)
from perfci.github.event import Event
from perfci.github.locate import Located, locate_pull_request
from perfci.github.port import CheckConclusion, CheckRun, GitHubPort, GitHubRefused
from perfci.github.render import Shown, check_run, commit_status, digest_rows, show
from perfci.github.sticky import StickyState, Upsert, upsert_comment
from perfci.model.comparison import Comparison, WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.run import Note, Revision
from perfci.model.verdict import Verdict, exit_code_of
from perfci.report.context import ReportContext
from perfci.report.names import cut_utf8

_EXTERNAL_ID = re.compile(r"perfci:(\d{1,20})\.(\d{1,9})")
_FINISHED_WELL = (None, "success")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSettings:
    """``name`` is the name of the check and of the sticky comment: two set-ups in one repository need two names.
    ``quiet``: comment only when there is something new to say. ``strict``: what could not be decided fails the check.
    ``details_url`` is where the check's "Details" link leads."""

    name: str = "perfci"
    quiet: bool = False
    strict: bool = False
    comment: bool = True
    details_url: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOutcome:
    """What was posted. ``comparison`` is the one that was shown, acceptances applied; ``acceptance`` a new one to be
    stored; ``dropped`` why nothing was posted although all went well; ``failures`` what could not be posted."""

    comparison: Comparison
    exit_code: ExitCode
    conclusion: CheckConclusion
    posted: tuple[str, ...]
    failures: tuple[str, ...] = ()
    dropped: str = ""
    acceptance: Acceptance | None = None
    pull_request: int | None = None


def publish(
    comparison: Comparison,
    event: Event,
    port: GitHubPort | None,
    *,
    context: ReportContext,
    now: datetime,
    settings: PublishSettings | None = None,
    stored: Iterable[Acceptance] = (),
    hint: int | None = None,
    measured: tuple[int, int] | None = None,
    summary_path: Path | None = None,
) -> PublishOutcome:
    """Show the comparison on the head commit of the event.

    The pull request is located and its head read; then the job summary is written, always, and before anything is
    posted. When the head has moved on, nothing more happens. Else follow the check run (a commit status where check
    runs are refused) and, after the head was read once more, the sticky comment. Without a port (no usable token) there
    is the summary alone. ``stored`` are acceptances kept from earlier; ``hint`` is the pull request
    number of a bundle, see locate_pull_request. ``measured`` names the run whose bundles these are, when it is not the
    run of the event (Authorized.measured).

    Never raises BackendError: what could not be posted is in ``failures``. The exit code is the verdict's; only when
    that is 0 and something could not be posted it is 6.
    """
    settings = settings or PublishSettings()
    stored = tuple(stored)
    comparison = mark_incomplete(comparison, event)
    post = _Posting(event=event, port=port, settings=settings)
    located = post.locate(hint)
    comparison, acceptance, reason = post.accept(comparison, located, stored, now)
    state = StickyState(
        name=settings.name,
        head_sha=event.head_sha or comparison.candidate.commit or "0" * 40,
        order=event.order,
        measured=measured or event.order,
        digest=hashlib.sha256("\n".join(digest_rows(comparison)).encode()).hexdigest()[:16],
        green=comparison.verdict in (Verdict.PASS, Verdict.IMPROVEMENT) and reason is None,
        missing=comparison.verdict is Verdict.NOT_MEASURED or comparison.tally.count(Verdict.NOT_MEASURED) > 0,
    )
    shown = show(
        comparison,
        context,
        state,
        acceptance=reason,
        strict=settings.strict,
        can_accept=located.pull is not None,
    )
    if summary_path is not None:
        post.summary(shown, summary_path)
    if located.stale:
        assert located.pull is not None
        post.dropped = f"the head of #{located.pull.number} has moved on to {located.pull.head_sha}"
    elif event.head_sha is None:
        post.failures.append("the event names no head commit")
    elif port is None:
        post.failures.append("GitHub cannot be told: there is no usable token")
    else:
        post.verdict(
            check_run(
                shown,
                name=settings.name,
                head_sha=event.head_sha,
                external_id=f"perfci:{event.order[0]}.{event.order[1]}",
                url=settings.details_url,
                now=now,
            ),
            shown,
        )
        if settings.comment and located.pull is not None and not post.dropped:
            post.comment(located.pull.number, shown, state)
    return PublishOutcome(
        comparison=comparison,
        exit_code=exit_code(comparison.verdict, could_post=not post.failures),
        conclusion=shown.conclusion,
        posted=tuple(post.posted),
        failures=tuple(post.failures),
        dropped=post.dropped,
        acceptance=acceptance,
        pull_request=located.pull.number if located.pull is not None else None,
    )


def exit_code(verdict: Verdict, *, could_post: bool) -> ExitCode:
    """The verdict's exit code; 6 only when GitHub could not be told and there is nothing worse to report."""
    code = exit_code_of(verdict)
    return ExitCode.BACKEND if code is ExitCode.OK and not could_post else code


def nothing_measured(event: Event, reason: str) -> Comparison:
    """The comparison of a measuring run that left no bundle: NOT_MEASURED, with the reason."""
    head = event.head_sha
    base = event.base_sha
    return Comparison(
        baseline=Revision(label=(base or event.base_branch or "baseline")[:40], commit=base),
        candidate=Revision(label=(head or "candidate")[:40], commit=head),
        workloads=(),
        error_rate=0.01,
        notes=(Note(code="nothing-measured", text=reason),),
    )


def mark_incomplete(comparison: Comparison, event: Event) -> Comparison:
    """A measuring run that did not end well has left something out, and the part that is missing is not green: add it
    as NOT_MEASURED. Without effect when the run succeeded or the comparison already says so."""
    if event.conclusion in _FINISHED_WELL or comparison.tally.count(Verdict.NOT_MEASURED):
        return comparison
    if not comparison.workloads:
        return comparison
    nothing = Environment()
    text = f"the measuring workflow run ended with {event.conclusion!r}: some of it is missing here"
    missing = WorkloadComparison(
        workload="(not finished)",
        rows=(),
        baseline_environment=nothing,
        candidate_environment=nothing,
        baseline_launches=0,
        candidate_launches=0,
        notes=(Note(code="measuring-run-failed", text=text),),
        verdict_override=Verdict.NOT_MEASURED,
    )
    return replace(comparison, workloads=(*comparison.workloads, missing))


class _Posting:
    """One publication under way: each step notes what it posted and what it could not."""

    def __init__(self, *, event: Event, port: GitHubPort | None, settings: PublishSettings) -> None:
        self._event = event
        self._given_port = port
        self._settings = settings
        self.posted: list[str] = []
        self.failures: list[str] = []
        self.dropped = ""

    @property
    def _port(self) -> GitHubPort:
        assert self._given_port is not None
        return self._given_port

    def locate(self, hint: int | None) -> Located:
        if self._given_port is None:
            return Located(why_none="there is no access to GitHub")
        try:
            return locate_pull_request(self._port, self._event, hint=hint)
        except BackendError as error:
            self.failures.append(error.seen)
            return Located(why_none="the pull request could not be looked up")

    def accept(
        self, comparison: Comparison, located: Located, stored: tuple[Acceptance, ...], now: datetime
    ) -> tuple[Comparison, Acceptance | None, Acceptance | None]:
        """The comparison with acceptances applied, a new acceptance if there is one, and the one to be shown."""
        head = self._event.head_sha
        if head is None:
            return comparison, None, None
        before = comparison
        comparison = apply_acceptances(comparison, stored, head_sha=head)
        new = None
        pull = located.pull
        if pull is not None and not located.stale and ACCEPTED_LABEL in pull.labels:
            try:
                new = find_acceptance(
                    self._port, pull, self._port.comments(pull.number), comparison, stored=stored, now=now
                )
            except BackendError as error:
                self.failures.append(error.seen)
        if new is not None:
            return apply_acceptances(comparison, (new,), head_sha=head), new, new
        used = [acceptance for acceptance in stored if acceptance.head_sha == head]
        return comparison, None, used[-1] if used and comparison is not before else None

    def summary(self, shown: Shown, path: Path) -> None:
        """Append to the step's summary, within the megabyte that GitHub allows the file."""
        try:
            used = path.stat().st_size if path.exists() else 0
            text = cut_utf8(shown.job_summary, max(limits.JOB_SUMMARY_BYTES - used, 0))
            with path.open("ab") as file:
                file.write(text.encode("utf-8", "replace"))
                file.flush()
                os.fsync(file.fileno())
            self.posted.append("job summary")
        except OSError as error:
            self.failures.append(f"cannot write the job summary: {error.strerror}")

    def verdict(self, check: CheckRun, shown: Shown) -> None:
        """The check run, or a commit status where GitHub refuses check runs."""
        try:
            self._upsert_check(check)
        except GitHubRefused as refused:
            status = commit_status(
                shown, name=self._settings.name, head_sha=check.head_sha, url=self._settings.details_url
            )
            try:
                self._port.create_status(status)
                self.posted.append("commit status")
            except BackendError as error:
                self.failures += [refused.seen, error.seen]
        except BackendError as error:
            self.failures.append(error.seen)

    def _upsert_check(self, check: CheckRun) -> None:
        """One check run per measuring run: publishing it again updates it. A newer run of the same commit makes a new
        one, which GitHub shows instead; annotations of the old one would otherwise stay. An older result is dropped."""
        mine = {}
        for ref in self._port.check_runs(check.head_sha, name=check.name):
            found = _EXTERNAL_ID.fullmatch(ref.external_id)
            if found is not None:
                mine[int(found[1]), int(found[2])] = ref
        if mine and max(mine) > self._event.order:
            self.dropped = f"run {max(mine)[0]} has already posted a newer result for this commit"
        elif self._event.order in mine:
            self._port.update_check_run(mine[self._event.order].id, check)
            self.posted.append("check run")
        else:
            self._port.create_check_run(check)
            self.posted.append("check run")

    def comment(self, number: int, shown: Shown, state: StickyState) -> None:
        """The sticky comment, when the head is still the one that was measured."""
        try:
            pull = self._port.pull_request(number)
            if pull.head_sha != state.head_sha:
                self.dropped = f"the head of #{number} has moved on to {pull.head_sha}"
                return
            done = upsert_comment(self._port, number, shown.comment, state, quiet=self._settings.quiet)
            if done is Upsert.SUPERSEDED:
                self.dropped = "a newer result for this commit is already in the comment"
            elif done is not Upsert.UNCHANGED:
                self.posted.append("comment")
        except BackendError as error:
            self.failures.append(error.seen)
