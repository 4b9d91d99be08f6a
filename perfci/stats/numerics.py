"""Is it still the same training? A candidate that computes something else is not fast, it is not comparable."""

import math
from collections.abc import Sequence

from perfci.model.run import LOSS_NOT_FINITE, Note, Run


def losses_outside(runs: Sequence[Run], golden: Sequence[float], *, tolerance_ratio: float) -> tuple[Note, ...]:
    """One note for each run whose losses leave the band golden ± ``tolerance_ratio``·|golden|, at the first such step.

    Compared over the steps that both have; a run without losses has nothing to show and is left to other checks. A
    loss that is not finite is outside, at whatever step. No golden losses: no band, no notes.
    """
    if not golden:
        return ()
    notes = []
    for run in runs:
        lost = _lost(run)
        if lost is not None:
            notes.append(Note(code="loss-outside-band", text=f"{run.revision.label}: {lost.text}"))
            continue
        for step, (seen, wanted) in enumerate(zip(run.losses, golden, strict=False)):
            if not math.isfinite(seen) or abs(seen - wanted) > tolerance_ratio * abs(wanted):
                band = f"{wanted:g} ± {100 * tolerance_ratio:g} %"
                text = f"{run.revision.label}: loss {seen:g} at step {step}, wanted {band}"
                notes.append(Note(code="loss-outside-band", text=text))
                break
    return tuple(notes)


def losses_lost(baseline: Sequence[Run], candidate: Sequence[Run]) -> tuple[tuple[Note, ...], bool]:
    """A note for each side on which launches told a loss that is not finite, and whether the sides differ in that.

    They do when every launch of one side did and none of the other: such sides do not train the same way. No runs on a
    side: no difference.
    """
    notes = []
    counts = []
    for side, runs in (("baseline", baseline), ("candidate", candidate)):
        lost = [note for note in map(_lost, runs) if note is not None]
        counts.append(len(lost))
        if lost:
            text = f"{len(lost)} of {len(runs)} {side} launches: {lost[0].text}"
            notes.append(Note(code=LOSS_NOT_FINITE, text=text))
    of_left, of_right = counts
    left, right = len(baseline), len(candidate)
    differ = bool(left and right) and sorted([of_left / left, of_right / right]) == [0, 1]
    return tuple(notes), differ


def _lost(run: Run) -> Note | None:
    return next((note for note in run.notes if note.code == LOSS_NOT_FINITE), None)
