"""What ``perfci calibrate`` prints: the noise of equal code, and the false alarms it would have raised."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfci.model.metrics import Statistic
from perfci.report.drawing import drawn
from perfci.report.names import clean
from perfci.report.quantities import ratio_text
from perfci.report.ranking import metric_order, phase_order
from perfci.report.terminal import PLAIN_WIDTH
from perfci.report.wording import plural

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorView:
    """Noise of one series between launches of equal code, relative (0.01 is 1 %).

    ``upper_ratio`` is its upper confidence bound, the floor that is judged with; ``launches_needed`` the launches per
    side that its gate will need for its budget (None: more than any plan spends, or not gated).
    """

    phase: str
    metric: str
    statistic: Statistic
    deviation_ratio: float
    upper_ratio: float
    quietest: Statistic | None
    gated: bool
    launches_needed: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationView:
    """One workload: ``splits`` ways to call half of the launches a change were judged, ``alarms`` were regressions."""

    workload: str
    launches: int
    splits: int
    alarms: int
    floors: tuple[FloorView, ...]


def calibration_text(results: Sequence[CalibrationView], *, width: int = PLAIN_WIDTH) -> str:
    """One table per workload: gated series first, then the others in natural order."""
    return drawn(Group(*(part for result in results for part in _parts(result))), width=width, color=False)


def _parts(result: CalibrationView) -> Iterable[RenderableType]:
    yield Text(f"{clean(result.workload)}: {plural(result.launches, 'launch')} of equal code")
    if result.splits:
        yield Text(
            f"  false alarms: {result.alarms} of {result.splits} ways to call half of the launches a change "
            "(they share launches: not independent)"
        )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in ("phase", "metric", "statistic", "noise", "upper bound", "quietest", "launches a gate needs"):
        left = title in ("phase", "metric", "statistic")
        table.add_column(title, overflow="fold", justify="left" if left else "right")
    places = phase_order(floor.phase for floor in result.floors)
    for floor in sorted(result.floors, key=lambda f: (not f.gated, places[f.phase], metric_order(f.metric))):
        needed = str(floor.launches_needed) if floor.launches_needed is not None else "too many"
        table.add_row(
            clean(floor.phase),
            floor.metric,
            floor.statistic.value,
            ratio_text(floor.deviation_ratio),
            ratio_text(floor.upper_ratio),
            floor.quietest.value if floor.quietest else "",
            needed if floor.gated else "",
        )
    yield table


def calibration_json(results: Sequence[CalibrationView]) -> str:
    """The same as JSON with ``schema_version``; ratios raw. Ends in a newline."""
    document = {"schema_version": SCHEMA_VERSION, "workloads": [asdict(result) for result in results]}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"
