"""Is it still the same training? A candidate that computes something else is not fast, it is not comparable."""

import math
from collections.abc import Sequence

from perfci.model.run import Note, Run


def losses_outside(runs: Sequence[Run], golden: Sequence[float], *, tolerance_ratio: float) -> tuple[Note, ...]:
    """One note for each run whose losses leave the band golden ± ``tolerance_ratio``·|golden|, at the first such step.

    Compared over the steps that both have; a run without losses has nothing to show and is left to other checks. A
    loss that is not finite is outside. No golden losses: no band, no notes.
    """
    if not golden:
        return ()
    notes = []
    for run in runs:
        for step, (seen, wanted) in enumerate(zip(run.losses, golden, strict=False)):
            if not math.isfinite(seen) or abs(seen - wanted) > tolerance_ratio * abs(wanted):
                text = f"{run.revision.label}: loss {seen:g} at step {step}, wanted {wanted:g} ± {tolerance_ratio:.0%}"
                notes.append(Note(code="loss-outside-band", text=text))
                break
    return tuple(notes)
