"""Findings about new kernels get the line of those kernels, where it is one line."""

import pytest

from perfci.model.comparison import KernelChange, KernelChangeKind, WorkloadComparison
from perfci.model.environment import Environment
from perfci.model.finding import Confidence, Finding, Quantity
from perfci.pipeline.locate import located
from perfci.probe.locations import Location, LocationKind


def operator(name: str, line: int, phase: str, count: float = 1.0) -> Location:
    return Location(
        kind=LocationKind.OPERATOR, name=name, phases=(phase,), path="train.py", line=line, function="f",
        text=f"line {line}", count_per_step=count, bytes_per_step=0.0, steps_ratio=1.0,
    )  # fmt: skip


def change(name: str, phase: str = "forward", kind: KernelChangeKind = KernelChangeKind.NEW) -> KernelChange:
    return KernelChange(
        phase=phase, name=name, kind=kind, baseline_count=0, candidate_count=1, baseline_ns=0, candidate_ns=9
    )


def line_of(rule: str, *changes: KernelChange, candidate: list[Location]) -> int | None:
    finding = Finding(
        rule=rule, phase="forward", title="t", evidence=(Quantity(name="cost", value=1, unit="ns"),),
        confidence=Confidence.HIGH, advice="", new=True,
    )  # fmt: skip
    comparison = WorkloadComparison(
        workload="w", rows=(), baseline_environment=Environment.of({}), candidate_environment=Environment.of({}),
        baseline_launches=1, candidate_launches=1, findings=(finding,), kernel_changes=changes,
    )  # fmt: skip
    (found,) = located(comparison, [operator("aten::linear", 5, "forward")], candidate).findings
    return None if found.location is None else found.location.line


CAST = [operator("aten::linear", 5, "forward"), operator("aten::_to_copy", 7, "forward")]


@pytest.mark.parametrize("rule", ["float32-matmul", "unfused-optimizer"])
def test_the_line_that_asks_for_the_new_kernels(rule):
    assert line_of(rule, change("sgemm"), change("cast"), candidate=CAST) == 7


def test_other_rules_and_kernels_of_unknown_origin_have_no_line():
    assert line_of("slower-kernels", change("sgemm"), candidate=CAST) is None
    assert line_of("float32-matmul", change("sgemm"), candidate=CAST[:1]) is None
    assert line_of("float32-matmul", change("sgemm", phase="backward"), candidate=CAST) is None
    assert line_of("float32-matmul", change("sgemm", kind=KernelChangeKind.SLOWER), candidate=CAST) is None
