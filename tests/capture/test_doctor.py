"""The doctor's table: one situation a row, and the real machine."""

import dataclasses
import os
from pathlib import Path

import pytest
from git_sandbox import Sandbox

from perfci.capture.checks import Status
from perfci.capture.doctor import Nsys, Seen, Wanted, judge, look, run_checks
from perfci.capture.environment import HostFacts
from perfci.capture.measurable import WITHOUT_GPU, WantedGate
from perfci.capture.nsys import NsysTool
from perfci.capture.nvml import GpuFacts
from perfci.errors import MeasurementError
from perfci.model.metrics import METRICS, Source
from perfci.model.settings import Collector, Gate

HEALTHY = Seen(
    host=HostFacts(kernel="6.1", usable_cpus=frozenset(range(16)), container="me/train:3"),
    python=(3, 11, 7),
    git_version="2.39.5",
    nsys=Nsys(path="/opt/nsys", version="2025.3.1"),
    driver="580.95",
    gpus=(GpuFacts(index=0, uuid="GPU-1", model="NVIDIA H200"),),
    torch_version="2.13.0+cu130",
    torch_cuda="13.0",
    nvtx_version="0.2.11",
    database=".perfci/perfci.db",
    lock_folder="/run/lock/perfci",
    free_bytes=100 << 30,
    perf_event_paranoid=2,
    counters_for_root_only=True,
)


TOOL = NsysTool(path=Path("/x/nsys"), version="2025.3.1")


def missing():
    raise MeasurementError("nsys is not installed", todo="install it so")


def find(name, seen):
    return next(check for check in judge(seen, Wanted()) if check.name == name)


def test_a_healthy_machine():
    checks = judge(HEALTHY, Wanted())
    assert [check.name for check in checks] == [
        "python", "git", "repository", "nsys", "gpu", "torch", "nvtx", "database", "lock folder", "disk",
        "perf events", "GPU counters", "container",
    ]  # fmt: skip
    assert {check.status for check in checks} == {Status.OK}
    assert not any(check.todo for check in checks)
    assert find("gpu", HEALTHY).seen == "0: NVIDIA H200; driver 580.95"


@pytest.mark.parametrize(
    ("name", "change", "status", "seen", "todo"),
    [
        ("python", {"python": (3, 10, 2)}, "fail", "3.10.2", "Python 3.11"),
        ("git", {"git_version": None}, "fail", "not found", "apt-get install git"),
        ("git", {"git_version": "2.17.1"}, "warn", "2.17.1", "2.31"),
        ("git", {"git_version": "2.39.3 (Apple Git-146)"}, "ok", "2.39.3", ""),
        ("repository", {"repository_problem": "not in a git repository"}, "warn", "not in a git", "inside a git"),
        ("nsys", {"nsys": Nsys(problem="nsys was not found")}, "warn", "not found", "PERFCI_NSYS"),
        ("nsys", {"nsys": Nsys(problem="broken", todo="mend it")}, "warn", "broken", "mend it"),
        ("nsys", {"nsys": Nsys(problem="none"), "torch_version": None}, "fail", "none", "Nsight Systems"),
        ("gpu", {"gpus": ()}, "warn", "no NVIDIA GPU", "--gpus all"),
        ("torch", {"torch_version": None}, "warn", "not installed", "pip install torch"),
        ("torch", {"torch_cuda": None}, "warn", "built for CPU only", "CUDA build"),
        ("torch", {"torch_cuda": None, "gpus": ()}, "ok", "built for CPU only", ""),
        ("nvtx", {"nvtx_version": None}, "ok", "not installed", ""),
        ("nvtx", {"nvtx_version": None, "torch_cuda": None}, "fail", "not installed", "pip install 'nvtx<=0.2.11'"),
        ("nvtx", {"nvtx_version": "0.2.13", "torch_cuda": None}, "warn", "0.2.13", "nvtx<=0.2.11"),
        ("nvtx", {"nvtx_version": "0.2.13"}, "ok", "0.2.13", ""),
        ("database", {"database_problem": "/x is not writable"}, "fail", "not writable", "--db"),
        ("lock folder", {"lock_problem": "/run is not writable"}, "fail", "not writable", "PERFCI_LOCK_DIR"),
        ("disk", {"free_bytes": 1 << 30}, "warn", "1.0 GiB", "free some"),
        ("disk", {"free_bytes": 1 << 20}, "fail", "0.0 GiB", "free some"),
        ("disk", {"free_bytes": None}, "warn", "not known", ""),
        ("perf events", {"perf_event_paranoid": 4}, "warn", "= 4", "sysctl kernel.perf_event_paranoid=2"),
        ("perf events", {"perf_event_paranoid": 4, "root_user": True}, "ok", "= 4", ""),
        ("container", {"host": HostFacts(kernel="x", usable_cpus=frozenset({0}))}, "ok", "none", ""),
    ],
)  # fmt: skip
def test_one_thing_wrong(name, change, status, seen, todo):
    check = find(name, dataclasses.replace(HEALTHY, **change))
    assert check.status == status
    assert seen in check.seen
    assert (todo in check.todo) if todo else check.todo == ""


def test_what_is_not_there_has_no_line():
    nothing = dataclasses.replace(HEALTHY, database="", perf_event_paranoid=None, counters_for_root_only=None)
    assert not {"database", "perf events", "GPU counters"} & {check.name for check in judge(nothing, Wanted())}


