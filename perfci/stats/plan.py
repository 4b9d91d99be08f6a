"""Adaptive effort: after each block of launches, which workload needs more, and how many launches that may take.

The plan is fixed before the first launch: looks after every block of two pairs, from ``min_launches`` to
``max_launches`` pairs. ``judge_workload(..., looks=looks_until(pairs, settings))`` judges with the error that the
looks so far may spend; ``next_action`` reads the judged rows. Stopping because a gate is hopeless or time is up
costs no error: nothing is claimed by it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from perfci.model.comparison import Effect, Reason, Row, WorkloadComparison
from perfci.model.settings import JudgeSettings
from perfci.model.verdict import Verdict
from perfci.stats.foresight import Prediction

PAIRS_PER_BLOCK = 2
HOPELESS_LAUNCHES = 6
"""Fewest launches a side from which noise may be called hopeless."""
_HOPELESS_SHARE = 0.5
"""The noise seen may be this much too large by chance; a gate is hopeless only when that would not save it either."""

Foreseen = Mapping[tuple[str, str, str], Prediction]
"""What noise floors predict, by (workload, phase, metric)."""

_NO_LAUNCH_HELPS = {Reason.BASELINE_ZERO, Reason.NEW, Reason.VANISHED, Reason.NOT_MEASURED, Reason.KEYS_DIFFER,
                    Reason.NUMERICS_DIFFER, Reason.STAND_IN_TOO_FAR}  # fmt: skip
_RARELY_HELPS = {Reason.BIMODAL, Reason.TREND, Reason.NOT_INTERLEAVED}


class GateState(StrEnum):
    """Where a gate stands: DECIDED, still OPEN, or HOPELESS within the plan."""

    DECIDED = "decided"
    OPEN = "open"
    HOPELESS = "hopeless"


class Stop(StrEnum):
    """Why measuring ends."""

    DECIDED = "decided"
    HOPELESS = "hopeless"
    MAX_LAUNCHES = "max-launches"
    OUT_OF_TIME = "out-of-time"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateProgress:
    """One gate after a look: what is known, for the progress display. ``launches_expected`` is per side, in all."""

    workload: str
    phase: str
    metric: str
    state: GateState
    verdict: Verdict
    reason: Reason
    effect: Effect | None
    budget_ratio: float | None
    launches_expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Go on or not. ``open_workloads`` are those whose next block is to be launched (empty when ``done``).

    ``launches_expected`` is the most launches per side any open workload is expected to need in all, at most
    ``launches_max``; ``remaining_s`` the time that the launches still to come may take (None: launch time not known).
    """

    done: bool
    stop: Stop | None
    open_workloads: tuple[str, ...]
    gates: tuple[GateProgress, ...]
    launches_done: int
    launches_expected: int
    launches_max: int
    remaining_s: float | None = None


def look_sizes(settings: JudgeSettings) -> tuple[int, ...]:
    """Numbers of pairs at which the plan looks: after each block of two pairs from ``min_launches``, and at the end."""
    sizes = {n for n in range(2, settings.max_launches + 1, PAIRS_PER_BLOCK) if n >= settings.min_launches}
    return tuple(sorted(sizes | {settings.max_launches}))


def looks_until(pairs: int, settings: JudgeSettings) -> tuple[int, ...]:
    """The looks of the plan up to now, when ``pairs`` pairs are there. A number outside the plan (a launch was lost)
    takes the place of the look it comes before. Raises ValueError below 1."""
    if pairs < 1:
        raise ValueError("no pair to look at")
    return (*(size for size in look_sizes(settings) if size < pairs), pairs)


