"""What a launch without a report or with a broken one says. The words of nsys are recorded from real runs."""

import os
from pathlib import Path

import pytest

import perfci.capture.launch as launch_module
from perfci.capture.export import last_lines
from perfci.capture.failures import Remains, launch_failure, nsys_broke, qdstrm_in
from perfci.capture.launch import chosen_collector, launch
from perfci.errors import MeasurementError
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec
from perfci.model.sidecar import Sidecar, SidecarStatus, StepTimes
from perfci.phases.driver import KILLED

TIMES = StepTimes(clock="host", step_wall_ns=(5,))
AGENT_LOST = "Connection to the Agent lost.\nConnection to the Agent lost.\n"
SEM_OPEN = "ProcessWaiterImpl.cpp(166): Throw in function QuadDCommon::ProcessWaiter\n[boost::errinfo] = sem_open\n"


def sidecar(status=SidecarStatus.COMPLETE, *, rank=0, world=1, reason=""):
    return Sidecar(
        status=status,
        reason=reason,
        rank=rank,
        world_size=world,
        collector="nvtx",
        marks="nvtx",
        asked_warmup_steps=1,
        asked_wall_steps=2,
        asked_capture_steps=3,
        steady=True,
        warmup=TIMES,
        wall=TIMES,
        capture=TIMES,
        losses=(),
        not_finite_losses=(),
        versions=(),
    )


def remains(**changes):
    whole = {
        "exit_code": 0,
        "timeout_s": 60.0,
        "log": "",
        "log_path": Path("/o/launch.log"),
        "sidecars": (sidecar(),),
        "trace": Path("/o/report.nsys-rep"),
        "trace_exists": True,
    }
    return Remains(**{**whole, **changes})


def test_a_whole_launch_is_no_failure():
    assert launch_failure(remains()) is None


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"exit_code": None}, "ended after 60 s; all steps were measured, and what follows them did not end"),
        (
            {"exit_code": None, "sidecars": (sidecar(SidecarStatus.ABORTED, reason=KILLED),)},
            "still in its training loop",
        ),
        ({"exit_code": None, "sidecars": (), "autophase": True}, "it had not reached its first steps"),
        ({"exit_code": None, "sidecars": ()}, "it had not reached phases.loop"),
        ({"exit_code": 134, "trace_exists": False}, "exit code 134, signal SIGABRT"),
        ({"exit_code": -9}, "signal SIGKILL"),
        (
            {"exit_code": 1, "sidecars": (), "log": "unrecognised option '--wait=x'\n"},
            "does not know the option --wait",
        ),
        (
            {"exit_code": 1, "sidecars": (), "log": "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES (35)\n"},
            "nsys may not trace CUDA here",
        ),
        ({"trace_exists": False, "log": "CUDA profiling was not started correctly.\n"}, "nsys may not trace CUDA here"),
        ({"exit_code": 1, "sidecars": (), "log": "Program not found: nosuch\n"}, "does not find the program nosuch"),
        ({"sidecars": ()}, "never entered phases.loop"),
        (
            {"sidecars": (sidecar(SidecarStatus.SHORT, reason="the data ended"),)},
            "before the asked steps: the data ended",
        ),
        ({"sidecars": (sidecar(rank=1, world=2),)}, "1 of 2 ranks reported"),
        ({"trace_exists": False}, "no trace was written"),
        ({"trace_exists": False, "log": "No reports were generated\n"}, "No reports were generated"),
        ({"trace_exists": False, "log": "write: No space left on device"}, "the disk filled up"),
        ({"trace_exists": False, "disk_full": True}, "the disk filled up"),
        ({"trace_exists": False, "raw_recording": Path("/o/report.qdstrm")}, "raw recording is kept: /o/report.qdstrm"),
    ],
)
def test_each_failure_says_what_was_seen_and_names_the_log(changes, seen):
    error = launch_failure(remains(**changes))
    assert error is not None
    assert seen in error.seen
    assert "/o/launch.log" in error.seen
    assert error.todo


def test_the_last_words_are_the_workload_s_and_not_what_nsys_always_says():
    """The last line stands in the headline of a comparison."""
    usual = (
        "Generating '/tmp/nsys-report-0286.qdstrm'\nCapture range ended in the application.\n"
        "[1/1] [0%                          ] report.nsys-rep\r[1/1] [=======100%] report.nsys-rep\n"
        "Generated:\n    /runs/000-t/report.nsys-rep\n"
    )
    failed = launch_failure(remains(exit_code=2, log=f"python: can't open file 'train.py'\n{usual}"))
    silent = launch_failure(remains(exit_code=2, log=usual))
    assert failed is not None
    assert silent is not None
    assert failed.seen.endswith("its last lines:\n    python: can't open file 'train.py'")
    assert silent.seen.endswith("the workload printed nothing")


