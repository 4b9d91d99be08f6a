"""Which rows matter most: the order of tables that show the worst first, and the row a headline speaks about."""

from collections.abc import Iterable

from perfci.model.comparison import Row, WorkloadComparison
from perfci.model.metrics import BACKGROUND, METRICS, PSEUDO_PHASES, RUN, STEP, UNMARKED, Direction, Unit
from perfci.report.wording import Status, status_of

_METRIC_ORDER = {name: index for index, name in enumerate(METRICS)}
_PHASE_FIRST = (STEP, RUN, "data", "h2d", "forward", "backward", "optimizer", "log", "validation")
_PHASE_LAST = (BACKGROUND, UNMARKED)


def metric_order(metric: str) -> int:
    """Place of a metric in the metric table."""
    return _METRIC_ORDER[metric]


def phase_order(phases: Iterable[str]) -> dict[str, int]:
    """Place of each phase: step, run, the usual phases in the order of a step, others as they first appear,
    background, unmarked."""
    others = dict.fromkeys(phase for phase in phases if phase not in (*_PHASE_FIRST, *_PHASE_LAST))
    return {phase: index for index, phase in enumerate((*_PHASE_FIRST, *others, *_PHASE_LAST))}


def natural_order(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows in the order of their phases, then of the metric table."""
    listed = tuple(rows)
    phases = phase_order(row.phase for row in listed)
    return tuple(sorted(listed, key=lambda row: (phases[row.phase], metric_order(row.metric))))


def by_importance(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Rows with the worst status first; within a status as a headline would choose, then in natural order."""
    return tuple(sorted(natural_order(rows), key=lambda row: (-status_of(row).severity, _rank(row))))


def worsening(row: Row) -> float:
    """Relative change counted positive when it is for the worse; infinite from zero upwards, 0 when not known."""
    sign = -1.0 if METRICS[row.metric].direction is Direction.HIGHER_IS_BETTER else 1.0
    if row.effect is not None:
        return sign * row.effect.value_ratio
    delta = absolute_change(row)
    return sign * float("inf") * delta if delta else 0.0


def absolute_change(row: Row) -> float:
    """Candidate minus baseline in the metric's unit; 0 when a side is missing."""
    if row.baseline.location is None or row.candidate.location is None:
        return 0.0
    return row.candidate.location - row.baseline.location


def _rank(row: Row) -> tuple[int, float]:
    """Small is first: the step's own time, the phases' times by their size, the rest by relative change."""
    improved = status_of(row) is Status.IMPROVEMENT
    if METRICS[row.metric].unit is Unit.NS:
        size = absolute_change(row)
        group = 0 if row.phase == STEP else 2 if row.phase == RUN else 1
    else:
        size = worsening(row)
        group = 4 if row.phase in PSEUDO_PHASES else 3
    return group, size if improved else -size


def phases_on_one_side(workload: WorkloadComparison) -> tuple[Row, ...]:
    """The wall times of phases that only one side has (new or gone in the candidate), largest first. None where a
    side was not measured at all: then everything is on one side."""
    rows = [row for row in workload.rows if row.metric == "wall_ns"]
    if all(_one_sided(row) for row in rows):
        return ()
    found = [row for row in rows if row.phase not in PSEUDO_PHASES and _one_sided(row)]
    return tuple(sorted(found, key=lambda row: -abs(_growth(row))))


def _one_sided(row: Row) -> bool:
    return (row.baseline.location is None) != (row.candidate.location is None)


def _growth(row: Row) -> float:
    """Time that a phase has more on the candidate. A phase that a side has not took no time there."""
    return (row.candidate.location or 0.0) - (row.baseline.location or 0.0)


def main_phase(workload: WorkloadComparison, row: Row) -> Row | None:
    """For a slower step: the phase whose time grew most, when that is at least a third of the step's growth. A phase
    that is new in the candidate grew from nothing."""
    if row.phase != STEP or METRICS[row.metric].unit is not Unit.NS:
        return None
    metric = "wall_ns" if row.metric == "unprofiled_wall_ns" else row.metric
    phases = [other for other in workload.rows if other.metric == metric and other.phase not in PSEUDO_PHASES]
    whole = next((r for r in workload.rows if r.metric == metric and r.phase == STEP), row)
    best = max(phases, key=_growth, default=None)
    if best is None or _growth(best) <= 0 or 3 * _growth(best) < absolute_change(whole):
        return None
    return best
