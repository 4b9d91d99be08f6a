"""The tiny workload and several ranks, with real torch, under nsys and under torch.profiler."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perfci.capture.launch import launch
from perfci.capture.sidecar import facts_of
from perfci.config.load import load_project
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
SETTINGS = {"warmup_steps": 2, "wall_steps": 4, "capture_steps": 6}
PHASES = {"data", "h2d", "forward", "backward", "optimizer"}


def tiny(tmp_path, collector, tool):
    workload = WorkloadSpec(
        name="tiny",
        command=("python", "train.py"),
        directory="workloads/tiny",
        environment=(("OMP_NUM_THREADS", "1"), ("TINY_LAYERS", "1")),
    )
    settings = MeasureSettings(**SETTINGS, collector=collector)
    return launch(workload, settings, checkout=ROOT, out_dir=tmp_path / "out", tool=tool, has_cuda=False, cpus=(0,))


def check_sidecar(launched):
    facts = facts_of(launched.sidecars)
    series = {s.metric: s.values for s in facts.series}
    assert len(series["unprofiled_wall_ns"]) == 4
    assert series["throughput_per_s"][0] > 0
    assert series["time_to_first_step_ns"][0] > 0
    assert "peak_allocated_bytes" not in series  # no GPU: not known, not zero
    assert dict(facts.environment)["torch"] == torch.__version__
    assert facts.losses[0] == pytest.approx(5.7, abs=0.3)  # close to ln(256), a model that knows nothing
    return facts


@pytest.mark.nsys
def test_tiny_under_nsys(tmp_path, nsys):
    launched = tiny(tmp_path, Collector.NSYS, nsys)
    check_sidecar(launched)
    with closing(sqlite3.connect(launched.trace_paths[0])) as database:
        counted = dict(
            database.execute(
                "SELECT coalesce(text, value), count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId GROUP BY 1"
            )
        )
    assert counted == {"perfci_capture": 1, "step": 6, **dict.fromkeys(PHASES, 6)}


def test_tiny_under_torch_profiler_and_with_equal_losses(tmp_path):
    first = tiny(tmp_path / "a", Collector.TORCH, None)
    losses = check_sidecar(first).losses
    assert first.report_path is None
    text = first.trace_paths[0].read_text()
    assert str(Path.home()) not in text
    assert str(tmp_path) not in text
    names = [event.get("name", "") for event in json.loads(text)["traceEvents"]]
    assert {name: names.count(f"perfci:{name}") for name in {"step", *PHASES}} == dict.fromkeys({"step", *PHASES}, 6)
    second = tiny(tmp_path / "b", Collector.AUTO, None)
    assert second.collector is Collector.TORCH
    shared = min(len(losses), len(second.sidecars[0].losses))
    assert losses[:shared] == second.sidecars[0].losses[:shared]


def test_the_workload_file_is_valid(tmp_path):
    (tmp_path / "perfci.yaml").write_text("workloads: [tiny]\n")
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "workload.yaml").write_text((ROOT / "workloads/tiny/workload.yaml").read_text())
    (workload,) = load_project(tmp_path / "perfci.yaml").select(())
    assert workload.spec.command == ("python", "train.py")
    assert workload.measure.capture_steps == 20


RANKS = """
import torch, torch.distributed as dist
from perfci import phases
dist.init_process_group("gloo")
grad = torch.ones(8)
for _ in phases.loop(range(100)):
    with phases.phase("backward"):
        dist.all_reduce(grad)
    phases.log_loss(grad[0])
dist.destroy_process_group()
"""


@pytest.mark.nsys
def test_two_ranks_of_torchrun_report_each_for_itself(measure, nsys):
    """One nsys around torchrun: both ranks in one export, one sidecar each."""
    command = ("python", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    launched = measure(RANKS, tool=nsys, command=(*command, "program.py"), environment=[("OMP_NUM_THREADS", "1")])
    assert [s.rank for s in launched.sidecars] == [0, 1]
    assert {s.world_size for s in launched.sidecars} == {2}
    assert all(len(s.capture.step_wall_ns) == 5 for s in launched.sidecars)
    with closing(sqlite3.connect(launched.trace_paths[0])) as database:
        per_process = database.execute(
            "SELECT globalTid >> 24, count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId "
            "WHERE coalesce(text, value) = 'step' GROUP BY 1"
        ).fetchall()
    assert [count for _, count in per_process] == [5, 5]
