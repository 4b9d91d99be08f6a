"""What is shown on GitHub, made from a comparison by pure functions: check run, comment, status, job summary."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from perfci.github import limits
from perfci.github.acceptance import ACCEPTED_LABEL, Acceptance, accepted_rows
from perfci.github.port import Annotation, AnnotationLevel, CheckConclusion, CheckRun, Status, StatusState
from perfci.github.sticky import StickyState, marker_line
from perfci.model.comparison import Comparison
from perfci.model.finding import Confidence, Finding
from perfci.model.verdict import Verdict
from perfci.report.context import ReportContext
from perfci.report.fitting import Limit
from perfci.report.headline import comparison_headline
from perfci.report.markdown import render_markdown
from perfci.report.markdown_escape import prose
from perfci.report.names import clean, cut_utf8
from perfci.report.view import view_of
from perfci.report.wording import status_of

_CONCLUSIONS = {
    Verdict.PASS: CheckConclusion.SUCCESS,
    Verdict.IMPROVEMENT: CheckConclusion.SUCCESS,
    Verdict.INCONCLUSIVE: CheckConclusion.NEUTRAL,
    Verdict.NOT_COMPARABLE: CheckConclusion.NEUTRAL,
    Verdict.NOT_MEASURED: CheckConclusion.FAILURE,
    Verdict.REGRESSION: CheckConclusion.FAILURE,
}
_STATES: dict[Verdict, StatusState] = {
    Verdict.PASS: "success",
    Verdict.IMPROVEMENT: "success",
    Verdict.INCONCLUSIVE: "error",
    Verdict.NOT_COMPARABLE: "error",
    Verdict.NOT_MEASURED: "error",
    Verdict.REGRESSION: "failure",
}
"""A commit status knows no neutral, and unknown is not green: what could not be decided is an error there."""

MAX_ANNOTATIONS = 200
_PATH = re.compile(r"(?!/)(?!.*(?:^|/)\.{1,2}(?:/|$))[^\x00-\x1f\x7f\\]{1,500}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Everything that one comparison looks like on GitHub."""

    title: str
    conclusion: CheckConclusion
    check_summary: str
    annotations: tuple[Annotation, ...]
    status_state: StatusState
    status_description: str
    comment: str
    job_summary: str


def conclusion_of(comparison: Comparison, *, strict: bool = False) -> CheckConclusion:
    """Success only for measured and good. Accepted regressions make what would be success neutral; undecided is
    neutral, or failure when ``strict``. Not measured is a failure: a neutral check would let it through unseen."""
    conclusion = _CONCLUSIONS[comparison.verdict]
    if conclusion is CheckConclusion.SUCCESS and accepted_rows(comparison):
        return CheckConclusion.NEUTRAL
    if conclusion is CheckConclusion.NEUTRAL and strict:
        return CheckConclusion.FAILURE
    return conclusion


def show(
    comparison: Comparison,
    context: ReportContext,
    state: StickyState,
    *,
    acceptance: Acceptance | None = None,
    strict: bool = False,
    can_accept: bool = False,
) -> Shown:
    """Render all channels. ``can_accept``: there is a pull request, so say how to accept a regression."""
    view = view_of(comparison, context)
    title = clean(comparison_headline(comparison), limit=limits.CHECK_TITLE_CHARS)

    def report(limit: Limit) -> str:
        return render_markdown(view, limit=limit)

    notes = _acceptance_text(comparison, acceptance, state, can_accept=can_accept)
    return Shown(
        title=title,
        conclusion=conclusion_of(comparison, strict=strict),
        check_summary=_fit(report, Limit(characters=limits.CHECK_SUMMARY_CHARS), foot=notes),
        annotations=annotations_of(comparison),
        status_state=_STATES[comparison.verdict],
        status_description=limits.cut_line(title, limits.STATUS_DESCRIPTION_CHARS),
        comment=_fit(report, Limit(characters=limits.COMMENT_CHARS), head=marker_line(state) + "\n", foot=notes),
        job_summary=_fit(
            report,
            Limit(characters=limits.JOB_SUMMARY_BYTES, utf8_bytes=limits.JOB_SUMMARY_BYTES),
            foot=notes + "\n",
        ),
    )


