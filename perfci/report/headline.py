"""The verdict in one sentence: what, where, by how much, how sure, why."""

import re
from collections.abc import Sequence
from itertools import takewhile

from perfci.model.comparison import Comparison, Reason, Row, WorkloadComparison
from perfci.model.environment import ENVIRONMENT_FIELDS, KeyDifference
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import METRICS, STEP, Kind, Unit
from perfci.model.verdict import Tally, Verdict
from perfci.report.names import clean
from perfci.report.quantities import (
    NOT_COMPUTABLE,
    change_text,
    confidence_text,
    delta_text,
    interval_text,
    pair_texts,
    ratio_text,
    value_text,
)
from perfci.report.ranking import by_importance, main_phase, phases_on_one_side, worsening
from perfci.report.wording import REASON_TEXTS, Status, metric_title, plural, status_of

NAME = 40
"""Names in a sentence are cut shorter than in tables."""

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b")
"""The last line of a Python traceback."""
_ABOUT_THE_LOG = ("log: ", "its last lines:", "the workload printed nothing", "it is empty")
"""What an error of a launch says between its first line and the log that it quotes."""
_PAST = {Verdict.REGRESSION: "regressed", Verdict.IMPROVEMENT: "improved"}


def workload_status(workload: WorkloadComparison) -> Status:
    """The worst of a workload's rows and its override. Agrees with its verdict, save that ACCEPTED is told apart."""
    shown = [status_of(row) for row in workload.rows if row.gated]
    if workload.verdict_override is not None:
        shown.append(Status(workload.verdict_override.value))
    return max(shown, key=lambda status: status.severity, default=Status.NOT_MEASURED)


def comparison_status(comparison: Comparison) -> Status:
    """The worst of all workloads; NOT_MEASURED when there is none."""
    shown = [workload_status(workload) for workload in comparison.workloads]
    return max(shown, key=lambda status: status.severity, default=Status.NOT_MEASURED)


def comparison_headline(comparison: Comparison) -> str:
    """One sentence for the whole comparison. Only the worst workload is spoken about, with its name when there are
    several."""
    status = comparison_status(comparison)
    if not comparison.workloads:
        return "Not measured: no workload was compared."
    if status is Status.PASS:
        return _passed_sentence(comparison.workloads)
    worst = [workload for workload in comparison.workloads if workload_status(workload) is status]
    chosen = max(worst, key=_badness)
    where = f"{clean(chosen.workload, limit=NAME)}: " if len(comparison.workloads) > 1 else ""
    return _sentence(chosen, status, comparison.tally, where)


def workload_headline(workload: WorkloadComparison) -> str:
    """One sentence for one workload."""
    if workload_status(workload) is Status.PASS:
        return _passed_sentence((workload,))
    return _sentence(workload, workload_status(workload), workload.tally, "")


def _badness(workload: WorkloadComparison) -> float:
    first = _first(workload, workload_status(workload))
    return worsening(first) if first is not None else 0.0


def _first(workload: WorkloadComparison, status: Status) -> Row | None:
    rows = [row for row in workload.rows if status_of(row) is status]
    return by_importance(rows)[0] if rows else None


def _sentence(workload: WorkloadComparison, status: Status, tally: Tally, where: str) -> str:
    parts = {
        Status.REGRESSION: _changed,
        Status.IMPROVEMENT: _changed,
        Status.ACCEPTED: _changed,
        Status.INCONCLUSIVE: _undecided,
        Status.NOT_COMPARABLE: _not_comparable,
        Status.NOT_MEASURED: _not_measured,
    }[status](workload, status)
    lead = "Accepted regression" if status is Status.ACCEPTED else status.word.capitalize()
    return f"{lead}: {where}{'; '.join([*parts, *_others(status, tally)])}."


def _others(status: Status, tally: Tally) -> list[str]:
    """The counts of the other verdicts, so that no bad news hides behind worse; and how many share the worst."""
    said = []
    total = sum(count for _, count in tally.counts)
    if status in (Status.REGRESSION, Status.IMPROVEMENT) and tally.count(Verdict(status.value)) > 1:
        said.append(f"{tally.count(Verdict(status.value))} of {plural(total, 'check')} {_PAST[Verdict(status.value)]}")
    rest = [
        f"{count} {_PAST.get(verdict, Status(verdict.value).word)}"
        for verdict, count in tally.counts
        if verdict is not Verdict.PASS and verdict.value != status.value
    ]
    return [*said, f"also {', '.join(rest)}"] if rest else said


