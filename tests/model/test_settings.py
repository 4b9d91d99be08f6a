"""Which series a gate judges."""

import pytest

from perfci.model.settings import Gate, JudgeSettings


@pytest.mark.parametrize(
    ("pattern", "workload", "covered"),
    [
        ("gpt", "gpt", True),
        ("gpt", "gpt@small", True),
        ("gpt@small", "gpt@small", True),
        ("gpt@small", "gpt", False),
        ("gpt@small", "gpt@large", False),
        ("*@small", "gpt@small", True),
        ("gp", "gpt@small", False),
        ("small", "gpt@small", False),
        ("g*", "gpt@small", True),
    ],
)
def test_a_gate_of_a_workload_covers_all_its_presets(pattern: str, workload: str, covered: bool) -> None:
    gate = Gate(metric="gpu_busy_ns", workload=pattern, budget_ratio=0.01)
    found = JudgeSettings(gates=(gate,)).gate_for(workload=workload, phase="step", metric="gpu_busy_ns")
    assert (found is gate) == covered
