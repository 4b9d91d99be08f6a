"""Every canonical workload trains on the CPU: phases, golden losses, the same losses again and under faults.py none."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from workload_plan import plan

from perfci.capture.launch import launch
from perfci.model.settings import Collector
from perfci.probe.locations import LocationKind, environment, read_locations

pytestmark = pytest.mark.torch
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
STEPS = {"forward", "backward", "optimizer"}  # on the CPU there may be nothing to be done in h2d
OWN_PHASES = {"unet-diffusion": {"ema"}, "eval": {"validation"}}
IN_ONE_PROCESS = [
    "bert-finetune", "dlrm", "eval", "gpt", "loader-bound", "resnet", "rnn", "tiny", "unet-diffusion",
]  # fmt: skip
LAUNCHERS = ["ddp-gpt", "gpt-compile"]
WITHOUT_GOLDEN = "tiny"  # the demo changes what it computes


def golden(spec, losses):
    """Whether losses stay in the band of the workload, as the judge asks it."""
    return spec.golden_losses and all(
        abs(seen - wanted) <= spec.loss_tolerance_ratio * abs(wanted)
        for seen, wanted in zip(losses, spec.golden_losses, strict=False)
    )


def test_all_are_here(project):
    assert sorted(project.workload_names()) == sorted(IN_ONE_PROCESS + LAUNCHERS)


def test_every_definition_is_complete(project):
    for preset in ("cpu-smoke", "gpu"):
        for workload in project.select(preset=preset):
            assert workload.title, workload.spec.name
            assert workload.owner
            assert workload.spec.tags
            assert workload.measure.capture_steps >= 10
    assert {w.spec.name.partition("@")[0] for w in project.select(["tag:canonical"])} == {
        *IN_ONE_PROCESS,
        *LAUNCHERS,
    } - {"tiny"}


@pytest.mark.parametrize("name", [*IN_ONE_PROCESS, *LAUNCHERS])
def test_environment_variables_of_presets_are_read_by_the_script(project, name):
    for preset in ("cpu-smoke", "gpu"):
        (workload,) = project.select([name], preset=preset)
        script = (ROOT / workload.spec.directory / "train.py").read_text()
        asked = {variable for variable, _ in workload.spec.environment} - {"OMP_NUM_THREADS"}
        assert asked <= set(re.findall(r'"([A-Z]+_[A-Z]+)"', script))


@pytest.mark.parametrize("name", IN_ONE_PROCESS)
def test_workload_trains_as_the_golden_losses_say(zygote, project, checkout, tmp_path, name):
    (workload,) = project.select([name], preset="cpu-smoke")
    spec, directory = workload.spec, checkout / workload.spec.directory
    env = dict(spec.environment)
    assert env["OMP_NUM_THREADS"] == "1"  # as in the zygote
    code, text = zygote.run(
        ["train.py"], cwd=directory, log=tmp_path / "log", env=env | plan(tmp_path / "plain", warmup=5, wall=5)
    )
    assert code == 0, text
    plain = json.loads((tmp_path / "plain" / "sidecar.json").read_text())
    assert plain["status"] == "complete", plain["reason"]
    assert len(plain["losses"]) == 10
    assert all(loss is not None and math.isfinite(loss) for loss in plain["losses"])
    assert plain["windows"]["wall"]["samples"] > 0
    assert golden(spec, plain["losses"]) or name == WITHOUT_GOLDEN, plain["losses"]

    probed = plan(tmp_path / "again", warmup=3, wall=2, capture=5, probe=checkout)
    argv = [checkout / "workloads" / "faults.py", "none", "train.py"]
    code, text = zygote.run(argv, cwd=directory, log=tmp_path / "log", env=env | probed)
    assert code == 0, text
    again = json.loads((tmp_path / "again" / "sidecar.json").read_text())
    assert again["losses"] == plain["losses"]  # to the bit: neither faults.py nor the probe changes the training
    locations = read_locations([tmp_path / "again" / "trace.json"], checkout)
    assert {x.phases[0] for x in locations if x.phases} - {"data", "h2d"} == STEPS | OWN_PHASES.get(name, set())
    own = f"{spec.directory}/train.py"
    assert {x.path for x in locations if x.phases and x.phases[0] != "data"} == {own}


def test_script_ends_by_itself_outside_of_perfci(zygote, checkout, tmp_path):
    env = {"RNN_WIDTH": "4", "RNN_BATCH": "2", "RNN_LENGTH": "2"}
    script = checkout / "workloads" / "rnn" / "train.py"
    assert zygote.run([script], cwd=script.parent, log=tmp_path / "log", env=env) == (0, "")


def test_compiled_workload(project, checkout, tmp_path):
    compiler = os.environ.get("CXX", "g++")
    if shutil.which(compiler) is None:
        pytest.skip(f"torch.compile needs a C++ compiler, and {compiler} is not installed")
    (workload,) = project.select(["gpt-compile"], preset="cpu-smoke")
    directory = checkout / workload.spec.directory
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        **dict(workload.spec.environment),
        **plan(tmp_path, warmup=4, wall=4, capture=2, probe=checkout),
    }
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=directory, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sidecar = json.loads((tmp_path / "sidecar.json").read_text())
    assert sidecar["status"] == "complete"
    assert golden(workload.spec, sidecar["losses"]), sidecar["losses"]
    assert list((tmp_path / "cache").rglob("*.so")), "nothing was compiled"
    locations = read_locations([tmp_path / "trace.json"], checkout)  # under the probe it ran as it is written
    assert "x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))" in {x.text for x in locations}


def test_two_ranks_through_the_runner(project, checkout, tmp_path):
    """The way the pipeline goes: launch under the probe, read the places of both ranks."""
    (workload,) = project.select(["ddp-gpt"], preset="cpu-smoke")
    settings = replace(workload.measure, collector=Collector.TORCH, warmup_steps=4, wall_steps=4, capture_steps=2)
    launched = launch(
        workload.spec,
        settings,
        checkout=checkout,
        out_dir=tmp_path / "out",
        tool=None,
        has_cuda=False,
        extra_environment=environment(checkout),
    )
    assert [s.world_size for s in launched.sidecars] == [2, 2]
    first, second = (s.losses for s in launched.sidecars)
    assert golden(workload.spec, first), first
    assert first != second  # every rank has its own data
    assert len(launched.trace_paths) == 2
    locations = read_locations(launched.trace_paths, checkout)
    reduced = [x for x in locations if x.kind is LocationKind.OPERATOR and "allreduce" in x.name]
    assert {x.phases for x in reduced} <= {("backward",)}
    (step,) = {x.count_per_step for x in locations if x.text == "optimizer.step()" and "addcdiv" in x.name}
    assert step > 0


def test_the_page_names_every_workload(project):
    rows = re.findall(r"^\| `([\w-]+)` \|", (ROOT / "docs" / "workloads.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(project.workload_names())
