"""The golden band of losses."""

import math
from dataclasses import replace

import pytest
from run_builder import run

from perfci.model.run import LOSS_NOT_FINITE, Note, Run
from perfci.stats.numerics import losses_lost, losses_outside

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


def test_the_band_is_named_as_it_was_written() -> None:
    (note,) = losses_outside([run({}, losses=(9.0,))], GOLDEN, tolerance_ratio=0.004)
    assert "± 0.4 %" in note.text


def test_first_step_outside_is_named_and_no_golden_is_no_band() -> None:
    bad = run({}, losses=(9.0, 9.0), label="cand")
    assert "step 0" in losses_outside([bad], GOLDEN, tolerance_ratio=0.05)[0].text
    assert losses_outside([bad], (), tolerance_ratio=0.05) == ()


def lost(label: str = "cand") -> Run:
    """A run as the sidecar tells it: what is not finite is in no list, and a note says so."""
    return replace(run({}, label=label), notes=(Note(code=LOSS_NOT_FINITE, text="the loss was not finite in 3 steps"),))


def test_a_run_that_told_no_finite_loss_is_outside_the_band() -> None:
    (note,) = losses_outside([lost()], GOLDEN, tolerance_ratio=0.05)
    assert (note.code, note.text) == ("loss-outside-band", "cand: the loss was not finite in 3 steps")


@pytest.mark.parametrize(
    ("baseline", "candidate", "differ"),
    [
        ("ff", "ff", False),
        ("ff", "nn", True),
        ("nn", "ff", True),
        ("nn", "nn", False),
        ("ff", "fn", False),
        ("", "n", False),
    ],
)
def test_sides_differ_when_one_alone_lost_its_loss(baseline: str, candidate: str, differ: bool) -> None:
    sides = [[lost() if kind == "n" else run({}, losses=(1.0,)) for kind in side] for side in (baseline, candidate)]
    notes, found = losses_lost(*sides)
    assert found == differ
    assert [note.text.split()[0] for note in notes] == [str(s.count("n")) for s in (baseline, candidate) if "n" in s]
