"""`perfci baseline accept` and `check`: which launches are taken, what is told, what stays. Real store, real git."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from repository import CONFIG, Repository
from run_builder import ENVIRONMENT, run
from scipy import stats

from perfci.config.baselines import read_baselines, write_baseline
from perfci.errors import MeasurementError, UsageError
from perfci.model.environment import Environment
from perfci.model.metrics import Statistic
from perfci.model.run import Revision, Run
from perfci.pipeline.baselines import accept, doubts, pinned_levels, pinned_notes
from perfci.pipeline.workspace import open_workspace
from perfci.report.baselines import accepted_text
from perfci.stats.pinned import pin
from perfci.store.store import open_store

WALL = ("step", "unprofiled_wall_ns")
OTHER = Environment.of({**dict(ENVIRONMENT.entries), "driver": "570.9"})
WOBBLE = (1.0, 1.002, 0.999, 1.001)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def launches(commit: str, step_ns: float = 1e7, *, schedule: str = "s", days: int = 0, count: int = 4, **more):
    made = []
    for i in range(count):
        values = {WALL: step_ns * WOBBLE[i % 4], ("step", "kernel_count"): 10.0}
        one = run(values, schedule=schedule, pair=i, position=i, **{"workload": "train", **more})
        moved = replace(one.launch, started_at=one.launch.started_at + timedelta(days=days))
        made.append(replace(one, revision=Revision(label="main", commit=commit, tree="0" * 40), launch=moved))
    return made


def stored(repository: Repository, *runs: Run) -> None:
    with open_store(open_workspace(repository.root).project.database_url) as store:
        store.add_runs(runs)


def accepted(repository: Repository, revision: str = "main", *, workloads: tuple[str, ...] = ("train",), reason="why"):
    workspace = open_workspace(repository.root)
    with open_store(workspace.project.database_url) as store:
        return accept(workspace, store, revision=revision, workloads=workloads, reason=reason, on=date(2026, 2, 1))


def test_the_launches_taken_are_told_and_those_left_out_with_the_reason(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    stored(
        repository,
        *launches(head, 3e7, environment=OTHER, schedule="before"),
        *launches(head, days=1),
        *launches(head, 9e7, days=2, schedule="later", count=2, spoiled=True),
    )
    (view,) = accepted(repository)
    told = " ".join(accepted_text([view]).split())
    assert "train at main, 4 launches on H200" in told
    assert "left out: 2 spoiled launches" in told
    assert "left out: 4 launches in another environment: driver 570.9 → 570.2" in told
    assert "noise between sessions is not known yet" in told
    ((path, read),) = read_baselines(repository.root / "baselines")
    assert str(path) == view.path
    levels = {(level.phase, level.metric): level for level in read.levels}
    assert levels[WALL].location == pytest.approx(1e7, rel=1e-3)


def test_replacing_tells_what_changes_and_keeps_the_budgets_of_reviewers(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    stored(repository, *launches(head))
    accepted(repository, reason="first numbers")
    ((path, _),) = read_baselines(repository.root / "baselines")
    path.write_text(path.read_text().replace("location: 10005000, ", "location: 10005000, budget: 0.04, "))
    assert "budget: 0.04" in path.read_text()
    slower = repository.commit("slower", forward_s=0.004)
    stored(repository, *launches(slower, 1.2e7, days=1, schedule="t"))
    (view,) = accepted(repository, reason="paid for by accuracy")
    told = accepted_text([view])
    assert "replaces the level accepted on 2026-02-01: first numbers" in told
    (line,) = [line for line in told.splitlines() if "unprofiled_wall_ns" in line]
    assert line.split()[2:] == ["10.01", "ms", "12.01", "ms", "+20%"]
    assert "kernel_count" not in told, "it is not gated, and equal"
    ((_, read),) = read_baselines(repository.root / "baselines")
    budgets = {level.metric: level.budget_ratio for level in read.levels}
    assert budgets == {"unprofiled_wall_ns": 0.04, "kernel_count": None}
    assert "no gated level differs" in accepted_text(accepted(repository))


def test_the_noise_between_sessions_and_the_declared_statistic_are_kept(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    factors = (1.0, 1.01, 0.99, 1.01, 0.99)
    for day, factor in enumerate(factors):
        (view,) = accepted(repository) if day == 4 else (None,)
        stored(repository, *launches(head, 1e7 * factor, days=day, schedule=f"day{day}"))
    assert view is not None
    assert "noise between sessions is not known yet" in accepted_text([view]), "four sessions are too few"
    assert all(level.session_deviation is None for level in view.accepted.levels)
    (view,) = accepted(repository)
    assert "noise between sessions" not in accepted_text([view])
    levels = {level.metric: level for level in view.accepted.levels}
    bound = np.log(factors).std(ddof=1) * np.sqrt(4 / stats.chi2.ppf(0.2, 4))
    assert levels["unprofiled_wall_ns"].session_deviation == pytest.approx(bound, rel=0.1)
    assert levels["kernel_count"].session_deviation is None
    repository.write("perfci.yaml", CONFIG + "  statistics: {unprofiled_wall_ns: p10}\n")
    (view,) = accepted(repository)
    levels = {level.metric: level for level in view.accepted.levels}
    assert levels["unprofiled_wall_ns"].statistic is Statistic.P10
    assert levels["unprofiled_wall_ns"].session_deviation is None, "history tells only of the median"


def test_nothing_is_written_unless_all_can_be(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    stored(repository, *launches(head), *launches(head, workload="spoilt", count=2, spoiled=True))
    stored(repository, *launches("0" * 40, workload="elsewhere", count=2))
    for name, error, said in (
        ("elsewhere", MeasurementError, "main has no usable runs of elsewhere"),
        ("spoilt", MeasurementError, r"spoilt \(all 2 were spoiled\)"),
        ("trian", UsageError, "no workload is called 'trian'"),
    ):
        with pytest.raises(error, match=said):
            accepted(repository, workloads=("train", name))
    with pytest.raises(UsageError, match="no reason"):
        accepted(repository, reason=" ")
    assert not (repository.root / "baselines").exists()


def test_one_launch_is_taken_with_a_warning(repository: Repository) -> None:
    stored(repository, *launches(repository.git("rev-parse", "HEAD"), count=1))
    assert "this file can judge counts only" in accepted_text(accepted(repository))


def test_files_that_the_configuration_cannot_use_are_doubted(repository: Repository) -> None:
    workspace = open_workspace(repository.root)
    today = workspace.project.definition_hashes()["train"]

    def write(count: int = 4, **more) -> None:
        for old in workspace.project.baselines.glob("*"):
            old.unlink()
        write_baseline(
            workspace.project.baselines,
            pin(launches("1" * 40, count=count, **more), reason="x", accepted_on="2026-01-01"),
        )

    def known(definition: str) -> Environment:
        return Environment.of({**dict(ENVIRONMENT.entries), "workload_hash": definition})

    write(environment=known(today))
    assert doubts(workspace) == ()
    write(environment=known("yesterday"))
    assert ["was defined otherwise" in text for text in doubts(workspace)] == [True]
    write(environment=known(today), workload="renamed")
    assert ["knows no workload renamed" in text for text in doubts(workspace)] == [True]
    write(count=1, environment=known(today))
    assert ["from one launch" in text for text in doubts(workspace)] == [True]
    repository.write("perfci.yaml", CONFIG + "    - {metric: kernel_count}\n")
    also_counts = open_workspace(repository.root)
    assert ["from one launch" in text for text in doubts(also_counts)] == [True], "its count is not all that is gated"
    only_counts = [replace(one, series=one.series[1:]) for one in launches("1" * 40, environment=known(today))]
    write_baseline(workspace.project.baselines, pin(only_counts, reason="x", accepted_on="2026-01-01"))
    assert ["no level of anything that is gated" in text for text in doubts(workspace)] == [True]


def test_another_preset_is_accepted_under_its_own_name(repository: Repository) -> None:
    repository.write("perfci.yaml", CONFIG.replace("python train.py", "python train.py, presets: {small: {}}"))
    head = repository.git("rev-parse", "HEAD")
    words = ("baseline", "accept", "main", "-w", "train", "--preset", "small", "--reason", "why")
    missing = repository.perfci(*words)
    assert missing.returncode == 5
    assert "do: perfci run main -w train --preset small -n 4" in missing.stderr
    definition = open_workspace(repository.root).project.definition_hashes()["train@small"]
    environment = Environment.of({**dict(ENVIRONMENT.entries), "workload_hash": definition})
    stored(repository, *launches(head, workload="train@small", environment=environment))
    done = repository.perfci(*words)
    assert done.returncode == 0, done.stderr
    ((_, pinned),) = read_baselines(repository.root / "baselines")
    assert pinned.workload == "train@small"
    assert doubts(open_workspace(repository.root)) == ()
    refused = repository.perfci(*words[:-3], "tiny", *words[-2:])
    assert refused.returncode == 2
    assert "has no preset 'tiny'" in refused.stderr


def test_a_reference_knows_the_noise_between_its_sessions_before_the_candidate(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    repository.write("perfci.yaml", f"{CONFIG}reference: {head}\n")
    for day, factor in enumerate((1.0, 1.01, 0.99, 1.01, 0.99)):
        stored(repository, *launches(head, 1e7 * factor, days=day, schedule=f"day{day}"))
    workspace = open_workspace(repository.root)
    known = []
    for days in (4, 5):  # launched as the last session of the reference began, and after it
        candidate = launches("c" * 40, days=days, schedule="candidate")
        with open_store(workspace.project.database_url) as store:
            (reference,) = pinned_levels(workspace, store, "train", candidate)
        known += [level.session_deviation for level in reference.levels if level.metric == WALL[1]]
    assert known[0] is None
    assert known[1] == pytest.approx(np.log([1, 1.01, 0.99, 1.01, 0.99]).std(ddof=1) * 1.56, rel=0.1)


def test_a_reference_of_spoiled_launches_alone_is_none(repository: Repository) -> None:
    head = repository.git("rev-parse", "HEAD")
    repository.write("perfci.yaml", f"{CONFIG}reference: {head}\n")
    stored(repository, *launches(head, spoiled=True))
    workspace = open_workspace(repository.root)
    candidate = launches("c" * 40, days=1, schedule="candidate")
    with open_store(workspace.project.database_url) as store:
        assert pinned_levels(workspace, store, "train", candidate) == []
        assert [note.code for note in pinned_notes(workspace, store, "train", candidate)] == ["reference-not-measured"]
