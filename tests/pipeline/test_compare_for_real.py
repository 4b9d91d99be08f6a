"""The main job with real launches under the real nsys: measure two revisions, judge, explain, and clean up."""

import json
import signal
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from repository import CONFIG, Repository, rows_of

from perfci.capture.nsys import find_nsys
from perfci.errors import MeasurementError


def nsys_is_missing() -> str:
    try:
        find_nsys()
    except MeasurementError as error:
        return str(error)
    return ""


pytestmark = [pytest.mark.nsys, pytest.mark.skipif(bool(nsys_is_missing()), reason=nsys_is_missing() or "nsys")]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def test_a_slower_phase_is_measured_judged_named_and_stored(repository: Repository, tmp_path: Path) -> None:
    repository.branch("slow", forward_s=0.02)
    (repository.root / "notes.txt").write_text("mine, untracked\n")
    before = {p: p.read_bytes() for p in repository.root.iterdir() if p.is_file()}
    head = repository.git("rev-parse", "HEAD")

    out = tmp_path / "out"
    files = [word for suffix in ("md", "xml", "html") for word in ("-o", str(out / f"report.{suffix}"))]
    done = repository.perfci("compare", "main..slow", "--measure", *files)
    assert done.returncode == 3, done.stderr
    assert "forward" in done.stdout.split("checks:")[0], "the headline must name the phase"
    assert "REGRESSION" in done.stdout
    assert ET.parse(out / "report.xml").getroot().tag == "testsuites"
    assert (out / "report.md").read_text()
    assert "<svg" in (out / "report.html").read_text()
    assert "report page:" in done.stderr

    assert repository.git("rev-parse", "HEAD") == head
    assert {p: p.read_bytes() for p in repository.root.iterdir() if p.is_file()} == before
    assert len(repository.worktrees()) == 1

    again = repository.perfci("compare", "main..slow", "-f", "json")
    assert again.returncode == 3, again.stderr
    rows = rows_of(again.stdout)
    assert rows["step", "unprofiled_wall_ns"]["verdict"] == "REGRESSION"
    assert rows["forward", "wall_ns"]["verdict"] == "REGRESSION"
    assert rows["forward", "wall_ns"]["effect"]["value_ratio"] > 1
    assert rows["backward", "wall_ns"]["verdict"] is None
    mirrored = rows_of(repository.perfci("compare", "slow..main", "-f", "json").stdout)
    assert mirrored["step", "unprofiled_wall_ns"]["verdict"] == "IMPROVEMENT"

    nothing_to_do = repository.perfci("compare", "main..slow", "--measure", "-f", "json")
    assert "nothing to launch" in nothing_to_do.stderr
    assert rows_of(nothing_to_do.stdout) == rows


def test_interrupt_leaves_no_worktree_no_process_and_keeps_what_was_measured(repository: Repository) -> None:
    repository.branch("slow", forward_s=0.02)
    child = repository.start("compare", "main..slow", "--measure", "--seed", "1")
    assert child.stderr is not None
    for line in child.stderr:
        if "step" in line and "launch 1 of 6" in line:
            break
    time.sleep(0.5)
    child.send_signal(signal.SIGINT)
    assert child.wait(timeout=60) == 130
    assert len(repository.worktrees()) == 1
    assert not list((repository.root / ".perfci" / "worktrees").glob("*.[0-9]"))
    left = [p for p in Path("/proc").iterdir() if p.name.isdigit() and _runs_in(p, repository.root)]
    assert left == []
    stored = repository.perfci("compare", "main..slow", "-f", "json")
    (workload,) = json.loads(stored.stdout)["workloads"]
    assert workload["baseline_launches"] + workload["candidate_launches"] >= 1


def _runs_in(process: Path, folder: Path) -> bool:
    try:
        return str(folder) in (process / "cwd").readlink().as_posix()
    except OSError:
        return False


def test_a_side_that_crashes_is_not_measured_and_the_log_is_named(repository: Repository) -> None:
    repository.git("switch", "--quiet", "-c", "broken")
    repository.write("train.py", "raise SystemExit('the new loss is not a number')\n")
    repository.commit("broken", forward_s=0.004)
    repository.git("switch", "--quiet", "main")
    done = repository.perfci("compare", "main..broken", "--measure", "--seed", "1", "-f", "json")
    assert done.returncode == 5, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "NOT_MEASURED"
    assert "the new loss is not a number" in done.stderr
    log = next(line for line in done.stderr.splitlines() if "launch.log" in line).split()[-1]
    assert Path(log).is_file()


def test_run_then_stand_in_then_reviewed_baseline(repository: Repository) -> None:
    measured = repository.perfci("run", "-n", "4")
    assert measured.returncode == 0, measured.stderr
    assert "forward" in measured.stdout
    first = repository.git("rev-parse", "HEAD")
    repository.write("README", "x")
    repository.commit("unmeasured", forward_s=0.004)
    repository.git("switch", "--quiet", "-c", "slow")
    repository.commit("slower", forward_s=0.02)
    assert repository.perfci("run", "-n", "4").returncode == 0

    stood_in = json.loads(repository.perfci("compare", "main..slow", "-f", "json").stdout)
    (workload,) = stood_in["workloads"]
    (note,) = [note for note in workload["notes"] if note["code"] == "stand-in-baseline"]
    assert first[:10] in note["text"]
    assert "1 commit" in note["text"]

    assert repository.perfci("baseline", "show").stdout.startswith("no baseline files")
    refused = repository.perfci("baseline", "accept", first, "--reason", " ")
    assert refused.returncode == 2
    accepted = repository.perfci("baseline", "accept", first, "--reason", "first numbers")
    assert accepted.returncode == 0, accepted.stderr
    shown = repository.perfci("baseline", "show").stdout
    assert [line.endswith("first numbers") for line in shown.splitlines()] == [True], "a file is one line"
    assert repository.perfci("baseline", "check").returncode == 0
    repository.git("add", "baselines")
    repository.git("commit", "--quiet", "-m", "Accept a baseline")
    against = repository.perfci("compare", f"@baseline..{repository.git('rev-parse', 'HEAD~1')}", "-f", "json")
    rows = rows_of(against.stdout)
    assert rows["step", "unprofiled_wall_ns"]["verdict"] == "REGRESSION", against.stderr
    assert rows["step", "unprofiled_wall_ns"]["reason"] == "cumulative"
    assert against.returncode == 3