def check_run(shown: Shown, *, name: str, head_sha: str, external_id: str, url: str | None, now: datetime) -> CheckRun:
    """The check run for a head commit."""
    return CheckRun(
        name=name,
        head_sha=head_sha,
        external_id=external_id,
        conclusion=shown.conclusion,
        title=shown.title,
        summary=shown.check_summary,
        annotations=shown.annotations,
        details_url=url,
        completed_at=now,
    )


def commit_status(shown: Shown, *, name: str, head_sha: str, url: str | None) -> Status:
    """The fallback for where check runs are not to be had."""
    return Status(
        sha=head_sha,
        state=shown.status_state,
        context=name,
        description=shown.status_description,
        target_url=url,
    )


def annotations_of(comparison: Comparison) -> tuple[Annotation, ...]:
    """One annotation per place and rule: findings with a location in the code, new ones first, at most 200.

    A new finding of a workload that regressed is a failure when the rule is sure, else a warning; everything else is a
    notice. A path that could lead outside the repository gets no annotation.
    """
    found: dict[tuple[str, int, str], tuple[int, Annotation]] = {}
    for workload in comparison.workloads:
        regressed = workload.tally.worst is Verdict.REGRESSION
        for finding in workload.findings:
            place = finding.location
            if place is None or place.line < 1 or not _PATH.fullmatch(place.path):
                continue
            level = _level(finding, regressed=regressed)
            annotation = Annotation(
                path=place.path,
                line=place.line,
                level=level,
                title=clean(finding.title, limit=limits.ANNOTATION_TITLE_CHARS),
                message=cut_utf8(
                    f"{clean(finding.advice, limit=2000)}\n"
                    f"[{clean(finding.rule)}, workload {clean(workload.workload)}, phase {clean(finding.phase)}]",
                    limits.ANNOTATION_MESSAGE_BYTES,
                ),
            )
            rank = list(AnnotationLevel).index(level)
            key = (place.path, place.line, finding.rule)
            if key not in found or found[key][0] < rank:
                found[key] = (rank, annotation)
    ordered = sorted(found.values(), key=lambda pair: (-pair[0], pair[1].path, pair[1].line))
    return tuple(annotation for _, annotation in ordered[:MAX_ANNOTATIONS])


def _level(finding: Finding, *, regressed: bool) -> AnnotationLevel:
    if not finding.new or not regressed:
        return AnnotationLevel.NOTICE
    return AnnotationLevel.FAILURE if finding.confidence is Confidence.HIGH else AnnotationLevel.WARNING


def _fit(report: Callable[[Limit], str], limit: Limit, *, head: str = "", foot: str = "") -> str:
    """Head, report and foot within the limit. Characters outside the basic plane are counted twice, as UTF-16 does:
    where they make the report longer than it counted itself, it is asked for again, shorter."""
    around = limits.utf16_length(head + foot)
    room = limit.characters - around
    used_bytes = len((head + foot).encode("utf-8", "replace"))
    while True:
        left = None if limit.utf8_bytes is None else limit.utf8_bytes - used_bytes
        body = report(Limit(characters=room, utf8_bytes=left))
        excess = limits.utf16_length(body) + around - limit.characters
        if excess <= 0:
            return head + body + foot
        room -= excess


def _acceptance_text(
    comparison: Comparison, acceptance: Acceptance | None, state: StickyState, *, can_accept: bool
) -> str:
    parts = []
    if acceptance is not None:
        who = f" by {prose(clean(acceptance.author))}" if acceptance.author else ""
        parts.append(f"Accepted{who}: {prose(clean(acceptance.reason, limit=500))}")
    regressed = any(row.verdict is Verdict.REGRESSION for workload in comparison.workloads for row in workload.rows)
    if regressed and can_accept:
        parts.append(
            f"To accept this regression for this commit, set the label `{ACCEPTED_LABEL}` and comment "
            f"`/perf accept {state.head_sha} REASON` (write permission needed)."
        )
    return "".join(f"\n\n{part}" for part in parts)


def digest_rows(comparison: Comparison) -> list[str]:
    """What quiet mode compares: every check with its status, in a stable order."""
    return sorted(
        f"{workload.workload}\t{row.phase}\t{row.metric}\t{status_of(row).value}"
        for workload in comparison.workloads
        for row in workload.rows
        if row.gated
    ) + [f"{workload.workload}\t{workload.verdict_override}" for workload in comparison.workloads]
