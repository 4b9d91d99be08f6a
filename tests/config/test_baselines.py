"""Baseline files: a round trip, and faults named with the file."""

from fractions import Fraction
from pathlib import Path

import pytest

from perfci.config.baselines import read_baselines, write_baseline
from perfci.errors import UsageError
from perfci.model.baseline import PinnedBaseline, PinnedLevel
from perfci.model.environment import Environment
from perfci.model.metrics import Kind, Statistic
from perfci.model.run import Revision


def baseline(
    reason: str = "first H200 numbers", gpu: str = "NVIDIA H200", wall: float = 43_300_123.0
) -> PinnedBaseline:
    return PinnedBaseline(
        workload="gpt",
        revision=Revision(label="main", commit="a" * 40),
        environment=Environment.of({"gpu_model": gpu, "driver": "580.159"}),
        reason=reason,
        accepted_on="2026-12-01",
        step_count=30,
        levels=(
            PinnedLevel(
                phase="step", metric="kernel_count", kind=Kind.EXACT, location=351.0, exact=Fraction(351), launches=4
            ),
            PinnedLevel(
                phase="log", metric="sync_count", kind=Kind.EXACT, location=0.05, exact=Fraction(1, 20), launches=4
            ),
            PinnedLevel(
                phase="step",
                metric="wall_ns",
                kind=Kind.NOISY,
                location=wall,
                deviation=0.0017,
                session_deviation=0.0004,
                launches=4,
                statistic=Statistic.P10,
            ),
        ),
    )


def test_round_trip_keeps_counts_exactly_and_times_to_six_digits(tmp_path: Path) -> None:
    path = write_baseline(tmp_path, baseline())
    ((found, read),) = read_baselines(tmp_path)
    assert found == path
    levels = {(level.phase, level.metric): level for level in read.levels}
    assert levels["log", "sync_count"].exact == Fraction(1, 20)
    assert levels["step", "kernel_count"].exact == 351
    assert levels["step", "wall_ns"].location == pytest.approx(43_300_123, rel=1e-5)
    assert levels["step", "wall_ns"].statistic is Statistic.P10
    assert levels["step", "wall_ns"].session_deviation == 0.0004
    assert levels["step", "kernel_count"].statistic is None
    assert read.reason == "first H200 numbers"
    assert read.environment == baseline().environment


def test_accepting_again_replaces_the_file_of_the_same_environment_only(tmp_path: Path) -> None:
    first = write_baseline(tmp_path, baseline())
    other = write_baseline(tmp_path, baseline(gpu="NVIDIA A100"))
    again = write_baseline(tmp_path, baseline(reason="new attention kernel"))
    assert first == again != other
    assert sorted(b.reason for _, b in read_baselines(tmp_path)) == ["first H200 numbers", "new attention kernel"]


def test_same_model_with_another_driver_gets_a_file_of_its_own(tmp_path: Path) -> None:
    one = baseline()
    two = PinnedBaseline(
        workload=one.workload,
        revision=one.revision,
        environment=Environment.of({"gpu_model": "NVIDIA H200", "driver": "570.1"}),
        reason=one.reason,
        accepted_on=one.accepted_on,
        step_count=one.step_count,
        levels=one.levels,
    )
    assert write_baseline(tmp_path, one) != write_baseline(tmp_path, two)
    assert len(read_baselines(tmp_path)) == 2


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("schema_version: 1", "schema_version: 2", "schema_version"),
        ("reason: first H200 numbers", "reason: ''", "reason"),
        ("kernel_count:", "kernel_cont:", "unknown metric"),
        ("exact: 351", "exact: 351.5", "total/steps"),
        ("exact: 351", "exact: 351, location: 2", "either `exact` or `location`"),
        ("exact: 1/20", "exact: 1/0", "total/steps"),
        ("driver:", "drivr:", "unknown environment field"),
        ("launches: 4", "launches: 0", "launches"),
        ("statistic: p10", "statistic: p50", "statistic"),
        ("exact: 351", "exact: 351, statistic: p10", "step/kernel_count cannot be judged by p10"),
        ("step_count: 30", "step_count: 30\nsteps: 3", "unknown key"),
    ],
)
def test_faults_name_the_file(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = write_baseline(tmp_path, baseline())
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        read_baselines(tmp_path)
    assert path.name in str(caught.value)
    assert said in str(caught.value)
    assert "perfci baseline accept" in str(caught.value) or "docs" in str(caught.value)


def test_two_files_about_one_environment_are_refused(tmp_path: Path) -> None:
    path = write_baseline(tmp_path, baseline())
    (tmp_path / "copy.yaml").write_text(path.read_text())
    with pytest.raises(UsageError, match="both about gpt"):
        read_baselines(tmp_path)


def test_no_folder_is_no_baseline(tmp_path: Path) -> None:
    assert read_baselines(tmp_path / "none") == ()