def test_uncommitted_changes_are_refused_or_measured_as_such(repository: Repository) -> None:
    repository.write("cost.py", "FORWARD_S, BACKWARD_S = 0.001, 0.001\n")
    refused = repository.perfci("run")
    assert refused.returncode == 2
    assert "cost.py" in refused.stderr
    done = repository.perfci("run", "--dirty", "-f", "json")
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert run["revision"]["dirty"] is True
    assert (repository.root / "cost.py").read_text() == "FORWARD_S, BACKWARD_S = 0.001, 0.001\n"


def test_untracked_files_are_told_and_the_commit_is_measured(repository: Repository) -> None:
    repository.branch("slow", forward_s=0.02)
    repository.git("switch", "--quiet", "slow")
    repository.write("notes.txt", "mine")
    done = repository.perfci("run", "-f", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("(notes.txt): commit them, or measure with --dirty") == 1
    (run,) = json.loads(done.stdout)["runs"]
    assert run["revision"]["identity"] == repository.git("rev-parse", "HEAD")
    assert [note["code"] for note in run["notes"]] == ["untracked-files"]

    compared = repository.perfci("compare", "main..", "--measure", "--max-launches", "1", "-f", "json")
    notes = json.loads(compared.stdout)["notes"]
    assert [note["code"] for note in notes] == ["untracked-files"], compared.stderr

    folder = CONFIG.replace("command: python train.py", "command: python train.py, directory: fresh")
    repository.write("perfci.yaml", folder)
    repository.git("commit", "--quiet", "-a", "-m", "A folder of its own")
    (repository.root / "fresh").mkdir()
    repository.write("fresh/train.py", "not committed")
    failed = repository.perfci("run")
    assert failed.returncode == 5
    assert "fresh/, notes.txt" in failed.stderr
    assert "does not exist in this revision" in failed.stderr


def test_prepare_runs_once_per_revision_and_its_failure_is_told(repository: Repository) -> None:
    prepared = CONFIG.replace(
        "command: python train.py", "command: python train.py, prepare: [sh, -c, 'echo x > built']"
    )
    repository.write("perfci.yaml", prepared)
    repository.commit("prepare", forward_s=0.002)
    first = repository.perfci("run", "-n", "1")
    assert first.returncode == 0, first.stderr
    assert "prepared HEAD in" in first.stderr
    assert "prepared HEAD from the cache" in repository.perfci("run", "-n", "1").stderr
    repository.write("perfci.yaml", prepared.replace("echo x > built", "echo no compiler; exit 3"))
    repository.commit("broken prepare", forward_s=0.002)
    failed = repository.perfci("run")
    assert failed.returncode == 5
    assert "no compiler" in failed.stderr


def test_a_failing_workload_does_not_keep_the_others_from_being_measured(repository: Repository) -> None:
    steps = "warmup_steps: 2, wall_steps: 2, capture_steps: 2"
    bad = (
        f"  - {{name: bad, command: python -c 'raise SystemExit(3)', {steps}}}\n"
        f"  - {{name: unready, command: python train.py, prepare: [sh, -c, 'echo no compiler; exit 3'], {steps}}}\n"
    )
    repository.write("perfci.yaml", CONFIG.replace("workloads:\n", f"workloads:\n{bad}"))
    repository.commit("three workloads", forward_s=0.002)
    done = repository.perfci("run")
    assert done.returncode == 5
    assert "bad: given up" in done.stderr
    assert "unready: given up" in done.stderr
    assert "no compiler" in done.stderr
    assert "the launches that succeeded (1) are stored" in done.stderr
    stored = repository.perfci("compare", "HEAD..HEAD", "-w", "train", "-f", "json")
    (workload,) = json.loads(stored.stdout)["workloads"]
    assert workload["candidate_launches"] == 1


def test_calibration_stores_noise_floors(repository: Repository) -> None:
    done = repository.perfci("calibrate", "-n", "8", "-f", "json")
    assert done.returncode == 0, done.stderr
    (workload,) = json.loads(done.stdout)["workloads"]
    assert workload["launches"] == 8
    assert workload["splits"] == 16
    gated = {(f["phase"], f["metric"]) for f in workload["floors"] if f["gated"]}
    assert gated == {("step", "unprofiled_wall_ns"), ("forward", "wall_ns")}
    assert "false alarms:" in repository.perfci("calibrate", "-n", "8").stdout

    repository.branch("slow", forward_s=0.02)
    compared = repository.perfci("compare", "main..slow", "--measure", "--max-launches", "4")
    before_launches = compared.stderr.partition("launch 1 of 4")[0]
    for phase, metric in gated:
        assert f"train: {phase}/{metric} needs about" in before_launches, compared.stderr
    assert "calibrated with 8 launches" in before_launches
    assert compared.returncode == 3, compared.stderr  # with a floor four launches a side are enough to claim
