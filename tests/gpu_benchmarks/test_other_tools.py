"""benchmarks/gpu/other_tools.py: what is read from the answers of other tools, and the table."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

from other_tools import one_number, projected, table, threshold_says

STATS = """Processing [x.sqlite] with [nvtx_gpu_proj_trace.py]...
Name,Projected Start (ns),Projected Duration (ns),Orig Start (ns)
backward,1,768,1
:backward,2,832,1
:step,1,9000,1
"""


def test_projections_are_medians_per_range_name():
    assert projected(STATS) == {"backward": 800, "step": 9000}
    assert projected("ERROR: Report 'x' could not be found.") == {}


def test_a_threshold_looks_at_one_number_and_says_so_when_there_is_none():
    assert [threshold_says(x) for x in (None, 0.07, 0.071, -0.08)] == [
        "no answer", "nothing", "regression", "improvement",
    ]  # fmt: skip
    row = {"phase": "step", "metric": "unprofiled_wall_ns"}
    row |= {"baseline": {"samples": [100, 999]}, "candidate": {"samples": [110, 1]}}
    number = one_number(Path(), {"workloads": [{"rows": [row]}]})
    assert (number["says"], number["source"]) == ("regression", "unprofiled step")
    assert number["change_ratio"] == pytest.approx(0.1)


def test_one_row_per_case():
    gate = {"verdict": "regression_likely", "step_pct": 5.3, "exit_code": 1}
    silent = {"verdict": None, "step_pct": None, "exit_code": 2}
    case = {
        "case": "00-gpt-none",
        "perfci": "PASS",
        "nsys_stats": [{"phases": {"backward": 1e6}}, {"phases": {"backward": 1.5e6}}],
        "nsys_ai": [gate, silent],
        "one_number": {"says": "nothing", "change_ratio": 0.01, "source": "profiled step"},
    }
    assert table([case]).splitlines()[2] == (
        "| 00-gpt-none | PASS | 1.000 → 1.500 (+50.0%) | regression_likely +5.3 %, exit 1 | no answer, exit 2 "
        "| nothing (+1.0%, profiled step) |"
    )
