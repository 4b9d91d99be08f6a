"""What is put in comes out again, on both databases."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from situations import SITUATIONS
from sqlalchemy import create_engine, text
from stored_runs import A100, H200, START, commit, make_run

from perfci.errors import MeasurementError
from perfci.model import codec
from perfci.model.history import Acknowledgement, NoiseLevel
from perfci.model.metrics import Statistic
from perfci.model.run import Revision, Series
from perfci.stats.noise import NoiseFloor
from perfci.store.store import Store, open_store


@pytest.fixture
def store(url: str):
    with open_store(url) as opened:
        yield opened


def test_an_empty_database_gives_nothing_and_no_error(store: Store) -> None:
    assert store.workloads() == store.labels() == ()
    assert store.runs("gpt", commit(1)) == ()
    assert store.run("0" * 64) is None
    assert store.history("gpt", "step", "wall_ns") == ()
    assert store.series("gpt") == store.environments("gpt") == ()
    assert store.measured_commits("gpt") == frozenset()
    assert store.noise_levels("gpt") == ()
    assert store.comparisons() == ()
    assert store.acknowledgements() == ()
    assert store.add_runs([]) == 0


def test_a_run_comes_back_equal_and_after_reopening(url: str) -> None:
    run = make_run(3, artifacts=("launches/3/report.nsys-rep",))
    with open_store(url) as store:
        assert store.add_runs([run]) == 1
        assert store.runs("gpt", commit(3)) == (run,)
    with open_store(url) as store:
        assert store.runs("gpt", commit(3)) == (run,)
        assert store.run(codec.run_id(run)) == run


def test_the_same_run_imported_twice_is_one_row(store: Store) -> None:
    run = make_run(1, artifacts=("a.log",))
    assert store.add_runs([run, run]) == 1
    by_bundle = replace(run, artifacts=(), findings=(), kernels=())
    other_zone = replace(
        run, launch=replace(run.launch, started_at=run.launch.started_at.astimezone(timezone(timedelta(hours=5))))
    )
    reordered = replace(run, series=tuple(reversed(run.series)))
    assert store.add_runs([by_bundle, other_zone, reordered]) == 0
    assert store.runs("gpt", commit(1)) == (run,)
    assert len(store.history("gpt", "step", "wall_ns")) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda r: replace(r, launch=replace(r.launch, started_at=r.launch.started_at + timedelta(microseconds=1))),
        lambda r: replace(r, launch=replace(r.launch, position=9)),
        lambda r: replace(r, workload="other"),
        lambda r: replace(r, revision=Revision(label="r1", commit=commit(1), tree="t", dirty=True)),
        lambda r: replace(r, environment=A100),
        lambda r: replace(r, losses=(1.0,)),
        lambda r: replace(r, series=(*r.series[1:], Series(phase="step", metric="wall_ns", values=(1, 2, 4)))),
    ],
)
def test_another_launch_is_another_row(store: Store, change) -> None:
    run = make_run(1)
    assert store.add_runs([run]) == 1
    assert store.add_runs([change(run)]) == 1


def test_runs_in_order_of_start_newest_kept_by_limit_and_chosen_by_key(store: Store) -> None:
    revision = Revision(label="main", commit=commit(7))
    runs = [make_run(n, revision=revision, environment=A100 if n % 2 else H200) for n in range(5)]
    assert store.add_runs(reversed(runs)) == 5
    assert store.runs("gpt", commit(7)) == tuple(runs)
    assert store.runs("gpt", commit(7), limit=2) == tuple(runs[-2:])
    assert store.runs("gpt", commit(7), key=A100.key) == (runs[1], runs[3])
    warmer = replace(H200, entries=tuple((n, "80" if n == "temperature_c" else v) for n, v in H200.entries))
    assert store.runs("gpt", commit(7), key=warmer.key) == (runs[0], runs[2], runs[4])
    assert store.environments("gpt") == (H200, A100) or store.environments("gpt") == (A100, H200)


def test_labels_and_measured_commits_keep_imports_dirty_and_spoiled_apart(store: Store) -> None:
    store.add_runs(
        [
            make_run(1),
            make_run(2, spoiled=True),
            make_run(3, revision=Revision(label="x", commit=commit(3), tree="t", dirty=True)),
            make_run(4, revision=Revision(label="before")),
            make_run(5, revision=Revision(label="after")),
            make_run(6, workload="other"),
            make_run(8, environment=A100),
        ]
    )
    assert store.labels() == ("after", "before")
    assert store.workloads() == ("gpt", "other")
    assert store.measured_commits("gpt") == {commit(1), commit(8)}
    assert store.measured_commits("gpt", key_hash=codec.key_hash(A100)) == {commit(8)}
    assert len(store.runs("gpt", f"{commit(3)}+dirty.t")) == 1
    assert len(store.runs("gpt", "label:before")) == 1


def test_history_is_the_sample_of_each_clean_run_in_order_of_time(store: Store) -> None:
    runs = [make_run(n, wall_ns=1_000_000 + 10 * n) for n in range(6)]
    store.add_runs(
        [
            *reversed(runs),
            make_run(20, spoiled=True),
            make_run(21, revision=Revision(label="x", commit=commit(21), tree="t", dirty=True)),
            make_run(22, environment=A100),
        ]
    )
    points = store.history("gpt", "step", "wall_ns", key_hash=codec.key_hash(H200))
    assert [p.sample for p in points] == [1_000_001.0 + 10 * n for n in range(6)]  # the median of the three steps
    assert [p.commit for p in points] == [commit(n) for n in range(6)]
    assert [p.started_at for p in points] == [run.launch.started_at for run in runs]
    assert [p.run_id for p in points] == [codec.run_id(run) for run in runs]
    assert len(store.history("gpt", "step", "wall_ns")) == 7
    since = START + timedelta(hours=4)
    assert [p.label for p in store.history("gpt", "step", "wall_ns", since=since)] == ["r4", "r5", "r22"]
    counts = store.history("gpt", "step", "kernel_count")
    assert counts[0].sample == pytest.approx(1054 / 3, rel=1e-15)
    assert store.series("gpt") == (
        ("forward", "overlap_ratio"),
        ("run", "throughput_per_s"),
        ("step", "kernel_count"),
        ("step", "wall_ns"),
    )


def test_phase_names_from_hell(store: Store) -> None:
    names = [
        "x" * 10_000,
        "a|b --> @team <b>",
        "🦜",
        "\u202eabc",
        "line\nbreak",
        "'; DROP TABLE runs; --",
        "%s %(x)s",
        ":p",
    ]
    runs = [make_run(n, phase=name, workload="w'\"%") for n, name in enumerate(names)]
    assert store.add_runs(runs) == len(names)
    for n, name in enumerate(names):
        assert store.runs("w'\"%", commit(n)) == (runs[n],)
        assert [p.sample for p in store.history("w'\"%", name, "overlap_ratio")] == [0.5]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda r: replace(r, workload="w" * 501), "more than 500 characters"),
        (lambda r: replace(r, revision=Revision(label="l" * 501)), "more than 500 characters"),
        (lambda r: replace(r, workload="a\x00b"), "NUL"),
        (lambda r: replace(r, workload="a\ud800"), "cannot be written"),
        (lambda r: replace(r, series=(Series(phase="a\x00", metric="wall_ns", values=(1,)),)), "NUL"),
        (
            lambda r: replace(r, series=(Series(phase="run", metric="throughput_per_s", values=(1.0, 2.0)),)),
            "one number",
        ),
        (lambda r: replace(r, losses=(float("nan"),)), "cannot be written"),
        (lambda r: replace(r, launch=replace(r.launch, position=2**63)), "64 bits"),
    ],
)
def test_a_run_that_cannot_be_stored_is_refused_with_its_whole_batch(change, why: str) -> None:
    with open_store("sqlite://") as store:
        with pytest.raises(MeasurementError, match=why):
            store.add_runs([make_run(1), change(make_run(2))])
        assert store.workloads() == ()


def test_every_situation_of_a_comparison_comes_back_equal(store: Store) -> None:
    situations = {name: make for name, make in sorted(SITUATIONS.items()) if name != "hostile"}
    with pytest.raises(MeasurementError, match="cannot be written as JSON"):
        store.add_comparison(SITUATIONS["hostile"]())  # holds NaN as evidence
    for number, (name, make) in enumerate(situations.items()):
        comparison = make()
        comparison_id = store.add_comparison(comparison, stored_at=START + timedelta(days=number))
        again = store.add_comparison(comparison, stored_at=START + timedelta(days=1000))
        assert comparison_id == again
        newest = store.comparisons(limit=1)[0]
        assert newest.comparison == comparison, name
        assert newest.stored_at == START + timedelta(days=number)
        assert newest.comparison_id == comparison_id
    every = store.comparisons()
    assert len(every) == len(situations)
    one = every[0].comparison
    assert every[0] in store.comparisons(candidate=one.candidate.identity, baseline=one.baseline.identity)
    assert store.comparisons(candidate="nobody") == store.comparisons(baseline="nobody") == ()


def test_accepted_regressions(store: Store) -> None:
    accepted = Acknowledgement(
        repository="o/r",
        head_sha=commit(1),
        regressions=(("gpt", "step", "wall_ns"), ("gpt", "a|b", "sync_count")),
        reason="worth it",
        author="ada",
        source="comment:17",
        accepted_at=START,
        pull_request=5,
    )
    later = replace(
        accepted, source="trailer:x", head_sha=commit(2), pull_request=None, accepted_at=START + timedelta(1)
    )
    assert store.acknowledge(later)
    assert store.acknowledge(accepted)
    assert not store.acknowledge(replace(accepted, reason="another", head_sha=commit(9)))
    assert store.acknowledge(replace(accepted, repository="o/other"))
    assert store.acknowledgements(repository="o/r") == (accepted, later)
    assert store.acknowledgements(repository="o/r", head_sha=commit(2)) == (later,)
    assert store.acknowledgements(repository="o/r", pull_request=5) == (accepted,)


def test_samples_of_the_newest_launches_before_a_moment(store: Store) -> None:
    store.add_runs(make_run(n, wall_ns=1000 + n) for n in range(6))
    store.add_runs([make_run(6, spoiled=True), make_run(7, environment=A100), make_run(8, workload="other")])

    def walls(**more: Any) -> list[float]:
        found = store.launch_samples("gpt", environment=H200, **more)
        return [one.sample for one in found if (one.phase, one.metric) == ("step", "wall_ns")]

    assert walls() == [1001.0 + n for n in range(6)]  # the median of three steps
    assert walls(before=START + timedelta(hours=3)) == [1001.0, 1002.0, 1003.0]
    assert walls(before=START + timedelta(hours=3), limit=2) == [1002.0, 1003.0]
    (count,) = [one for one in store.launch_samples("gpt", environment=A100) if one.metric == "kernel_count"]
    assert (count.revision, count.schedule) == (commit(7), "20250314T092653-abc")
    assert count.sample == pytest.approx(1054 / 3)
    assert store.launch_samples("never", environment=H200) == ()


def test_noise_levels_of_a_calibration_replace_the_old_ones_of_their_environment_only(store: Store) -> None:
    def level(metric: str, upper: float, session: float | None = None) -> NoiseLevel:
        return NoiseLevel(
            phase="step",
            metric=metric,
            statistic=Statistic.P10,
            deviation=upper / 2,
            upper=upper,
            launches=8,
            session=session,
        )

    store.set_noise_floors("gpt", H200, [level("wall_ns", 0.05), level("kernel_ns", 0.001)])
    store.set_noise_floors("gpt", A100, [level("wall_ns", 0.02)])
    store.set_noise_floors("other", H200, [level("wall_ns", 0.9)])
    store.set_noise_floors("gpt", H200, [level("wall_ns", 0.01, 0.003)])
    assert store.noise_levels("gpt", environment=H200) == (level("wall_ns", 0.01, 0.003),)
    assert store.noise_levels("gpt") == (level("wall_ns", 0.01, 0.003), level("wall_ns", 0.02))
    assert store.noise_levels("other", environment=H200) == (level("wall_ns", 0.9),)
    assert store.series("gpt") == ()  # noise alone is not history


def test_what_a_calibration_gives_can_be_stored(store: Store) -> None:
    floor = NoiseFloor(
        phase="step", metric="wall_ns", statistic=Statistic.MEDIAN, deviation=0.01, upper=0.02, launches=8, session=None
    )
    store.set_noise_floors("gpt", H200, [floor])
    (level,) = store.noise_levels("gpt", environment=H200)
    assert {name: getattr(level, name) for name in NoiseFloor.__slots__} == {
        name: getattr(floor, name) for name in NoiseFloor.__slots__
    }


def test_times_keep_their_microsecond_and_come_back_in_utc(store: Store) -> None:
    moment = datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone(timedelta(hours=-9, minutes=-30)))
    run = make_run(1)
    run = replace(run, launch=replace(run.launch, started_at=moment))
    store.add_runs([run])
    (point,) = store.history("gpt", "step", "wall_ns")
    assert point.started_at == moment
    assert point.started_at.tzinfo is UTC
    assert store.history("gpt", "step", "wall_ns", since=moment) == (point,)
    assert store.history("gpt", "step", "wall_ns", since=moment + timedelta(microseconds=1)) == ()


def test_many_runs_in_one_batch(store: Store) -> None:
    runs = [make_run(n) for n in range(600)]
    assert store.add_runs(runs) == 600
    assert store.add_runs(runs) == 0
    assert len(store.history("gpt", "step", "wall_ns")) == 600


def test_history_uses_the_indexes(tmp_path) -> None:
    url = f"sqlite:///{tmp_path}/perfci.db"
    with open_store(url) as store:
        store.add_runs([make_run(n) for n in range(3)])
        seen: list[str] = []
        from sqlalchemy import event  # noqa: PLC0415

        engine = store._database.engine
        event.listen(engine, "before_cursor_execute", lambda c, cur, sql, params, ctx, many: seen.append((sql, params)))
        store.history("gpt", "step", "wall_ns")
        sql, params = next(entry for entry in seen if "samples" in entry[0])
    with create_engine(url).connect() as connection:
        plan = " / ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", params))
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
    assert "SCAN" not in plan.upper().replace("SCAN CONSTANT ROW", ""), plan