def row_phrase(row: Row, *, budget: bool = True) -> str:
    """``backward GPU busy time +12.3% (99% interval +11.8 … +12.9%, budget 2%)``."""
    subject = f"{clean(row.phase, limit=NAME)} {metric_title(row.metric)}"
    before, after = row.baseline.location, row.candidate.location
    unit = METRICS[row.metric].unit
    if before is None and after is None:
        return f"{subject} was measured on neither side"
    if before is None or after is None:
        return f"{subject}: {REASON_TEXTS[row.reason]}"
    left, right = pair_texts(before, after, unit)
    if row.effect is None:
        return f"{subject} went from {left} to {right} (relative change {NOT_COMPUTABLE})"
    interval = interval_text(row.effect)
    if not interval:
        per_step = " per step" if row.kind is Kind.EXACT else ""
        return f"{subject} went from {left} to {right}{per_step} ({delta_text(before, after, unit)}, exact)"
    detail = (
        "no interval" if interval == "unbounded" else f"{confidence_text(row.effect.confidence)} interval {interval}"
    )
    if budget and row.budget_ratio is not None:
        detail += f", budget {ratio_text(row.budget_ratio)}"
    return f"{subject} {change_text(row.effect)} ({detail})"


def _changed(workload: WorkloadComparison, status: Status) -> list[str]:
    row = _first(workload, status)
    if row is None:
        return [_override_reason(workload, REASON_TEXTS.get(workload.rows[0].reason, "") if workload.rows else "")]
    parts = [row_phrase(row)]
    phase = main_phase(workload, row) if status is not Status.IMPROVEMENT else None
    if phase is not None:
        new = "" if phase.baseline.location is not None else "the new phase "
        delta = delta_text(phase.baseline.location or 0.0, phase.candidate.location or 0.0, Unit.NS)
        parts.append(f"most of it in {new}{clean(phase.phase, limit=NAME)} ({delta} {metric_title(phase.metric)})")
    parts += _phases_on_one_side(workload, said=phase)
    cause = _cause(workload) if status is not Status.IMPROVEMENT else None
    if cause is not None:
        parts.append(f"likely cause: {clean(cause.title, limit=120).rstrip('.')}")
    return parts


def _phases_on_one_side(workload: WorkloadComparison, *, said: Row | None = None) -> list[str]:
    """``the phase log is new (20.4 ms per step)``: the largest phase that only one side marks, each way; a renamed
    phase is both. ``said`` was spoken about already."""
    rows = [row for row in phases_on_one_side(workload) if said is None or row.phase != said.phase]
    parts = []
    for word, chosen in (
        ("is new", [row for row in rows if row.baseline.location is None]),
        ("is gone", [row for row in rows if row.candidate.location is None]),
    ):
        if not chosen:
            continue
        row = chosen[0]
        time = value_text(row.candidate.location or row.baseline.location or 0.0, Unit.NS)
        more = f", and {plural(len(chosen) - 1, 'more phase')}" if len(chosen) > 1 else ""
        parts.append(f"the phase {clean(row.phase, limit=NAME)} {word} ({time} per step){more}")
    return parts


def _cause(workload: WorkloadComparison) -> Finding | None:
    order = list(Confidence)
    telling = [finding for finding in workload.findings if finding.new or finding.worsened]
    return min(telling, key=lambda finding: order.index(finding.confidence), default=None)


