"""What `perfci extract` prints."""

import json
import statistics

import pytest

from perfci.model.metrics import METRICS, Source, Unit
from perfci.model.run import ApiCallStat, KernelStat, Note, Series
from perfci.model.trace import Extraction, TraceInfo
from perfci.report.extraction import MAX_KERNELS, extraction_document, render_json, render_text

INFO = TraceInfo(
    collector="nsys", collector_version="2025.3.2.0", gpu_models=("NVIDIA H200",), driver="580.1", cuda="13.0"
)


def extraction(**changes):
    values = {
        "trace": INFO,
        "step_count": 4,
        "dropped_step_count": 1,
        "series": (
            Series(phase="step", metric="wall_ns", values=(12_000_000, 12_400_000, 12_200_000, 90_000_000)),
            Series(phase="backward", metric="wall_ns", values=(7_000_000, 7_100_000, 7_200_000, 7_300_000)),
            Series(phase="backward", metric="kernel_count", values=(177, 177, 177, 178)),
            Series(phase="step", metric="sync_count", values=(0, 0, 0, 1)),
            Series(phase="background", metric="kernel_count", values=(0, 0, 0, 0)),
            Series(phase="backward", metric="h2d_bytes", values=(0, 0, 0, 0)),
        ),
        "kernels": (KernelStat(phase="backward", name="gemm", count=8, total_ns=400_000),),
        "api_calls": (ApiCallStat(phase="backward", name="cudaLaunchKernel", count=9, total_ns=1000),),
        "notes": (Note(code="rank-missing", text="rank 2 has no file", spoils=True),),
    }
    return Extraction(**{**values, **changes})


def test_json_has_the_promised_form():
    document = json.loads(render_json(extraction()))
    assert document["schema_version"] == 1
    assert document["steps"] == 4
    assert document["dropped_steps"] == 1
    assert document["trace"]["gpu_models"] == ["NVIDIA H200"]
    wall = document["phases"]["backward"]["metrics"]["wall_ns"]
    assert wall["unit"] == "ns"
    assert wall["per_step"] == [7_000_000, 7_100_000, 7_200_000, 7_300_000]
    assert wall["median"] == wall["sample"] == 7_150_000
    waits = document["phases"]["step"]["metrics"]["sync_count"]
    assert (waits["median"], waits["sample"]) == (0, 0.25)
    assert document["kernels"] == [{"phase": "backward", "name": "gemm", "count": 8, "total_ns": 400_000}]
    assert document["notes"] == [{"code": "rank-missing", "text": "rank 2 has no file", "spoils": True}]
    assert "ranks" not in document


def test_json_keeps_ranks_apart():
    series = extraction().series
    document = extraction_document(extraction(rank_series=((0, series), (3, series))))
    assert list(document["ranks"]) == ["0", "3"]
    values = document["ranks"]["3"]["phases"]["step"]["metrics"]["wall_ns"]["per_step"]
    assert statistics.median(values) == 12_300_000
    assert set(document["phases"]["step"]["metrics"]) <= set(METRICS)


def test_text_names_phases_numbers_and_notes():
    text = render_text(extraction(), width=100)
    assert "4 steps, 1 incomplete left out" in text
    assert "NVIDIA H200" in text
    backward = next(line for line in text.splitlines() if "backward" in line)
    assert "7.150 ms" in backward
    assert "177.2" in backward
    assert "must not be judged (rank-missing)" in text
    assert "background" not in text
    assert "H2D" not in text


def test_what_was_not_measured_is_a_dash_not_a_zero():
    text = render_text(extraction(), width=100)
    step = next(line for line in text.splitlines() if line.strip().startswith("step"))
    assert "—" in step


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_text_fits_its_width_and_says_what_has_no_room(width):
    series = tuple(
        Series(phase=phase, metric=metric.name, values=(123_456_789,) * 4)
        for phase in ("step", "forward", "x" * 300)
        for metric in METRICS.values()
        if metric.source is Source.TRACE and metric.unit is not Unit.RATIO
    )
    text = render_text(extraction(series=series), width=width)
    assert all(len(line) <= width for line in text.splitlines())
    assert "wall" in text
    assert ("no room for" in text) == (width < 200)


def test_names_from_users_are_shown_harmless():
    name = "\x1b[31mred\u202e\n[bold]"
    text = render_text(extraction(series=(Series(phase=name, metric="wall_ns", values=(1, 1, 1, 1)),)), width=100)
    assert "\x1b" not in text
    assert "[bold]" in text
    assert json.loads(render_json(extraction(series=(Series(phase=name, metric="wall_ns", values=(1,)),))))["phases"][
        name
    ]


def test_long_lists_of_kernels_are_summed_up():
    kernels = tuple(KernelStat(phase="forward", name=f"k{n}", count=4, total_ns=4000) for n in range(MAX_KERNELS + 5))
    text = render_text(extraction(kernels=kernels), width=100)
    assert "and 5 more with 5 µs per step" in text
    assert "\x1b" in render_text(extraction(), width=100, color=True)


@pytest.mark.parametrize("name", ["::error::pwned", "##[error]pwned"])
def test_a_name_is_no_command_of_the_runner(name):
    series = (*extraction().series, Series(phase=name, metric="wall_ns", values=(1, 1, 1, 1)))
    lines = render_text(extraction(series=series), width=100).splitlines()
    (shown,) = [line for line in lines if "pwned" in line]
    assert not shown.lstrip().startswith("::")
    assert "##[" not in shown