def test_the_rank_that_failed_is_quoted_not_those_that_were_killed_for_it():
    ranks = (
        sidecar(SidecarStatus.ABORTED, rank=0, world=2, reason="the process was killed"),
        sidecar(SidecarStatus.ABORTED, rank=1, world=2, reason="ValueError: no such layer"),
    )
    error = launch_failure(remains(exit_code=1, sidecars=ranks))
    assert error is not None
    assert "exit code 1: ValueError: no such layer" in error.seen


def test_a_broken_nsys_is_told_from_a_broken_workload():
    for log in (AGENT_LOST, SEM_OPEN, "End of file\n", "Connection reset by peer\n[perfci: a note]\n"):
        assert nsys_broke(remains(log=log, sidecars=(), trace_exists=False))
        assert not nsys_broke(remains(log=log))
        assert not nsys_broke(remains(log=log, exit_code=None, trace_exists=False))
    for log in ("ValueError: no such layer", "EOFError: End of file reached", "OSError: Connection reset by peer"):
        assert not nsys_broke(remains(log=log, exit_code=1, trace_exists=False))


def test_the_raw_recording_is_found_in_the_log():
    assert qdstrm_in("x\nGenerating '/tmp/nsys-report-c207.qdstrm'\n[1/1]") == Path("/tmp/nsys-report-c207.qdstrm")
    assert qdstrm_in("nothing") is None


def test_progress_bars_are_reduced_to_their_last_state():
    assert last_lines("a\n[0%]\r[50%]\r[100%] done\n\n\nb\n") == "a\n    [100%] done\n    b"
    assert len(last_lines("x" * 10_000)) == 300


def test_nsys_asked_for_and_missing():
    assert chosen_collector(MeasureSettings(), None) is Collector.TORCH
    with pytest.raises(MeasurementError, match="nsys is not installed"):
        chosen_collector(MeasureSettings(collector=Collector.NSYS), None)


def test_a_program_or_folder_that_is_missing(measure, tmp_path):
    with pytest.raises(MeasurementError, match="'nosuchprogram' of workload program is not found"):
        measure("", python="nosuchprogram", collector=Collector.TORCH)
    (tmp_path / "checkout" / "tool").write_text("not executable")
    with pytest.raises(MeasurementError, match="must not be executed"):
        measure("", python="./tool", collector=Collector.TORCH)


def test_a_folder_that_cannot_be_written(measure, tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file" / "out", Path("/proc/perfci")):
        with pytest.raises(MeasurementError, match="cannot be written") as caught:
            measure("", collector=Collector.TORCH, out_dir=folder)
        assert caught.value.todo == "choose a folder that this user owns, or mend its permissions"


def test_a_launch_runs_on_the_cores_it_is_given_and_on_no_other(measure, tmp_path):
    last = max(os.sched_getaffinity(0))
    with pytest.raises(MeasurementError, match="it never entered"):
        measure("import os; print('on', os.sched_getaffinity(0))", collector=Collector.TORCH, cpus=(last,))
    assert f"on {{{last}}}" in (tmp_path / "out" / "launch.log").read_text()


def test_pinning_without_taskset_says_what_to_do(measure, monkeypatch):
    monkeypatch.setattr(launch_module.shutil, "which", lambda name, **_: None if name == "taskset" else f"/bin/{name}")
    with pytest.raises(MeasurementError, match="taskset is missing") as caught:
        measure("", collector=Collector.TORCH, cpus=(0,))
    assert "pin_cpus: false" in caught.value.todo


def test_a_disk_without_room_is_noticed_before_the_launch(measure, tmp_path, monkeypatch):
    monkeypatch.setattr(launch_module, "MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(MeasurementError, match="MiB are free"):
        measure("open('ran', 'w')", collector=Collector.TORCH)
    assert not (tmp_path / "checkout" / "ran").exists()


def test_a_forged_sidecar_is_refused(measure):
    forged = "import os; open(os.environ['PERFCI_SIDECAR'], 'w').write('{\"schema_version\": 1, \"rank\": NaN}')"
    with pytest.raises(MeasurementError, match="is not valid"):
        measure(forged, collector=Collector.TORCH)


def test_a_checkout_that_a_launch_deleted_is_told_as_such(tmp_path):
    workload = WorkloadSpec(name="w", command=("python", "x.py"), directory="sub")
    with pytest.raises(MeasurementError, match="is gone: an earlier launch of w"):
        launch(
            workload,
            MeasureSettings(collector=Collector.TORCH),
            checkout=tmp_path / "deleted",
            out_dir=tmp_path / "out",
            tool=None,
            has_cuda=False,
        )


@pytest.mark.parametrize("collector", [Collector.TORCH, Collector.NSYS])
def test_a_workload_that_deletes_the_folder_of_its_launch_is_told_as_such(request, measure, collector):
    tool = request.getfixturevalue("nsys") if collector is Collector.NSYS else None
    program = "import os, shutil\nshutil.rmtree(os.path.dirname(os.environ['PERFCI_SIDECAR']))\n"
    with pytest.raises(MeasurementError, match="was emptied or deleted while it ran"):
        measure(program, tool=tool, collector=collector)