def _passed_sentence(workloads: Sequence[WorkloadComparison]) -> str:
    """How much was checked, the largest change seen, and what could have been seen: a green with its limits."""
    named = [(workload, row) for workload in workloads for row in workload.rows if row.gated]

    def where(workload: WorkloadComparison) -> str:
        return f"{clean(workload.workload, limit=NAME)}: " if len(workloads) > 1 else ""

    subject = clean(workloads[0].workload, limit=NAME) if len(workloads) == 1 else plural(len(workloads), "workload")
    parts = [f"{plural(len(named), 'check')} passed in {subject}"]
    noisy = [(workload, row) for workload, row in named if row.effect is not None and interval_text(row.effect)]
    if noisy:
        workload, row = max(noisy, key=lambda pair: abs(worsening(pair[1])))
        parts.append(f"largest change {where(workload)}{row_phrase(row)}")
    seen = [(workload, row) for workload, row in noisy if row.mde_ratio is not None]
    if seen:
        steps = [pair for pair in seen if pair[1].phase == STEP and METRICS[pair[1].metric].unit is Unit.NS]
        workload, row = max(steps or seen, key=lambda pair: pair[1].mde_ratio or 0.0)
        parts.append(
            f"a change of {ratio_text(row.mde_ratio)} in {where(workload)}{clean(row.phase, limit=NAME)} "
            f"{metric_title(row.metric)} would have been seen"
        )
    if not noisy:
        parts.append("all of them exact counts")
    for workload in workloads:
        parts += [f"{where(workload)}{text}" for text in _phases_on_one_side(workload)]
    return f"No regression: {'; '.join(parts)}."


def _undecided(workload: WorkloadComparison, status: Status) -> list[str]:
    if not workload.baseline_launches:
        return [_override_reason(workload, f"{clean(workload.workload, limit=NAME)} has no baseline to compare with")]
    row = _first(workload, status)
    if row is None:
        return [_override_reason(workload, "these launches cannot decide it")]
    parts = [row_phrase(row), REASON_TEXTS[row.reason]]
    if row.mde_ratio is not None:
        parts.append(f"smallest detectable change {ratio_text(row.mde_ratio)}")
    if row.launches_needed is not None:
        parts.append(f"about {plural(row.launches_needed, 'launch')} per side would decide")
    parts += _phases_on_one_side(workload)
    return parts


def key_difference_text(difference: KeyDifference) -> str:
    """``driver differs (550.54 on the baseline, unknown on the candidate)``."""
    field = ENVIRONMENT_FIELDS.get(difference.field)
    name = field.title if field is not None else clean(difference.field)
    before = "unknown" if difference.baseline is None else clean(difference.baseline)
    after = "unknown" if difference.candidate is None else clean(difference.candidate)
    return f"{name} differs ({before} on the baseline, {after} on the candidate)"


def _not_comparable(workload: WorkloadComparison, status: Status) -> list[str]:
    if workload.key_differences:
        parts = [key_difference_text(workload.key_differences[0])]
        if len(workload.key_differences) > 1:
            parts.append(f"{plural(len(workload.key_differences) - 1, 'more difference')}")
        return parts
    row = _first(workload, status)
    return [_override_reason(workload, row_phrase(row) if row is not None else REASON_TEXTS[Reason.KEYS_DIFFER])]


def _not_measured(workload: WorkloadComparison, status: Status) -> list[str]:
    name = clean(workload.workload, limit=NAME)
    failed = next((note for note in workload.notes if note.code == "launch-failed"), None)
    if failed is not None and workload.verdict_override is Verdict.NOT_MEASURED:
        return [_failure(failed.text)]
    if not workload.baseline_launches and not workload.candidate_launches:
        return [_override_reason(workload, f"{name} has no usable launch on either side")]
    if not workload.candidate_launches:
        return [_override_reason(workload, f"{name} was measured on the baseline and has no launch on the candidate")]
    if not workload.baseline_launches:
        return [_override_reason(workload, f"{name} has no baseline to compare with")]
    row = _first(workload, status)
    if row is not None:
        return [row_phrase(row)]
    return [_override_reason(workload, f"no gated metric of {name} was measured")]


def _failure(text: str) -> str:
    """``candidate topic: the workload failed with exit code 1 (ModuleNotFoundError: No module named 'x')``: what
    failed, and of the log that is quoted below it the line that says why, else the last one."""
    lines = text.splitlines() or [""]
    what = clean(lines[0], limit=160).rstrip(".")
    below = (line.strip() for line in takewhile(lambda line: line.startswith("    "), lines[1:]))
    quoted = [line for line in below if line and not line.startswith(_ABOUT_THE_LOG)]
    why = next((line for line in reversed(quoted) if _EXCEPTION.match(line)), quoted[-1] if quoted else "")
    return f"{what} ({clean(why, limit=160).rstrip('.')})" if why else what


def _override_reason(workload: WorkloadComparison, otherwise: str) -> str:
    """The first note that speaks for the workload, after what is known without it."""
    if not workload.notes:
        return otherwise
    return f"{otherwise} ({clean(workload.notes[0].text, limit=160).rstrip('.')})"
