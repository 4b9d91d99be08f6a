"""benchmarks/gpu/agree.py: spans become numbers per step, and three ways to time one phase become one table."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

from agree import per_step, rows_of, table


def phases(**values):
    return {
        phase: {"metrics": {name: {"per_step": series} for name, series in metrics.items()}}
        for phase, metrics in values.items()
    }


SPANS = [
    ("forward", 3), ("forward", 4), ("step", 10),
    ("forward", 50), ("perfci_dropped", 1), ("step", 60),
    ("forward", 5), ("log", 1), ("step", 8),
    ("forward", 99),
]  # fmt: skip


def test_a_phase_is_summed_within_a_step_and_what_is_no_whole_step_is_left_out():
    assert per_step(SPANS) == {"forward": [7, 5], "step": [10, 8], "log": [0, 1]}


def test_ratios_are_to_the_trace_and_absence_stays_absence():
    metrics = {"gpu_busy_ns": [4e6, 6e6], "kernel_ns": [4e6, 4e6], "gpu_idle_ns": [15e6, 15e6]}
    nsys = phases(step=metrics, forward={"gpu_busy_ns": [0, 0]}, unmarked=metrics)
    step, forward = rows_of(nsys, phases(step={"kernel_ns": [5e6]}), [("forward", 1), ("step", 6_000_000)])
    assert step["events_ratio"] == pytest.approx(1.2)
    assert step["torch_ratio"] == pytest.approx(1.25)
    assert step["idle_share"] == pytest.approx(0.75)
    assert forward["phase"] == "forward"
    assert forward["events_ratio"] is None
    assert forward["torch_kernel_ns"] is None
    lines = table({"gpt": [step, forward]}).splitlines()
    assert lines[2] == "| gpt | step | 5.000 | 6.000 | 75.0% | 4.000 | 5.000 | +20.00% | +25.00% |"
    assert lines[3] == "| gpt | forward | 0.000 | 0.000 | – | – | – | – | – |"