def next_action(
    judged: Sequence[WorkloadComparison],
    settings: JudgeSettings,
    *,
    elapsed_s: float = 0.0,
    launch_s: float | None = None,
    foreseen: Foreseen | None = None,
) -> Decision:
    """Decide after a look whether to launch another block, for each workload.

    ``judged`` are the workloads as judged at this look, ``launch_s`` the usual duration of one launch. Exact counts are
    decided by the first launch; a workload is open while one of its gates is. A workload that cannot be compared at all
    is not measured further. With nothing judged yet the answer is to go on.

    ``foreseen`` counts while launches are fewer than HOPELESS_LAUNCHES, too few to know the noise by themselves: it
    tells how many launches to expect, and gives up at once a gate that is out of reach of the plan.
    """
    known = foreseen or {}
    gates = tuple(
        _progress(workload, row, settings, known.get((workload.workload, row.phase, row.metric)))
        for workload in judged
        for row in workload.rows
        if row.gated
    )
    done_launches = {w.workload: min(w.baseline_launches, w.candidate_launches) for w in judged}
    open_names = {gate.workload for gate in gates if gate.state is GateState.OPEN}
    open_names |= {
        w.workload for w in judged if w.verdict_override is Verdict.NOT_MEASURED and not done_launches[w.workload]
    }
    below = {name for name, launches in done_launches.items() if launches < settings.max_launches}
    more = tuple(w.workload for w in judged if w.workload in open_names & below)
    block_s = None if launch_s is None else 2 * PAIRS_PER_BLOCK * launch_s * len(more)
    out_of_time = elapsed_s + (block_s or 0.0) > settings.max_minutes * 60
    if more and not out_of_time:
        stop = None
    elif more:
        stop = Stop.OUT_OF_TIME
    elif open_names:
        stop = Stop.MAX_LAUNCHES
    else:
        stop = Stop.HOPELESS if any(gate.state is GateState.HOPELESS for gate in gates) else Stop.DECIDED
    expected = {
        name: max((g.launches_expected for g in gates if g.workload == name), default=settings.min_launches)
        for name in more
    }
    left = sum(max(0, expected[name] - done_launches[name]) for name in more)
    return Decision(
        done=stop is not None,
        stop=stop,
        open_workloads=() if stop else more,
        gates=gates,
        launches_done=max(done_launches.values(), default=0),
        launches_expected=max(expected.values(), default=max(done_launches.values(), default=0)),
        launches_max=settings.max_launches,
        remaining_s=None if launch_s is None else 2 * left * launch_s,
    )


def open_gate(row: Row, settings: JudgeSettings) -> bool:
    """True when more launches may still decide this row within the plan."""
    launches = min(len(row.baseline.samples), len(row.candidate.samples))
    return row.gated and _state(row, launches, settings, None) is GateState.OPEN and launches < settings.max_launches


def _progress(
    workload: WorkloadComparison, row: Row, settings: JudgeSettings, prediction: Prediction | None
) -> GateProgress:
    assert row.verdict is not None
    launches = min(len(row.baseline.samples), len(row.candidate.samples))
    state = _state(row, launches, settings, prediction)
    expected = launches
    if state is GateState.OPEN:
        few = prediction is not None and launches < HOPELESS_LAUNCHES
        wanted = (prediction.launches if few and prediction else row.launches_needed) or settings.max_launches
        expected = min(settings.max_launches, max(wanted, launches + PAIRS_PER_BLOCK, settings.min_launches))
    return GateProgress(
        workload=workload.workload,
        phase=row.phase,
        metric=row.metric,
        state=state,
        verdict=row.verdict,
        reason=row.reason,
        effect=row.effect,
        budget_ratio=row.budget_ratio,
        launches_expected=expected,
    )


def _state(row: Row, launches: int, settings: JudgeSettings, prediction: Prediction | None) -> GateState:
    if row.verdict in (Verdict.NOT_MEASURED, Verdict.NOT_COMPARABLE):
        return GateState.HOPELESS  # nothing is decided, and the next launch of the same session would show no more
    if row.verdict is not Verdict.INCONCLUSIVE:
        return GateState.DECIDED
    if row.reason in _NO_LAUNCH_HELPS:
        return GateState.HOPELESS
    if launches < max(HOPELESS_LAUNCHES, settings.min_launches):
        given_up = launches >= settings.min_launches and prediction is not None and _out_of_reach(row, prediction)
        return GateState.HOPELESS if given_up else GateState.OPEN
    if row.reason in _RARELY_HELPS or _hopeless(row, launches, settings):
        return GateState.HOPELESS
    return GateState.OPEN


def _hopeless(row: Row, launches: int, settings: JudgeSettings) -> bool:
    """True when at the end of the plan, even with half of the noise seen, what can be shown is larger than twice the
    budget and larger than the effect seen: neither PASS nor a claim of change is in reach."""
    if row.mde_ratio is None or row.budget_ratio is None or row.effect is None:
        return False
    shrink = math.sqrt(launches / settings.max_launches) if launches < settings.max_launches else 1.0
    best = math.log1p(row.mde_ratio) * shrink * _HOPELESS_SHARE
    return best > max(2 * math.log1p(row.budget_ratio), abs(math.log1p(row.effect.value_ratio)))


def _out_of_reach(row: Row, prediction: Prediction) -> bool:
    """True when the noise floor says that the plan cannot decide this row, and its data do not say otherwise: the
    effect seen is not half of what the end of the plan would show, and the pairs spread at least half as much as the
    floor predicts (they spread less where both launches of a pair share the noise, which pairing then removes)."""
    if prediction.within_reach or row.effect is None:
        return False
    samples = (row.baseline.samples, row.candidate.samples)
    if len(samples[0]) != len(samples[1]) or len(samples[0]) < 2 or min(map(min, samples)) <= 0:
        return False
    seen = float(np.std(np.log(samples[1]) - np.log(samples[0]), ddof=1))
    effect = abs(math.log1p(row.effect.value_ratio))
    return seen >= prediction.pair_deviation / 2 and effect < prediction.detectable * _HOPELESS_SHARE