def test_the_real_machine(tmp_path):
    box = Sandbox(tmp_path / "repo")
    checks = run_checks(box.root, find_nsys=lambda: TOOL, database=box.root / ".perfci/perfci.db")
    by_name = {check.name: check for check in checks}
    for name in ("python", "git", "repository", "nsys", "database", "lock folder"):
        assert by_name[name].status is Status.OK, by_name[name]
    assert not (box.root / ".perfci").exists()  # looking changes nothing
    outside = {c.name: c for c in run_checks(tmp_path, find_nsys=missing)}
    assert "not in a git repository" in outside["repository"].seen
    assert (outside["nsys"].seen, outside["nsys"].todo) == ("nsys is not installed", "install it so")
    assert "database" not in outside


def test_no_git_is_a_finding_not_a_crash(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    seen = look(tmp_path, find_nsys=missing)
    assert seen.git_version is None
    assert find("git", seen).status is Status.FAIL


def test_facts_from_proc(tmp_path):
    for name, text in {
        "proc/sys/kernel/perf_event_paranoid": "3\n",
        "proc/driver/nvidia/params": "EnableMSI: 1\nRmProfilingAdminOnly: 1\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = look(tmp_path, find_nsys=missing, root=tmp_path)
    assert (seen.perf_event_paranoid, seen.counters_for_root_only) == (3, True)
    (tmp_path / "proc/driver/nvidia/params").write_text("RmProfilingAdminOnly: 0\n")
    assert look(tmp_path, find_nsys=missing, root=tmp_path).counters_for_root_only is False


def test_places_that_cannot_hold_a_database(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path, tmp_path / "file/perfci.db"):
        assert look(tmp_path, find_nsys=missing, database=place).database_problem
    for place in (tmp_path / "file", tmp_path / "new/deep/perfci.db"):
        assert not look(tmp_path, find_nsys=missing, database=place).database_problem


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_read_only_place(tmp_path):
    tmp_path.chmod(0o555)
    assert "not writable" in look(tmp_path, find_nsys=missing, database=tmp_path / "x/db").database_problem
    tmp_path.chmod(0o755)


def gates(seen, *wanted, collector=Collector.AUTO):
    asked = Wanted(collector=collector, gates=wanted)
    return [check for check in judge(seen, asked) if check.name == "gates"]


def wanted(metric, *, phase="step", workload="*", **more):
    return WantedGate(gate=Gate(metric=metric, phase=phase, workload=workload, required=True), **more)


def test_gates_that_need_a_gpu_are_told_where_there_is_none():
    asked = (
        wanted("gpu_busy_ns", phase="forward"),
        wanted("unprofiled_wall_ns"),
        wanted("sync_count", workload="gpt"),
        wanted("sync_count", workload="gpt"),
    )
    (check,) = gates(dataclasses.replace(HEALTHY, gpus=()), *asked)
    assert check.status is Status.WARN
    assert check.seen.startswith("gpu_busy_ns (forward), sync_count (step) of gpt: cannot be measured here")
    assert "GPU" in check.seen
    assert "never green" in check.todo
    (check,) = gates(HEALTHY, *asked)
    assert (check.status, check.seen.split()[0]) == (Status.OK, "4")
    assert gates(HEALTHY) == []


@pytest.mark.parametrize(
    ("metric", "change", "seen", "todo"),
    [
        ("wall_ns", {"nsys": Nsys(problem="no nsys"), "torch_version": None}, "no profiler: no nsys", "install nsys"),
        ("energy_per_step_uj", {"gpus": (GpuFacts(index=0, uuid="G", model="H200", mig=True),)}, "MIG", "whole GPU"),
        ("cpu_instructions_per_step", {"perf_event_paranoid": 4}, "CPU instructions", "perf events"),
    ],
)
def test_other_reasons_why_a_gate_cannot_be_measured(metric, change, seen, todo):
    (check,) = gates(dataclasses.replace(HEALTHY, **change), wanted(metric), wanted("unprofiled_wall_ns"))
    assert check.status is Status.WARN
    assert check.seen.startswith(f"{metric} (step): cannot")
    assert seen in check.seen
    assert todo in check.todo


def test_without_nsys_torch_measures_unless_nsys_is_demanded():
    seen = dataclasses.replace(HEALTHY, nsys=Nsys(problem="no nsys"))
    (check,) = gates(seen, wanted("sync_count"))
    assert check.status is Status.OK
    (check,) = gates(seen, wanted("sync_count"), wanted("unprofiled_wall_ns"), collector=Collector.NSYS)
    assert check.seen.startswith("sync_count (step): cannot")
    nsys = next(c for c in judge(seen, Wanted(collector=Collector.NSYS)) if c.name == "nsys")
    assert nsys.status is Status.FAIL


def test_no_unprofiled_step_no_unprofiled_time():
    (check,) = gates(HEALTHY, wanted("unprofiled_wall_ns", unprofiled_steps=False))
    assert "wall_steps" in check.seen
    assert "above 0" in check.todo


def test_many_gates_are_cut():
    names = [name for name, metric in METRICS.items() if metric.source is Source.TRACE and name not in WITHOUT_GPU]
    (check,) = gates(dataclasses.replace(HEALTHY, gpus=()), *map(wanted, names))
    assert f"and {len(names) - 5} more" in check.seen
