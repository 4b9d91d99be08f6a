"""What all pair rules share, and that none of them speaks of equal code."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from launches import EQUAL_CODE, Launch, recorded, training

from perfci.diagnosis.pair_rules import find_between, with_pair_findings
from perfci.model.finding import Confidence, Finding, Quantity
from perfci.model.run import KernelStat, Series


def finding(
    rule: str,
    *,
    new: bool = True,
    subject: str = "",
    worsened: bool = False,
    confidence: Confidence = Confidence.HIGH,
) -> Finding:
    return Finding(
        rule=rule, phase="forward", title=rule, evidence=(Quantity(name="cost", value=1, unit="ns"),),
        confidence=confidence, advice="", new=new, subject=subject, worsened=worsened,
    )  # fmt: skip


@pytest.mark.parametrize(("baseline", "candidate"), EQUAL_CODE)
def test_equal_code_has_nothing_new(baseline, candidate):
    assert find_between([recorded(baseline)], [recorded(candidate)]) == ()
    assert find_between([recorded(baseline)] * 3, [recorded(candidate)] * 3) == ()


def test_a_side_without_steps_says_nothing():
    for baseline, candidate in (([], [training()]), ([training()], []), ([Launch(step_count=0)], [training()])):
        assert find_between(baseline, candidate) == ()


PHASES = ("forward", "optimizer", "validation", "step", "log", "unmarked", "background", "team @x | `y`" * 30)
NAMES = (
    "nvjet_sm90_tst_128x64_TNT",
    "ampere_sgemm_128x64_tn",
    "ncclDevKernel_AllReduce",
    "multi_tensor_apply_kernel<FusedAdamMathFunctor>",
    "k" * 480,
    "",
)
COUNTS = ("sync_count", "sync_ns", "h2d_pageable_count", "h2d_pageable_bytes", "h2d_pageable_ns")


@st.composite
def a_launch(draw):
    steps = draw(st.integers(0, 6))
    kernels = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(PHASES), st.sampled_from(NAMES)),
            st.tuples(st.integers(0, 50), st.integers(0, 10**9)),
            max_size=12,
        )
    )
    series = draw(
        st.dictionaries(
            st.tuples(st.sampled_from(PHASES), st.sampled_from(COUNTS)),
            st.lists(st.integers(0, 5), min_size=max(steps, 1), max_size=max(steps, 1)),
            max_size=12,
        )
    )
    peak = draw(st.sampled_from([None, 0, 100, 200]))
    made = [Series(phase=p, metric=m, values=tuple(values)) for (p, m), values in series.items()]
    if peak is not None:
        made.append(Series(phase="run", metric="peak_allocated_bytes", values=(peak,)))
    stats = [KernelStat(phase=p, name=n, count=c, total_ns=t) for (p, n), (c, t) in kernels.items()]
    return Launch(step_count=steps, series=tuple(made), kernels=tuple(stats))


SIDE = st.lists(a_launch(), max_size=4)


@settings(max_examples=150, deadline=None)
@given(SIDE, SIDE)
def test_any_two_sides_can_be_compared(baseline, candidate):
    found = find_between(baseline, candidate)
    assert all(f.new and f.evidence and f.title and f.advice for f in found)
    assert all(math.isfinite(quantity.value) for f in found for quantity in f.evidence)
    patterns = [(f.rule, f.phase, f.subject) for f in found]
    assert len(patterns) == len(set(patterns))


@settings(max_examples=100, deadline=None)
@given(SIDE)
def test_a_side_compared_with_itself_has_nothing_new(side):
    assert find_between(side, side) == ()


def test_new_findings_come_first_and_causes_before_what_follows_from_them():
    known = (
        finding("many-small-kernels"),
        finding("b", confidence=Confidence.LOW),
        finding("c", new=False, worsened=True),
        finding("many-small-kernels", new=False, subject="x"),
        finding("d", new=False, confidence=Confidence.HIGH),
    )
    joined = with_pair_findings(known, [finding("p"), finding("slower-kernels", confidence=Confidence.MEDIUM)])
    assert [f.rule for f in joined] == [
        "p",
        "many-small-kernels",
        "slower-kernels",
        "b",
        "c",
        "many-small-kernels",
        "d",
    ]


def test_what_the_traces_tell_already_is_told_once():
    known = (finding("a", subject="x"), finding("b", new=False))
    joined = with_pair_findings(known, [finding("a", subject="x"), finding("a", subject="y"), finding("b")])
    assert [(f.rule, f.subject, f.new) for f in joined] == [
        ("a", "x", True),
        ("a", "y", True),
        ("b", "", True),  # on both sides before: that explains no change
        ("b", "", False),
    ]
