"""What all pair rules share, and that none of them speaks of equal code."""

import pytest
from launches import EQUAL_CODE, Launch, recorded, training

from perfci.diagnosis.pair_rules import find_between, with_pair_findings
from perfci.model.finding import Confidence, Finding, Quantity


def finding(rule: str, *, new: bool = True, subject: str = "", worsened: bool = False) -> Finding:
    return Finding(
        rule=rule, phase="forward", title=rule, evidence=(Quantity(name="cost", value=1, unit="ns"),),
        confidence=Confidence.HIGH, advice="", new=new, subject=subject, worsened=worsened,
    )  # fmt: skip


@pytest.mark.parametrize(("baseline", "candidate"), EQUAL_CODE)
def test_equal_code_has_nothing_new(baseline, candidate):
    assert find_between([recorded(baseline)], [recorded(candidate)]) == ()
    assert find_between([recorded(baseline)] * 3, [recorded(candidate)] * 3) == ()


def test_a_side_without_steps_says_nothing():
    for baseline, candidate in (([], [training()]), ([training()], []), ([Launch(step_count=0)], [training()])):
        assert find_between(baseline, candidate) == ()


def test_pair_findings_stand_behind_other_new_ones_and_before_the_worsened():
    known = (finding("a"), finding("b", new=False, worsened=True), finding("c", new=False))
    joined = with_pair_findings(known, [finding("p")])
    assert [f.rule for f in joined] == ["a", "p", "b", "c"]


def test_what_the_traces_tell_already_is_told_once():
    known = (finding("a", subject="x"), finding("b", new=False))
    joined = with_pair_findings(known, [finding("a", subject="x"), finding("a", subject="y"), finding("b")])
    assert [(f.rule, f.subject, f.new) for f in joined] == [
        ("a", "x", True),
        ("a", "y", True),
        ("b", "", True),  # on both sides before: that explains no change
        ("b", "", False),
    ]
