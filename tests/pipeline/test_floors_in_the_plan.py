"""Stored noise floors in a measured comparison: said before the first launch, used by the plan, checked for their
statistic. Real store, made-up launches."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from heard import Heard
from run_builder import ENVIRONMENT, paired, run

from perfci.model.environment import Environment
from perfci.model.history import NoiseLevel
from perfci.model.metrics import Statistic
from perfci.model.run import Run
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.pipeline.floors import Floors
from perfci.pipeline.interleave import Session
from perfci.pipeline.judging import judge_all
from perfci.store.store import Store, open_store

GATES = (Gate(metric="gpu_busy_ns", budget_ratio=0.02), Gate(metric="unprofiled_wall_ns", budget_ratio=0.01))
SETTINGS = JudgeSettings(gates=GATES, min_launches=4)
OTHER = Environment.of({"gpu_model": "H200", "driver": "580.1", "world_size": "1"})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as opened:
        yield opened


def level(metric: str, deviation: float, statistic: Statistic = Statistic.MEDIAN) -> NoiseLevel:
    return NoiseLevel(
        phase="step", metric=metric, statistic=statistic, deviation=deviation, upper=1.4 * deviation, launches=8
    )


def sides(deviation: float, pairs: int = 4, seed: int = 1) -> tuple[list[Run], list[Run]]:
    luck = 1e8 * np.exp(deviation * np.random.default_rng(seed).standard_normal((2, pairs)))
    return paired(luck[0].tolist(), luck[1].tolist(), metric="unprofiled_wall_ns")


def session(store: Store, settings: JudgeSettings, runs: tuple[list[Run], list[Run]]) -> tuple[Session, Heard]:
    """A session after its first four pairs."""
    heard = Heard()

    def judge(baseline, candidate):
        return judge_all(
            baseline,
            candidate,
            settings,
            floors_of=Floors(store, settings).to_judge,
            golden={},
            notes={},
            pinned=lambda _workload, _runs: (),
        )

    made = Session(workspace=None, store=store, limits=settings, judge=judge, progress=heard)
    made.still_open = {"tiny": None}
    made.measured.baseline["tiny"], made.measured.candidate["tiny"] = runs
    return made, heard


WORKLOADS = [SimpleNamespace(spec=SimpleNamespace(name="tiny"))]


def test_the_plan_is_said_before_the_first_launch_with_the_floor_it_rests_on(store: Store) -> None:
    store.set_noise_floors("tiny", ENVIRONMENT, [level("gpu_busy_ns", 0.006), level("unprofiled_wall_ns", 0.05)])
    made, heard = session(store, SETTINGS, ([], []))
    made._forecast(WORKLOADS)
    quiet, loud = heard.lines
    assert "tiny: step/gpu_busy_ns needs about 6 launches per side for its 2 % budget (noise 0.60%" in quiet
    assert "calibrated with 8 launches" in quiet
    assert "step/unprofiled_wall_ns needs about" in loud
    assert "out of reach of the 12 of this plan, it will not be waited for" in loud


def test_a_repeated_session_is_foreseen_at_its_share_of_the_error_rate(store: Store) -> None:
    store.set_noise_floors("tiny", ENVIRONMENT, [level("gpu_busy_ns", 0.006)])
    runs = sides(0.006)[1]

    def launches(number: int | None) -> int:
        numbered = [replace(one, launch=replace(one.launch, session=number)) for one in runs]
        ((_, prediction),) = Floors(store, SETTINGS).foresee({"tiny": numbered})["tiny"].values()
        assert prediction.launches is not None
        return prediction.launches

    assert launches(None) <= launches(1) < launches(2) < launches(5)


def test_nothing_is_said_nor_changed_without_floors(store: Store) -> None:
    made, heard = session(store, SETTINGS, sides(0.05))
    made._forecast(WORKLOADS)
    assert heard.lines == []
    assert not made._enough()
    assert "tiny" in made.still_open


def test_a_gate_out_of_reach_ends_the_session_at_its_first_look(store: Store) -> None:
    store.set_noise_floors("tiny", ENVIRONMENT, [level("unprofiled_wall_ns", 0.05)])
    made, heard = session(store, SETTINGS, sides(0.05))
    assert made._enough()
    assert heard.lines == [  # and nothing that the report after it says of each gate
        "stopped after 4 launches per side: more launches would not decide the gates that are still open"
    ]


def test_floors_of_another_environment_do_not_end_a_session(store: Store) -> None:
    store.set_noise_floors("tiny", OTHER, [level("unprofiled_wall_ns", 0.05)])
    made, _ = session(store, SETTINGS, sides(0.05))
    assert not made._enough()


def test_the_launches_to_come_are_those_that_the_floor_predicts(store: Store) -> None:
    store.set_noise_floors("tiny", ENVIRONMENT, [level("unprofiled_wall_ns", 0.005)])
    ((_, prediction),) = Floors(store, SETTINGS).foresee({"tiny": sides(0.008)[1]})["tiny"].values()
    assert prediction.launches is not None
    assert 6 < prediction.launches < 12
    made, heard = session(store, SETTINGS, sides(0.008))
    assert not made._enough()
    assert f"4 of about {prediction.launches} launches per side (at most 12)" in heard.lines[-1]


def test_a_floor_of_another_statistic_than_declared_is_not_used_and_said(store: Store) -> None:
    store.set_noise_floors("tiny", ENVIRONMENT, [level("unprofiled_wall_ns", 0.05)])
    by_p10 = replace(SETTINGS, statistics=(("unprofiled_wall_ns", Statistic.P10),))
    floors = Floors(store, by_p10)
    assert floors.to_judge("tiny", sides(0.05)[0]) == {}
    (note,) = floors.notes("tiny", ENVIRONMENT)
    assert note.code == "noise-floor-unused"
    assert "step/unprofiled_wall_ns (calibrated with median, judged by p10); perfci calibrate" in note.text
    assert Floors(store, SETTINGS).notes("tiny", ENVIRONMENT) == ()
    made, heard = session(store, by_p10, sides(0.05))
    made._forecast(WORKLOADS)
    assert any("judged by p10" in line for line in heard.lines)
    assert not made._enough()


def earlier(count: int = 10, *, deviation: float = 0.004, days: int = 1, schedule: str = "before", **more) -> list[Run]:
    """Launches of one revision that stood alone, days before the others."""
    luck = 1e8 * np.exp(deviation * np.random.default_rng(days).standard_normal(count))
    made = []
    for index, value in enumerate(luck):
        one = run({("step", "unprofiled_wall_ns"): value}, schedule=schedule, pair=index, position=index, **more)
        made.append(replace(one, launch=replace(one.launch, started_at=one.launch.started_at - timedelta(days=days))))
    return made


WALL = ("step", "unprofiled_wall_ns")


def test_launches_before_the_judged_ones_tell_the_noise_where_none_was_calibrated(store: Store) -> None:
    left, right = sides(0.05)
    floors = Floors(store, SETTINGS)
    store.add_runs([*left, *right, *earlier(7), *earlier(8, environment=OTHER), *earlier(8, days=2, spoiled=True)])
    assert floors.levels("tiny", (*left, *right)) == {}
    store.add_runs(earlier(10, days=3, schedule="another"))
    (known,) = floors.levels("tiny", (*left, *right)).values()
    assert (known.launches, known.calibrated) == (17, False)
    assert known.deviation == pytest.approx(0.004, rel=0.5)
    assert floors.to_judge("tiny", (*left, *right)) == {WALL: known.upper}
    by_p10 = replace(SETTINGS, statistics=(("unprofiled_wall_ns", Statistic.P10),))
    assert Floors(store, by_p10).levels("tiny", (*left, *right)) == {}
    store.set_noise_floors("tiny", ENVIRONMENT, [level("unprofiled_wall_ns", 0.05)])
    assert floors.levels("tiny", (*left, *right))[WALL].calibrated


def test_history_speaks_in_the_plan_and_lets_three_launches_claim(store: Store) -> None:
    left, right = paired([1e8, 1.001e8, 0.9995e8], [1.1e8, 1.101e8, 1.1e8], metric="unprofiled_wall_ns")
    settings = replace(SETTINGS, min_launches=3)
    made, heard = session(store, settings, (left, right))
    assert made.judge({"tiny": left}, {"tiny": right})[0].tally.worst is Verdict.INCONCLUSIVE
    store.add_runs(earlier(10))
    assert made.judge({"tiny": left}, {"tiny": right})[0].tally.worst is Verdict.REGRESSION
    made._forecast(WORKLOADS)
    assert "step/unprofiled_wall_ns needs about" in heard.lines[0]
    assert heard.lines[0].endswith("seen in 10 launches before)")


def test_a_claim_that_the_data_support_is_made_whatever_the_floor_says(store: Store) -> None:
    store.set_noise_floors("tiny", ENVIRONMENT, [level("unprofiled_wall_ns", 0.05)])
    left, right = paired([1e8, 1.001e8, 0.999e8, 1e8, 1e8, 1.002e8], [1.5e8, 1.51e8, 1.5e8, 1.49e8, 1.5e8, 1.5e8],
                         metric="unprofiled_wall_ns")  # fmt: skip
    made, _ = session(store, SETTINGS, (left[:4], right[:4]))
    assert not made._enough()  # the effect is too large to give up
    (result,) = made.judge({"tiny": left}, {"tiny": right})
    assert result.tally.worst is Verdict.REGRESSION
