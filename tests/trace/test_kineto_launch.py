"""The torch collector from end to end: launch under the real torch.profiler on the CPU, read, and beside nsys."""

import gzip
import json
import os
import shutil
from pathlib import Path

import pytest

from perfci.capture.launch import launch
from perfci.capture.nsys import find_nsys
from perfci.errors import MeasurementError
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec
from perfci.trace.extract import extract

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
STEPS = 4
PHASES = {"step", "unmarked", "data", "h2d", "forward", "backward", "optimizer"}
HOSTILE = ('say "cheese"', "back\\slash", "new\nline", "emoji 🔥", "100%41", "\x01", "right\u202eleft", "a|b <b> @team")
PROGRAM = f"""
import torch
from torch.profiler import record_function
from perfci import phases

def endless_length():
    yield from range(3)

for epoch in range(9):
    for item in phases.loop(endless_length()):
        for name in {HOSTILE!r}:
            with phases.phase(name), record_function('a library says "hello"'):
                torch.ones(8).sum()
"""


@pytest.fixture
def measure(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("PERFCI_")]:
        monkeypatch.delenv(name)

    def run(collector, *, tool=None, source=None):
        out = tmp_path / collector.value
        checkout, directory = ROOT, "workloads/tiny"
        if source is not None:
            checkout, directory = tmp_path / "checkout", "."
            checkout.mkdir(exist_ok=True)
            (checkout / "train.py").write_text(source)
        workload = WorkloadSpec(
            name="tiny", command=("python", "train.py"), directory=directory, environment=(("OMP_NUM_THREADS", "1"),)
        )
        settings = MeasureSettings(
            warmup_steps=0, wall_steps=1, capture_steps=STEPS, collector=collector, launch_timeout_s=120
        )
        return launch(workload, settings, checkout=checkout, out_dir=out, tool=tool, has_cuda=False)

    return run


def wall_times(extraction):
    return {one.phase: one.values for one in extraction.series if one.metric == "wall_ns"}


def test_tiny_gives_wall_times_of_all_phases(measure):
    launched = measure(Collector.TORCH)
    extraction = extract(launched.trace_paths)
    torch_version = dict(launched.sidecars[0].versions)["torch"]
    assert (extraction.trace.collector, extraction.trace.collector_version) == ("torch", torch_version)
    assert {one.metric for one in extraction.series} == {"wall_ns"}
    assert extraction.step_count == STEPS
    assert extraction.notes == ()
    wall = wall_times(extraction)
    assert set(wall) == PHASES
    # The window's own clock, kept by the driver, knows how long each step was: the range lies inside of it.
    for of_trace, of_driver in zip(wall["step"], launched.sidecars[0].capture.step_wall_ns, strict=True):
        assert 0 < of_trace <= of_driver
    parts = [values for phase, values in wall.items() if phase != "step"]
    assert [sum(step) for step in zip(*parts, strict=True)] == list(wall["step"])


@pytest.mark.nsys
def test_both_collectors_name_the_same_phases_and_steps(measure):
    try:
        tool = find_nsys()
    except MeasurementError as error:
        pytest.skip(f"{error.seen}: sh scripts/install-nsys.sh")
    of_torch = extract(measure(Collector.TORCH).trace_paths)
    of_nsys = extract(measure(Collector.NSYS, tool=tool).trace_paths)
    assert (of_torch.trace.collector, of_nsys.trace.collector) == ("torch", "nsys")
    assert of_torch.step_count == of_nsys.step_count == STEPS
    assert {(one.phase, one.metric) for one in of_torch.series} == {(one.phase, one.metric) for one in of_nsys.series}


def test_hostile_names_and_a_pass_that_ends_inside_the_window(measure):
    """Names survive Kineto's lack of escaping; the step that found no more data is no step."""
    launched = measure(Collector.TORCH, source=PROGRAM)
    extraction = extract(launched.trace_paths)
    assert extraction.step_count == STEPS
    assert extraction.dropped_step_count == 1
    assert set(wall_times(extraction)) == {"step", "unmarked", "data", *HOSTILE}


def test_a_recorded_trace_of_torch_2_13():
    path = ROOT / "tests/traces/kineto_cpu/tiny_torch2.13.json.gz"
    extraction = extract([path])
    assert extraction.trace.collector_version == "2.13.0+cpu"
    assert extraction.step_count == 2
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=str)
    for phase, (*_, last) in wall_times(extraction).items():
        if phase in PHASES - {"step", "unmarked"}:
            ranges = [e for e in document["traceEvents"] if e["name"] == f"perfci:{phase}"]
            assert last == int(ranges[-1]["dur"].replace(".", ""))
    private = (b"/tmp", b"/root", b"/home", b"host_name", shutil.which("python3").encode())
    assert not [word for word in private if word in gzip.decompress(path.read_bytes())]
