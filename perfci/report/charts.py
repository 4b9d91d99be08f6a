"""Geometry of the drawings: positions in percent of the drawing's width, no markup."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfci.model.comparison import Row
from perfci.model.metrics import METRICS, PSEUDO_PHASES, STEP, Kind, Unit
from perfci.report.names import clean
from perfci.report.quantities import interval_text, pair_texts, value_text
from perfci.report.ranking import by_importance, natural_order
from perfci.report.wording import Status, metric_title, status_of

BAR_METRICS = ("wall_ns", "gpu_busy_ns")
MAX_BARS = 14
MAX_STRIPS = 9
EDGE_PERCENT = 4.0
"""Dots stay this far from the edges of their plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One phase: both sides' bars and the interval of the candidate, in percent of the width; None: not there."""

    phase: str
    status: Status
    baseline_text: str
    candidate_text: str
    change: str
    baseline_percent: float | None
    candidate_percent: float | None
    low_percent: float | None
    high_percent: float | None
    high_open: bool
    """The interval goes on beyond the drawing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """One time metric over the phases. ``hidden_count`` phases were left to the table."""

    metric: str
    title: str
    bars: tuple[Bar, ...]
    hidden_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One launch."""

    percent: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The launches of both sides for one (phase, metric); launch i of both sides is a pair and gets a line."""

    phase: str
    metric: str
    title: str
    status: Status
    baseline: tuple[Dot, ...]
    candidate: tuple[Dot, ...]
    baseline_location: Dot
    candidate_location: Dot
    low_text: str
    high_text: str

    @property
    def pairs(self) -> tuple[tuple[Dot, Dot], ...]:
        """Lines to draw; launches without a partner have none."""
        return tuple(zip(self.baseline, self.candidate, strict=False))


def bar_charts(rows: Sequence[Row]) -> tuple[BarChart, ...]:
    """Wall and GPU time per phase. Phases with a bad status first when there are too many to draw."""
    charts = []
    for metric in BAR_METRICS:
        phases = [
            row
            for row in rows
            if row.metric == metric
            and row.phase not in PSEUDO_PHASES
            and any(
                side.location is not None and math.isfinite(side.location) for side in (row.baseline, row.candidate)
            )
        ]
        chosen = {id(row) for row in _most_telling(phases)[:MAX_BARS]}
        shown = [row for row in natural_order(phases) if id(row) in chosen]
        largest = max((_largest(row) for row in shown), default=0.0)
        if shown and largest > 0:
            bars = tuple(_bar(row, largest) for row in shown)
            title = metric_title(metric)
            charts.append(BarChart(metric=metric, title=title, bars=bars, hidden_count=len(phases) - len(shown)))
    return tuple(charts)


def _most_telling(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (-status_of(row).severity, -_largest(row)))


def _largest(row: Row) -> float:
    return max(side.location or 0.0 for side in (row.baseline, row.candidate))


def _bar(row: Row, largest: float) -> Bar:
    before, after = row.baseline.location, row.candidate.location
    texts = pair_texts(before, after, METRICS[row.metric].unit)
    low = high = None
    high_open = False
    effect = row.effect
    if effect is not None and before is not None and interval_text(effect) and math.isfinite(effect.low_ratio):
        low = _percent(before * (1 + effect.low_ratio), largest)
        high = _percent(before * (1 + effect.high_ratio), largest)
        high_open = before * (1 + effect.high_ratio) > largest
    return Bar(
        phase=clean(row.phase, limit=32),
        status=status_of(row),
        baseline_text=texts[0],
        candidate_text=texts[1],
        change="" if row.effect is None else interval_text(row.effect),
        baseline_percent=None if before is None else _percent(before, largest),
        candidate_percent=None if after is None else _percent(after, largest),
        low_percent=low,
        high_percent=high,
        high_open=high_open,
    )


def _percent(value: float, largest: float) -> float:
    """Share of the width; intervals that leave the drawing end at its edge."""
    return 100.0 if value >= largest else round(100.0 * max(value, 0.0) / largest, 3)


def strips(rows: Sequence[Row]) -> tuple[Strip, ...]:
    """Launches of the noisy gated rows that matter most; evidence only where no gate is noisy."""
    noisy = [row for row in rows if row.kind is Kind.NOISY and _drawable(row)]
    gated = [row for row in noisy if row.gated]
    shown = gated or [row for row in noisy if row.phase == STEP and METRICS[row.metric].unit is Unit.NS]
    return tuple(_strip(row) for row in by_importance(shown)[:MAX_STRIPS])


def _drawable(row: Row) -> bool:
    """Both sides finite, and at least two different values: an axis needs a length."""
    samples = (*row.baseline.samples, *row.candidate.samples)
    both = bool(row.baseline.samples) and bool(row.candidate.samples)
    return both and all(math.isfinite(sample) for sample in samples) and len(set(samples)) > 1


def _strip(row: Row) -> Strip:
    unit = METRICS[row.metric].unit
    locations = (row.baseline.location or 0.0, row.candidate.location or 0.0)
    values = (*row.baseline.samples, *row.candidate.samples, *locations)
    low, high = min(values), max(values)

    def dot(value: float) -> Dot:
        at = EDGE_PERCENT + (100 - 2 * EDGE_PERCENT) * (value - low) / (high - low)
        return Dot(percent=round(at, 3), text=value_text(value, unit))

    low_text, high_text = pair_texts(low, high, unit)
    return Strip(
        phase=clean(row.phase, limit=32),
        metric=row.metric,
        title=metric_title(row.metric),
        status=status_of(row),
        baseline=tuple(map(dot, row.baseline.samples)),
        candidate=tuple(map(dot, row.candidate.samples)),
        baseline_location=dot(locations[0]),
        candidate_location=dot(locations[1]),
        low_text=low_text,
        high_text=high_text,
    )
