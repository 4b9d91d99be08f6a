"""Findings of two sides: what is new, worse, on both sides, gone."""

from perfci.diagnosis.pair import compare_findings, gone_findings
from perfci.model.finding import Confidence, Finding, Quantity


def finding(cost: float, *, rule: str = "accidental-sync", phase: str = "log", subject: str = "x", name: str = "cost"):
    return Finding(
        rule=rule, phase=phase, title=f"{rule} {cost}", evidence=(Quantity(name=name, value=cost, unit="ns"),),
        confidence=Confidence.HIGH, advice="", subject=subject,
    )  # fmt: skip


def test_new_worsened_and_unchanged_in_this_order():
    before = [finding(100), finding(100, phase="data")]
    after = [finding(110), finding(200, phase="data"), finding(5, rule="pageable-copies")]
    judged = compare_findings(before, after)
    assert [(f.rule, f.phase, f.new, f.worsened) for f in judged] == [
        ("pageable-copies", "log", True, False),
        ("accidental-sync", "data", False, True),
        ("accidental-sync", "log", False, False),
    ]
    assert [(q.name, q.value) for q in judged[1].evidence] == [("cost", 200), ("cost, baseline", 100)]


def test_another_phase_or_subject_is_another_pattern():
    judged = compare_findings([finding(1)], [finding(1, phase="forward"), finding(1, subject="y")])
    assert [f.new for f in judged] == [True, True]


def test_same_findings_are_never_new():
    both = [finding(1), finding(2, phase="data")]
    assert not any(f.new or f.worsened for f in compare_findings(both, both))
    assert gone_findings(both, both) == ()


def test_marks_of_an_earlier_comparison_do_not_stick():
    (first,) = compare_findings([], [finding(1)])
    assert first.new
    (again,) = compare_findings([first], [first])
    assert not again.new


def test_several_launches_speak_with_their_median():
    (judged,) = compare_findings([finding(100), finding(500), finding(110)], [finding(120), finding(90), finding(900)])
    assert judged.evidence[0].value == 120
    assert not judged.worsened


def test_an_accident_of_one_launch_is_left_out():
    often, once = [finding(1)] * 2, [finding(1, phase="data")]
    judged = compare_findings([], [*often, *once], candidate_launches=3)
    assert [f.phase for f in judged] == ["log"]
    assert gone_findings([*often, *once], [], baseline_launches=3) == (finding(1),)
    assert compare_findings([], often, candidate_launches=4) == ()


def test_one_launch_of_the_baseline_is_enough_to_be_known():
    (judged,) = compare_findings([finding(1)], [finding(1)] * 5, candidate_launches=5)
    assert not judged.new


def test_costs_of_different_quantities_are_not_compared():
    (judged,) = compare_findings([finding(1, name="other")], [finding(100)])
    assert not judged.worsened


def test_a_cost_that_appears_from_zero_is_worse():
    (judged,) = compare_findings([finding(0)], [finding(1)])
    assert judged.worsened


def test_gone():
    assert [f.phase for f in gone_findings([finding(1), finding(1, phase="data")], [finding(1)])] == ["data"]
