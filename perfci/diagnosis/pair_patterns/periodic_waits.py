"""A wait for the GPU in every n-th step that the baseline has not: medians hide it."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median

from perfci.diagnosis.pair_view import PairView, Values
from perfci.diagnosis.rule import EVERY_STEP_RATIO, count, ratio, time
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import BACKGROUND, RUN, STEP

NAME = "periodic-waits"
DOCS = "docs/rules/periodic-waits.md"

SYNCS, BLOCKED = "sync_count", "sync_ns"
MIN_WAITS = 2
"""In every launch: one wait in a window may be an accident, such as the timers that DDP reads once in a while."""
MIN_DISTANCES = 2
"""Of all launches together: two waits always lie at "a distance"."""

_ADVICE = (
    "Something reads a GPU value or synchronises every {when}: a log, a progress bar, a metric, a check for NaN. Each "
    "time the CPU stops until the GPU is done, and the GPU runs dry after it. Read the value late (copy it with "
    "`.to('cpu', non_blocking=True)` into pinned memory and print it some steps later), or less often. "
    "`torch.cuda.set_sync_debug_mode('warn')` prints the line."
)


def find(pair: PairView) -> Iterable[Finding]:
    """One finding per phase in which some steps of every launch of the candidate wait more often for the GPU than any
    step of the baseline, costliest first. Waits in EVERY_STEP_RATIO of the steps are ``accidental-sync``.

    Waits are counted, so nothing depends on how long a step takes.
    """
    return sorted(_findings(pair), key=lambda finding: -finding.evidence[0].value)


def _findings(pair: PairView) -> Iterator[Finding]:
    if not pair.baseline.values(STEP, SYNCS):
        return  # not measured: nothing is known to be new
    for phase in pair.candidate.measured_phases(SYNCS):
        launches = pair.candidate.values(phase, SYNCS)
        if phase in (STEP, RUN, BACKGROUND) or len(launches) < len(pair.candidate.launches):
            continue
        usual = max((value for values in pair.baseline.values(phase, SYNCS) for value in values), default=0)
        waits = [[step for step, value in enumerate(values) if value > usual] for values in launches]
        steps = sum(map(len, launches))
        share = sum(map(len, waits)) / steps
        if min(map(len, waits)) >= MIN_WAITS and share < EVERY_STEP_RATIO:
            yield _finding(pair, phase, waits, steps=steps)


def _finding(pair: PairView, phase: str, waits: Sequence[Sequence[int]], *, steps: int) -> Finding:
    distances = [after - before for places in waits for before, after in pairwise(places)]
    happened = sum(map(len, waits))
    periodic = len(set(distances)) == 1 and len(distances) >= MIN_DISTANCES
    when = f"every {distances[0]} steps" if periodic else f"in {happened} of {steps} steps"
    blocked = _blocked_more(pair.candidate.values(phase, BLOCKED), waits)
    return Finding(
        rule=NAME,
        phase=phase,
        subject=when,
        title=f"the CPU waits for the GPU {when}, which is new ({phase})",
        evidence=(
            time("CPU blocked in these waits per step (mean)", sum(blocked) / steps),
            *([time("CPU blocked by them in a step that waits", sum(blocked) / len(blocked))] if blocked else []),
            count("new waits per step (mean)", pair.grown(phase, SYNCS)),
            count("steps that wait", happened),
            count("steps seen", steps),
            ratio("share of the steps", happened / steps),
        ),
        confidence=Confidence.HIGH if periodic else Confidence.MEDIUM,
        advice=_ADVICE.format(when=f"{distances[0]} steps" if periodic else "so many steps"),
        new=True,
        docs=DOCS,
    )


def _blocked_more(launches: Sequence[Values], waits: Sequence[Sequence[int]]) -> list[float]:
    """How much longer than in the other steps (their median) the CPU was blocked in each step that waits; empty where
    not every launch measured it."""
    if len(launches) < len(waits):
        return []
    more = []
    for values, places in zip(launches, waits, strict=True):
        others = [value for step, value in enumerate(values) if step not in places]
        usual = median(others) if others else 0
        more += [max(0.0, values[step] - usual) for step in places]
    return more
