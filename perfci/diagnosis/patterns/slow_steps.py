"""Which steps of a series are slow, and whether they come at a fixed distance: shared by the two rules on steps."""

from dataclasses import dataclass

import numpy as np

from perfci.diagnosis.patterns.communication_every_microstep import OPTIMIZER_PHASES
from perfci.diagnosis.patterns.validation_autograd import VALIDATION_PHASES
from perfci.diagnosis.view import TraceView
from perfci.model.timeline import Bool, Int64

SLOW_RATIO = 1.3
"""Steps of one launch differ by 6 to 12 % (robust standard deviation; docs/rules/periodic-stalls.md): 30 % above the
median is beyond that jitter."""
MIN_OCCURRENCES = 3
"""Two slow steps always have "a period"."""
HIT_RATIO = 0.9
"""Share of the places of a pattern that must be slow."""
MISS_RATIO = 0.1
"""Share of the other places that may be slow."""
PLANNED_PHASES = VALIDATION_PHASES | OPTIMIZER_PHASES | {"checkpoint", "save"}
"""Work that is meant to come every N steps and to take its time, the optimizer where gradients are accumulated over
steps."""
PLANNED_LACK_RATIO = 1 / 3
"""Share of the steps that must lack such a phase: a program that only evaluates, or updates in every step, has it in
(nearly) all; accumulation over two steps leaves half of them without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """Slow steps at ``offset``, ``offset + length``, …; ``steps`` are those places."""

    length: int
    offset: int
    steps: Int64


def period_of(wall_ns: Int64) -> Period | None:
    """The shortest period that explains the slow steps of one rank, or None. Fewer than 6 steps: None."""
    count = len(wall_ns)
    slow: Bool = wall_ns > SLOW_RATIO * np.median(wall_ns) if count else np.zeros(0, dtype=np.bool_)
    if slow.sum() < MIN_OCCURRENCES:
        return None
    for length in range(2, count // 2 + 1):
        for offset in range(length):
            places = np.zeros(count, dtype=np.bool_)
            places[offset::length] = True
            if (
                places.sum() >= MIN_OCCURRENCES
                and slow[places].mean() >= HIT_RATIO
                and slow[~places].mean() <= MISS_RATIO
                and slow[~places].sum() <= slow[places].sum() - MIN_OCCURRENCES  # three alone must be all there are
            ):
                return Period(length=length, offset=offset, steps=np.flatnonzero(places).astype(np.int64))
    return None


def planned(view: TraceView) -> tuple[int, ...]:
    """Phases of PLANNED_PHASES that PLANNED_LACK_RATIO of the rank-steps lack."""
    walls_ns = view.phase_walls_ns()
    named = (phase for phase in view.phases_named(PLANNED_PHASES) if phase in walls_ns)
    return tuple(phase for phase in named if np.mean(walls_ns[phase] == 0) >= PLANNED_LACK_RATIO)


def unplanned_ns(view: TraceView) -> Int64:
    """Wall time of each rank-step without planned work."""
    return view.wall_ns - view.marked_ns(planned(view))


def blamed_phase(view: TraceView, slow_rows: Int64, usual_rows: Int64) -> tuple[str, float]:
    """The phase whose wall time grew most from the usual to the slow rank-steps (medians), with that growth in ns.
    Planned work is not to blame.

    Empty name when no phase grew: the time went between the phases.
    """
    best, growth = "", 0.0
    not_to_blame = planned(view)
    for phase, wall_ns in sorted(view.phase_walls_ns().items()):
        if phase in not_to_blame:
            continue
        grown = float(np.median(wall_ns[slow_rows]) - np.median(wall_ns[usual_rows]))
        if grown > growth:
            best, growth = view.timeline.phases[phase], grown
    return best, growth
