"""What one launch becomes, with the launch itself played."""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from git_sandbox import Sandbox
from heard import Heard

import perfci.pipeline.bench as bench_module
from perfci.capture.launch import Launched
from perfci.capture.nvml import ClockReason, GpuFacts, GpuReading
from perfci.config.load import load_project
from perfci.model.run import Revision, Run
from perfci.model.settings import Collector
from perfci.model.sidecar import Sidecar, SidecarStatus, StepTimes
from perfci.pipeline.bench import Bench, Place

TWO_RANKS = Path(__file__).parents[1] / "traces" / "cpu_two_ranks_start_end_nsys2022.4.sqlite.gz"
GPU = GpuFacts(index=0, uuid="GPU-00aa-77", model="NVIDIA H200")


def sidecar(rank: int, world_size: int) -> Sidecar:
    times = StepTimes(clock="host", step_wall_ns=(5_000_000, 5_100_000))
    return Sidecar(
        status=SidecarStatus.COMPLETE,
        reason="",
        rank=rank,
        world_size=world_size,
        collector="nvtx",
        marks="nvtx",
        asked_warmup_steps=0,
        asked_wall_steps=2,
        asked_capture_steps=2,
        steady=True,
        warmup=StepTimes(clock="host", step_wall_ns=()),
        wall=times,
        capture=times,
        losses=(),
        not_finite_losses=(),
        versions=(),
    )


@pytest.fixture
def launch_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """``launch_of(ranks, nvml=…, doing=…)``: the run that the bench makes of a recorded launch of two ranks."""

    def made(world_size: int, *, nvml: object = None, doing: Callable[[], object] = lambda: None) -> Run:
        (tmp_path / "perfci.yaml").write_text("workloads:\n  - name: train\n    command: python train.py\n")
        (workload,) = load_project(tmp_path / "perfci.yaml").select(())
        launched = Launched(
            collector=Collector.NSYS,
            trace_paths=(Path(shutil.copy(TWO_RANKS, tmp_path / "trace.sqlite.gz")),),
            report_path=tmp_path / "report.nsys-rep",
            sidecars=tuple(sidecar(rank, world_size) for rank in range(world_size)),
            log_path=tmp_path / "launch.log",
            started_at=datetime(2026, 1, 1, tzinfo=UTC),
            duration_ns=10**10,
        )

        def launch(*_: object, **__: object) -> Launched:
            doing()
            return launched

        monkeypatch.setattr(bench_module, "launch", launch)
        bench = Bench(
            tool=None,
            nvml=nvml,  # type: ignore[arg-type]
            gpus=() if nvml is None else (GPU,),
            locked_mhz=None,
            user_key=(),
            progress=Heard(),
        )
        place = Place(
            checkout=tmp_path,
            private=tmp_path,
            revision=Revision(label="main"),
            folder=tmp_path,
            schedule="s",
            pair=0,
            position=0,
            seed=None,
        )
        return bench.run_once(workload, place)

    return made


@pytest.mark.parametrize(("world_size", "spoiled"), [(2, False), (3, True)])
def test_a_rank_that_reported_and_is_not_in_the_trace_spoils_the_run(
    launch_of: Callable[..., Run], world_size: int, spoiled: bool
) -> None:
    """Two ranks' kernels against three ranks' would be an improvement."""
    run = launch_of(world_size)
    assert run.environment.get("world_size") == str(world_size)
    assert run.spoiled is spoiled
    assert [note.text for note in run.notes if note.spoils] == [
        "the trace holds 2 of 3 ranks: the numbers of the whole run are not known"
    ] * spoiled


@pytest.mark.parametrize(("stranger", "codes"), [(None, []), (1, ["foreign-process"])])
def test_another_process_on_the_gpu_spoils_the_run(
    launch_of: Callable[..., Run], stranger: int | None, codes: list[str]
) -> None:
    reading = GpuReading(
        sm_clock_mhz=1980,
        utilization_percent=0,
        clock_reasons=ClockReason(0),
        processes=(os.getpid(), stranger or os.getpid()),
    )
    nvml = SimpleNamespace(read=lambda _uuid: reading, driver=lambda: "580.95")
    run = launch_of(2, nvml=nvml)
    assert [note.code for note in run.notes if note.spoils] == codes
    assert run.environment.get("driver") == "580.95"


def test_tracked_files_that_a_launch_changes_are_put_back_and_said(
    launch_of: Callable[..., Run], tmp_path: Path
) -> None:
    Sandbox(tmp_path).commit("all", **{f"{name}.py": "1\n" for name in "abcd"})
    assert [note.code for note in launch_of(2).notes if note.code == "files-put-back"] == []

    def rewrite() -> None:
        for name in "abcd":
            (tmp_path / f"{name}.py").write_text("2\n")

    (note,) = [note for note in launch_of(2, doing=rewrite).notes if note.code == "files-put-back"]
    assert "changed tracked files (a.py, b.py, c.py, …)" in note.text
    assert not note.spoils
    assert (tmp_path / "d.py").read_text() == "1\n"
