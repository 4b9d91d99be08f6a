"""``perfci publish``: from the bundles of a measuring run to a stored, judged and posted comparison.

The event of GitHub says what was measured; bundles are hostile until they agree with it. Runs of pull requests are
compared within their bundle and never become history: only code of the default branch does (``Event.trusted_code``).
"""

from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from perfci import __version__
from perfci.bundle import Bundle, BundleError, ExpectedIdentity
from perfci.errors import BackendError, ExitCode, MeasurementError, PerfciError, UsageError
from perfci.github.acceptance import Acceptance
from perfci.github.address import Address
from perfci.github.command import Authorized, Refusal, Verb, authorize, measured_event
from perfci.github.event import Event, EventKind
from perfci.github.port import GitHubPort
from perfci.github.publish import PublishOutcome, PublishSettings, nothing_measured, publish
from perfci.model.comparison import Comparison
from perfci.model.history import Acknowledgement
from perfci.model.run import Note
from perfci.pipeline.compare_bundle import compare_bundle
from perfci.pipeline.progress import Progress
from perfci.pipeline.received import receive
from perfci.pipeline.stored import NO_DATABASE
from perfci.pipeline.workspace import Workspace
from perfci.report.context import Link, ReportContext
from perfci.store.store import Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRequest:
    """What ``perfci publish`` was asked. ``ended`` is how measuring ended where the event does not say it: the
    ``needs.JOB.result`` of the measuring job. ``links`` are shown with those to the measuring run."""

    bundles: tuple[Path, ...] = ()
    patterns: tuple[str, ...] = ()
    preset: str | None = None
    links: tuple[Link, ...] = ()
    ended: str = ""
    settings: PublishSettings = field(default_factory=PublishSettings)
    summary: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What came of it. ``problems`` are all things that did not work, the verdict apart; ``exit_code`` is the
    verdict's, or BACKEND when that is OK and there are problems."""

    outcome: PublishOutcome
    context: ReportContext
    problems: tuple[str, ...]

    @property
    def exit_code(self) -> ExitCode:
        """See docs/exit-codes.md."""
        code = self.outcome.exit_code
        return ExitCode.BACKEND if code is ExitCode.OK and self.problems else code


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is published: the event with the identity of what was measured, and the run whose bundles these are.
    ``again``: they were published before, and are now with an acceptance. ``patterns`` select the workloads that must
    be there (None: not known)."""

    event: Event
    run: tuple[int, int]
    again: bool = False
    patterns: tuple[str, ...] | None = ()


def subject_of(event: Event, port: GitHubPort | None, request: PublishRequest) -> Subject | None:
    """What this job is to publish; None when a comment is no command. Raises UsageError for a command that is refused,
    or that nobody can be asked about (no ``port``)."""
    if event.kind is EventKind.ISSUE_COMMENT:
        if port is None:
            raise UsageError(
                "a comment needs a GitHub token: it must be asked who wrote it and what the head is",
                todo="set GITHUB_TOKEN on the publishing step",
            )
        allowed = authorized(event, port, name=request.settings.name)
        if allowed is None:
            return None
        event = measured_event(event, allowed)
        if allowed.measured is not None:
            complete = event if allowed.complete else replace(event, conclusion="incomplete")
            return Subject(event=complete, run=allowed.measured, again=True, patterns=None)
        # Workloads that the command left out are missing all the same: the check of this head speaks about all.
        return Subject(event=_ended(event, request.ended), run=event.order, patterns=request.patterns)
    return Subject(event=_ended(event, request.ended), run=event.order, patterns=request.patterns)


def authorized(event: Event, port: GitHubPort, *, name: str) -> Authorized | None:
    """The command of a comment; None when it is none at all. Raises UsageError for a command that is refused."""
    answer = authorize(port, event, name=name)
    if isinstance(answer, Authorized):
        return answer
    if answer.silent:
        return None
    raise _refused(answer)


def _refused(refusal: Refusal) -> UsageError:
    verbs = " or ".join(f"/perf {verb.value}" for verb in Verb)
    return UsageError(f"the command was refused: {refusal.why}", todo=f"{verbs}: see docs/github.md")


def _ended(event: Event, ended: str) -> Event:
    return event if event.conclusion is not None or not ended else replace(event, conclusion=ended)


def run_publish(
    workspace: Workspace,
    subject: Subject,
    port: GitHubPort | None,
    request: PublishRequest,
    *,
    address: Address,
    now: datetime,
    progress: Progress,
) -> Published:
    """Verify the bundles, store what may be stored, judge, post.

    A bundle that is refused is posted as NOT_MEASURED with the reason, and nothing of it is stored. A database that
    cannot be reached is a problem, no end: the sides of a pull request are in its bundle. Raises UsageError for a
    wrong configuration, MeasurementError when an accepted measurement has no bundles any more (what is posted stays).
    """
    with ExitStack() as stack:
        try:
            store = stack.enter_context(open_store(workspace.project.database_url))
            case = _Case(workspace=workspace, store=store, subject=subject, request=request)
        except BackendError as error:
            store = stack.enter_context(open_store(NO_DATABASE))
            case = _Case(workspace=workspace, store=store, subject=subject, request=request, memory=True)
            case.problem(error)
        comparison = case.compared(now)
        head, base = comparison.candidate.label, comparison.baseline.label
        context = ReportContext(
            perfci_version=__version__,
            generated_at=now,
            reproduce=(f"perfci compare {base}..{head} --measure",) if comparison.baseline.commit else (),
            links=(*links_of(subject, address), *request.links),
        )
        outcome = publish(
            comparison,
            subject.event,
            port,
            context=context,
            now=now,
            settings=_with_details(request.settings, context),
            stored=case.acceptances(),
            hint=case.hint,
            measured=subject.run,
            summary_path=request.summary,
        )
        case.remember(outcome, now)
    for text in (*outcome.failures, *case.problems):
        progress.line(f"perfci: {text}")
    return Published(outcome=outcome, context=context, problems=(*outcome.failures, *case.problems))


def links_of(subject: Subject, address: Address) -> tuple[Link, ...]:
    """Where the log of the measuring run is, and what it uploaded: reports, and profiles when they are kept."""
    url = f"{address.server_url}/{subject.event.repository}/actions/runs/{subject.run[0]}"
    return (Link(title="measuring run", url=url), Link(title="reports and profiles", url=f"{url}#artifacts"))


def _with_details(settings: PublishSettings, context: ReportContext) -> PublishSettings:
    return settings if settings.details_url else replace(settings, details_url=context.links[0].url)


@dataclass(slots=True, kw_only=True)
class _Case:
    """One publication under way. ``memory``: the database cannot be reached, an empty one in memory stands for it."""

    workspace: Workspace
    store: Store
    subject: Subject
    request: PublishRequest
    memory: bool = False
    hint: int | None = None
    problems: list[str] = field(default_factory=list)

    def problem(self, error: PerfciError) -> None:
        """Something that must be told, but does not change the verdict."""
        self.problems.append(str(error))

    def compared(self, now: datetime) -> Comparison:
        """The comparison to post, whatever came."""
        event = self.subject.event
        run = f"the measuring workflow run {self.subject.run[0]}"
        if not self.request.bundles:
            if self.subject.again:
                raise MeasurementError(
                    f"{run} has no bundles any more, so its result cannot be published again",
                    todo="measure again: /perf run and the commit",
                )
            return nothing_measured(event, f"{run} left no bundle; its log says why")
        assert event.head_sha is not None
        number, attempt = self.subject.run
        expected = ExpectedIdentity(
            repository=event.repository, head_sha=event.head_sha, run_id=number, run_attempt=attempt
        )
        try:
            bundle = receive(self.request.bundles, expected, now=now)
        except BundleError as error:
            if self.subject.again:
                raise  # what stands on the pull request was good: leave it
            self.problem(error)
            return nothing_measured(event, f"the bundle of {run} was refused: {error.seen}")
        self.hint = bundle.identity.pull_request
        comparison = self._judged(bundle)
        if event.trusted_code:
            self._extend_history(bundle, event.head_sha)
        return comparison

    def acceptances(self) -> tuple[Acceptance, ...]:
        """Regressions of this head that somebody took on themselves earlier."""
        event = self.subject.event
        if event.head_sha is None:
            return ()
        try:
            stored = self.store.acknowledgements(repository=event.repository, head_sha=event.head_sha)
        except BackendError as error:
            self.problem(error)
            return ()
        return tuple(
            Acceptance(
                repository=one.repository,
                pull_request=one.pull_request or 0,
                head_sha=one.head_sha,
                regressions=one.regressions,
                reason=one.reason,
                author=one.author,
                source=one.source,
                accepted_at=one.accepted_at,
            )
            for one in stored
        )

    def remember(self, outcome: PublishOutcome, now: datetime) -> None:
        """Store the comparison as it was shown, and a new acceptance."""
        if self.memory:
            return
        try:
            self.store.add_comparison(outcome.comparison, stored_at=now)
            new = outcome.acceptance
            if new is not None:
                self.store.acknowledge(
                    Acknowledgement(
                        repository=new.repository,
                        pull_request=new.pull_request,
                        head_sha=new.head_sha,
                        regressions=new.regressions,
                        reason=new.reason,
                        author=new.author,
                        source=new.source,
                        accepted_at=new.accepted_at,
                    )
                )
        except (BackendError, MeasurementError) as error:
            self.problem(error)

    def _extend_history(self, bundle: Bundle, head_sha: str) -> None:
        if self.memory:
            return
        try:
            self.store.add_runs(run for run in bundle.runs if run.revision.commit == head_sha)
        except (BackendError, MeasurementError) as error:
            self.problem(error)

    def _judged(self, bundle: Bundle) -> Comparison:
        if not self.memory:
            try:
                return self._judged_with(self.store, bundle, with_history=self.subject.event.trusted_code)
            except BackendError as error:
                self.problem(error)
        with open_store(NO_DATABASE) as empty:
            comparison = self._judged_with(empty, bundle, with_history=False)
        text = "the database could not be reached: noise floors, history and earlier acceptances are not known"
        return replace(comparison, notes=(*comparison.notes, Note(code="database-unreachable", text=text)))

    def _judged_with(self, store: Store, bundle: Bundle, *, with_history: bool) -> Comparison:
        patterns = self.subject.patterns
        return compare_bundle(
            self.workspace,
            store,
            bundle,
            with_history=with_history,
            patterns=patterns or (),
            preset=self.request.preset,
            must_hold_all=patterns is not None,
        )
