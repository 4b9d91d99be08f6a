"""The golden band of losses."""

import math

import pytest
from run_builder import run

from perfci.stats.numerics import losses_outside

GOLDEN = (2.0, 1.0, -0.5)


@pytest.mark.parametrize(
    ("losses", "outside"),
    [
        ((2.0, 1.0, -0.5), False),
        ((2.09, 0.96, -0.52), False),
        ((2.0, 1.2), True),
        ((2.0, math.nan), True),
        ((math.inf,), True),
        ((), False),
        ((2.0, 1.0, -0.5, 99.0), False),
    ],
)
def test_band(losses: tuple[float, ...], outside: bool) -> None:
    notes = losses_outside([run({}, losses=losses)], GOLDEN, tolerance_ratio=0.05)
    assert bool(notes) == outside
    assert all(note.code == "loss-outside-band" for note in notes)


def test_first_step_outside_is_named_and_no_golden_is_no_band() -> None:
    bad = run({}, losses=(9.0, 9.0), label="cand")
    assert "step 0" in losses_outside([bad], GOLDEN, tolerance_ratio=0.05)[0].text
    assert losses_outside([bad], (), tolerance_ratio=0.05) == ()
