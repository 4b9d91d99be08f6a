"""``perfci history``: a step in a stored history is found between the right commits; noise alone is none."""

import json
import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from repository import Repository

from perfci.model.environment import Environment
from perfci.model.run import Launch, Revision, Run, Series
from perfci.store.store import open_store


def store_history(repository: Repository, levels: list[int | None]) -> list[str]:
    """One commit per level; two launches of each measured one, with 0.5 % noise."""
    draw = random.Random(5)
    commits = [repository.commit(f"commit {index}", forward_s=0.001) for index in range(len(levels))]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    with open_store(f"sqlite:///{repository.root}/.perfci/perfci.db") as store:
        for index, (commit, level) in enumerate(zip(commits, levels, strict=True)):
            for launch in range(2 if level else 0):
                value = round((level or 0) * draw.gauss(1, 0.005))
                run = Run(
                    workload="train",
                    revision=Revision(label=commit[:10], commit=commit, tree="0" * 40),
                    environment=Environment.of({"gpu_model": "H200"}),
                    launch=Launch(started_at=start + timedelta(hours=index, minutes=launch), duration_ns=1),
                    step_count=1,
                    series=(Series(phase="step", metric="gpu_busy_ns", values=(value,)),),
                )
                store.add_runs([run, replace(run, workload="other")])
    return commits


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    (made.root / ".perfci").mkdir()
    return made


def history(repository: Repository, *arguments: str):
    return repository.perfci("history", "-w", "train", "--metric", "gpu_busy_ns", *arguments)


def test_a_step_is_found_between_the_measured_commits_around_it(repository: Repository) -> None:
    commits = store_history(repository, [*[10_000_000] * 12, None, *[10_400_000] * 12])
    done = history(repository, "-f", "json")
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["histories"]
    (change,) = one["changes"]
    assert change["last_good"] == commits[11]
    assert change["first_bad"] == commits[13]
    assert change["effect"]["low_ratio"] < 0.04 < change["effect"]["high_ratio"]
    text = history(repository)
    assert f"{commits[11][:10]}..{commits[13][:10]}" in text.stdout


def test_noise_alone_is_no_change(repository: Repository) -> None:
    store_history(repository, [10_000_000] * 20)
    assert "no change of level" in history(repository).stdout


def test_nothing_measured_and_unknown_metric_are_said(repository: Repository) -> None:
    done = history(repository)
    assert done.returncode == 5
    assert "no measured commit" in done.stderr
    assert repository.perfci("history", "-w", "train", "--metric", "speed").returncode == 2
    store_history(repository, [10_000_000])
    mistyped = repository.perfci("history", "-w", "trian")
    assert mistyped.returncode == 2
    assert "wanted: one of: other, train" in mistyped.stderr
