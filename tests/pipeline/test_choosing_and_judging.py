"""Which stored runs are judged, under which plan and family: no launches, real store, real git."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from heard import Heard
from repository import Repository
from run_builder import paired, run

from perfci.capture.schedule import SideName, next_round
from perfci.config.baselines import write_baseline
from perfci.errors import BackendError, UsageError
from perfci.model.comparison import Comparison, Reason, Row
from perfci.model.environment import Environment
from perfci.model.metrics import Statistic
from perfci.model.run import MOST_SESSIONS, Revision, Run
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.pipeline.compare import CompareRequest, keep, run_comparison
from perfci.pipeline.interleave import Session
from perfci.pipeline.judging import as_planned, judge_all
from perfci.pipeline.sides import choose_runs
from perfci.pipeline.workspace import open_workspace
from perfci.stats.pinned import judge_pinned, pin
from perfci.store.store import open_store

OTHER = Environment.of({"gpu_model": "H200", "driver": "580.1", "world_size": "1"})
VALUES = {("step", "gpu_busy_ns"): 1e6, ("step", "kernel_count"): 10.0}


def test_runs_of_the_newest_common_environment_are_chosen() -> None:
    old = [run(VALUES, label=label, minute=minute) for minute, label in enumerate("ab")]
    new = [run(VALUES, label=label, minute=10 + minute, environment=OTHER) for minute, label in enumerate("ab")]
    chosen = choose_runs([old[0], new[0]], [old[1], new[1]])
    assert chosen.baseline == (new[0],)
    assert chosen.candidate == (new[1],)
    assert "2 stored runs" in chosen.notes[0].text


def test_interleaved_sessions_win_over_lone_runs_and_no_common_environment_goes_to_the_judge() -> None:
    left, right = paired([1e6, 1e6], [1e6, 1e6])
    lone = run(VALUES, label="base", minute=99)
    chosen = choose_runs([*left, lone], right)
    assert set(chosen.baseline) == set(left)
    assert chosen.notes[0].text == "left out: 1 stored run of another environment or session"
    foreign = [run(VALUES, label="cand", environment=OTHER)]
    apart = choose_runs(left, foreign)
    assert (apart.baseline, apart.candidate) == (tuple(left), tuple(foreign))


def test_only_the_newest_of_several_sessions_is_judged() -> None:
    left, right = paired([1e6, 1e6], [1e6, 1e6])

    def later(runs: list[Run]) -> list[Run]:
        hours = timedelta(hours=1)
        return [
            replace(r, launch=replace(r.launch, schedule="later", started_at=r.launch.started_at + hours)) for r in runs
        ]

    chosen = choose_runs([*left, *later(left)], [*right, *later(right)])
    assert {r.launch.schedule for r in (*chosen.baseline, *chosen.candidate)} == {"later"}
    assert len(chosen.baseline) == len(chosen.candidate) == 2


def test_launches_of_one_revision_are_told_apart_by_their_session_and_never_compared_with_themselves() -> None:
    """Otherwise `compare main..main` is a pass that sees the smallest change, from no comparison at all."""
    seed = 7
    other_session = [run(VALUES, label="main", schedule="with topic", pair=pair, position=2 * pair) for pair in (0, 1)]
    other_session = [replace(r, launch=replace(r.launch, seed=seed)) for r in other_session]
    imported = run(VALUES, label="main")
    alone = choose_runs([*other_session, imported], [*other_session, imported])
    assert (alone.baseline, alone.candidate) == ((), (*other_session, imported))
    assert "not compared with themselves" in alone.notes[0].text

    both = []
    expected: dict[SideName, list[Run]] = {side: [] for side in SideName}
    for slot in next_round(block=0, seed=seed, workloads=("tiny",)):
        made = run(VALUES, label="main", schedule="with itself", pair=slot.pair, position=slot.position, minute=50)
        both.append(replace(made, launch=replace(made.launch, seed=seed)))
        expected[slot.side].append(both[-1])
    every = [*other_session, *both]
    chosen = choose_runs(every, every)
    assert list(chosen.baseline) == expected[SideName.BASELINE]
    assert list(chosen.candidate) == expected[SideName.CANDIDATE]


def judged(left, right, settings, *, pinned=()):
    (result,) = judge_all(
        {"tiny": left},
        {"tiny": right},
        settings,
        floors_of=lambda _workload, _environment: {},
        golden={},
        notes={},
        pinned=lambda _workload, _runs: list(pinned),
    )
    return result


SETTINGS = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.01),), error_rate=0.05, max_launches=6)


def planned(runs: list[Run], fewest: int, most: int) -> list[Run]:
    return [replace(one, launch=replace(one.launch, plan=(fewest, most))) for one in runs]


def test_the_recorded_plan_decides_whatever_todays_limits_are() -> None:
    left, right = paired([1e6, 1.001e6, 0.999e6, 1e6], [1.02e6, 1.022e6, 1.019e6, 1.02e6])
    left, right = planned(left, 4, 4), planned(right, 4, 4)
    short, long = (replace(SETTINGS, max_launches=most) for most in (4, 40))
    assert judged(left, right, short).rows == judged(left, right, long).rows
    assert as_planned(long, left).max_launches == 4
    mixed = [*left, *planned(right, 3, 9)]
    assert as_planned(long, mixed) == replace(long, min_launches=3, max_launches=9)
    assert "mixed-plans" in codes(judged(left, planned(right, 3, 9), long))


def codes(workload) -> set[str]:
    return {note.code for note in workload.notes}


def test_plans_that_change_no_number_are_not_worth_a_note() -> None:
    left, right = paired([1e6, 1.001e6, 0.999e6, 1e6], [1.02e6, 1.022e6, 1.019e6, 1.02e6])
    today = replace(SETTINGS, min_launches=3, max_launches=6)
    assert "mixed-plans" not in codes(judged(left, planned(right, 3, 6), today)), "runs without a plan have today's"
    assert "mixed-plans" not in codes(judged(planned(left, 3, 6), planned(right, 4, 6), today)), "the same looks"
    assert "mixed-plans" in codes(judged(planned(left, 2, 6), planned(right, 4, 6), today))
    assert "mixed-plans" in codes(judged(planned(left, 3, 6), planned(right, 3, 8), today))
    one = [replace(r, launch=replace(r.launch, session=1)) for r in right]
    assert "mixed-plans" in codes(judged(left, one, today)), "another share of the error rate"
    counts = [run(VALUES, label=side, schedule="s") for side in "ab"]
    only_counts = replace(today, gates=(Gate(metric="kernel_count"),))
    assert "mixed-plans" not in codes(judged(counts[:1], planned(counts[1:], 2, 9), only_counts))


def test_pinned_levels_share_the_error_rate_with_the_parent() -> None:
    left, right = paired([1e6, 1.001e6, 0.999e6, 1e6, 1.0005e6], [1.02e6, 1.022e6, 1.019e6, 1.02e6, 1.021e6])
    level = pin(right, reason="first numbers", accepted_on="2026-01-01")
    halved = judged(left, right, replace(SETTINGS, error_rate=SETTINGS.error_rate / 2))
    alone = judged(left, right, SETTINGS)
    both = judged(left, right, SETTINGS, pinned=[level])
    assert alone.tally.worst is Verdict.REGRESSION
    assert gated(both).effect == gated(halved).effect != gated(alone).effect
    counts = pin([run({("step", "kernel_count"): 10.0}, schedule="s")], reason="counts alone", accepted_on="2026-01-01")
    assert gated(judged(left, right, SETTINGS, pinned=[counts])).effect == gated(alone).effect


def gated(workload) -> Row:
    (row,) = [row for row in workload.rows if row.gated]
    return row


def test_a_pinned_level_is_looked_at_as_often_as_the_pair_is() -> None:
    first, _ = paired([1e6 + i for i in range(6)], [1e6] * 6)
    before, after = paired([1.0265e6 + 300 * (i % 3) for i in range(4)], [1.0265e6 + 350 * (i % 3) for i in range(4)])
    level = pin(first, reason="then", accepted_on="2026-01-01")
    settings = replace(SETTINGS, gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.005),))

    def found(fewest: int, most: int):
        sides = planned(before, fewest, most), planned(after, fewest, most)
        (row,) = [row for row in judged(*sides, settings, pinned=[level]).rows if row.gated]
        return row.reason

    once, many = judge_pinned(level, after, settings), judge_pinned(level, after, settings, looks=(2, 4))
    assert many.rows[0].effect.low_ratio < once.rows[0].effect.low_ratio
    assert found(4, 4) == "cumulative"
    assert found(2, 40) != "cumulative"


def test_changes_that_add_up_are_found_against_the_pinned_level() -> None:
    """Twenty times +0.4 %: each below its budget of 1 %, together 8 %."""
    first, _ = paired([1e6] * 5, [1e6] * 5)
    before, after = paired([1.076e6 + i for i in range(5)], [1.080e6 + i for i in range(5)])
    assert judged(before, after, SETTINGS).tally.worst is not Verdict.REGRESSION
    level = pin(
        [replace(one, series=before[0].series[:0] + first[0].series) for one in first],
        reason="then",
        accepted_on="2026-01-01",
    )
    found = judged(before, after, SETTINGS, pinned=[level])
    (row,) = [row for row in found.rows if row.gated]
    assert row.verdict is Verdict.REGRESSION
    assert row.reason == "cumulative"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.branch("topic", forward_s=0.002)
    return made


def store_runs(repository: Repository, commit: str, values: float, *, count: int = 3, **kwargs) -> None:
    with open_store(f"sqlite:///{repository.root}/.perfci/perfci.db") as store:
        runs = [
            replace(
                run({("step", "kernel_count"): values}, minute=minute, workload="train", **kwargs),
                revision=Revision(label=commit[:10], commit=commit, tree="0" * 40),
            )
            for minute in range(count)
        ]
        store.add_runs(runs)


def compared(repository: Repository, **request):
    workspace = open_workspace(repository.root)
    with open_store(workspace.project.database_url) as store:
        return run_comparison(workspace, store, CompareRequest(**request), Heard())


def test_a_pattern_that_names_no_workload_is_refused(repository: Repository) -> None:
    (repository.root / ".perfci").mkdir()
    for name in ("main", "topic"):
        store_runs(repository, repository.git("rev-parse", name), 10)
    for patterns in (("typo",), ("train", "typo"), ("typo*",)):
        with pytest.raises(UsageError, match="typo"):
            compared(repository, revisions="main..topic", patterns=patterns)
    (workload,) = compared(repository, revisions="main..topic", patterns=("tr*",)).workloads
    assert workload.workload == "train"


KERNEL_GATE = "    - {metric: kernel_count}\n"


def only_kernels(repository: Repository, more: str = "") -> None:
    text = (repository.root / "perfci.yaml").read_text()
    repository.write("perfci.yaml", text[: text.index("  gates:")] + "  gates:\n" + KERNEL_GATE + more)


def test_stand_in_prefers_the_candidates_environment_and_judges_nothing_beyond_the_limit(
    repository: Repository,
) -> None:
    (repository.root / ".perfci").mkdir()
    far = repository.git("rev-parse", "HEAD")
    near = repository.commit("near", forward_s=0.001)
    repository.commit("unmeasured", forward_s=0.001)
    repository.branch("later", forward_s=0.002)
    only_kernels(repository)
    store_runs(repository, far, 10)
    store_runs(repository, near, 10, environment=OTHER)
    store_runs(repository, repository.git("rev-parse", "later"), 12)
    (workload,) = compared(repository, revisions="main..later").workloads
    (note,) = [note for note in workload.notes if note.code == "stand-in-baseline"]
    assert far[:10] in note.text
    assert note.text.endswith("2 commits before it, stands in")
    assert workload.tally.worst is Verdict.REGRESSION

    only_kernels(repository, "stand_in_distance: 1\n")
    (workload,) = compared(repository, revisions="main..later").workloads
    (row,) = [row for row in workload.rows if row.gated]
    assert (row.verdict, row.reason) == (Verdict.INCONCLUSIVE, Reason.STAND_IN_TOO_FAR)
    assert row.effect is not None
    assert row.effect.value_ratio == pytest.approx(0.2)
    (note,) = [note for note in workload.notes if note.code == "stand-in-baseline"]
    assert "too far to judge by (stand_in_distance: 1)" in note.text

    only_kernels(repository, f"stand_in_distance: 1\nreference: {far}\n")
    (workload,) = compared(repository, revisions="main..later").workloads
    assert workload.tally.worst is Verdict.REGRESSION, "what the reference tells does not come from the stand-in"


def test_where_no_side_was_measured_the_way_to_do_it_is_told(repository: Repository) -> None:
    (workload,) = compared(repository, revisions="main..topic").workloads
    assert workload.tally.worst is Verdict.NOT_MEASURED
    assert [note.text for note in workload.notes] == ["neither main nor topic was measured; --measure does it"]


def test_without_a_measured_ancestor_in_reach_the_baseline_is_not_measured(repository: Repository) -> None:
    (repository.root / ".perfci").mkdir()
    other = repository.git("rev-parse", "HEAD")
    repository.commit("unmeasured", forward_s=0.001)
    repository.branch("later", forward_s=0.002)
    only_kernels(repository, "stand_in_distance: 0\n")
    store_runs(repository, other, 10, environment=OTHER)
    store_runs(repository, repository.git("rev-parse", "later"), 12)
    (workload,) = compared(repository, revisions="main..later").workloads
    assert workload.tally.worst is Verdict.NOT_MEASURED
    (note,) = [note for note in workload.notes if note.code == "baseline-never-measured"]
    assert "nor one in another within 0 commits" in note.text
    only_kernels(repository, "stand_in_distance: 1\n")
    (workload,) = compared(repository, revisions="main..later").workloads
    assert workload.tally.worst is Verdict.NOT_COMPARABLE


def test_a_file_about_another_environment_is_named_with_what_differs(repository: Repository) -> None:
    (repository.root / ".perfci").mkdir()
    only_kernels(repository)
    for name in ("main", "topic"):
        store_runs(repository, repository.git("rev-parse", name), 10)
    then = pin([run(VALUES, workload="train", environment=OTHER)], reason="then", accepted_on="2026-01-01")
    path = write_baseline(repository.root / "baselines", then)
    (workload,) = compared(repository, revisions="main..topic").workloads
    (note,) = [note for note in workload.notes if note.code == "baseline-of-another-environment"]
    assert note.text == f"{path.name} was not used: driver 580.1 → 570.2"


def test_a_reference_is_judged_too_and_said(repository: Repository) -> None:
    (repository.root / ".perfci").mkdir()
    start = repository.git("rev-parse", "main")
    parent = repository.commit("parent", forward_s=0.001)
    repository.branch("next", forward_s=0.002)
    for commit, count in ((start, 10), (parent, 12), (repository.git("rev-parse", "next"), 12)):
        store_runs(repository, commit, count)
    gate = "    - {metric: kernel_count}\n"
    repository.write("perfci.yaml", (repository.root / "perfci.yaml").read_text() + gate + f"reference: {start}\n")
    (workload,) = compared(repository, revisions="main..next").workloads
    (row,) = [row for row in workload.rows if row.metric == "kernel_count"]
    assert (row.verdict, row.reason) == (Verdict.REGRESSION, "cumulative")
    assert any(f"reference {start}" in note.text for note in workload.notes)


def test_a_store_that_takes_no_comparison_does_not_take_the_verdict_away() -> None:
    class ReadOnly:
        def add_comparison(self, _comparison) -> str:
            raise BackendError("the database is read-only")

    heard = Heard()
    side = Revision(label="a")
    kept = keep(ReadOnly(), Comparison(baseline=side, candidate=side, workloads=(), error_rate=0.01), heard)
    assert heard.lines == ["the comparison was not stored: the database is read-only"]
    assert [(note.code, note.text) for note in kept.notes] == [("not-stored", heard.lines[0])]


def test_the_declared_statistic_makes_the_samples() -> None:
    """Two steps of 1 and 3 ms: their median is 2 ms, their 10th percentile 1.2 ms."""
    left, right = paired([1e6] * 5, [1e6] * 5)
    slow = [replace(one, series=(replace(one.series[0], values=(1_000_000, 3_000_000)),)) for one in right]
    median = judged(left, slow, SETTINGS)
    low = judged(left, slow, replace(SETTINGS, statistics=(("gpu_busy_ns", Statistic.P10),)))
    assert median.rows[0].candidate.location == pytest.approx(2e6)
    assert low.rows[0].candidate.location == pytest.approx(1.2e6)


def test_a_repeated_session_is_judged_at_its_share_and_says_so() -> None:
    left, right = paired([1e6, 1.001e6, 0.999e6, 1e6], [1.02e6, 1.022e6, 1.019e6, 1.02e6])

    def numbered(runs: list[Run], session: int) -> list[Run]:
        return [replace(one, launch=replace(one.launch, plan=(4, 4), session=session)) for one in runs]

    third = judged(numbered(left, 3), numbered(right, 3), SETTINGS)
    at_share = judged(planned(left, 4, 4), planned(right, 4, 4), replace(SETTINGS, error_rate=0.05 * 0.025))
    assert third.rows == at_share.rows
    assert third.rows != judged(numbered(left, 1), numbered(right, 1), SETTINGS).rows
    (note,) = [note for note in third.notes if note.code == "repeated-session"]
    assert note.text.startswith("session 3 of this pair of revisions: judged at 2.5 % of the error rate, because ")


@pytest.mark.parametrize("session", [30, 1200, MOST_SESSIONS])
def test_a_very_late_session_is_judged_with_finite_numbers(session: int) -> None:
    left, right = paired([1e6, 1.001e6, 0.999e6, 1e6], [1.02e6, 1.022e6, 1.019e6, 1.02e6])
    sides = [
        [replace(one, launch=replace(one.launch, plan=(2, 12), session=session)) for one in runs]
        for runs in (left, right)
    ]
    row = gated(judged(*sides, SETTINGS))
    assert (row.verdict, row.reason) == (Verdict.INCONCLUSIVE, Reason.INTERVAL_TOO_WIDE)
    assert row.effect is not None
    assert row.effect.low_ratio < row.effect.value_ratio < row.effect.high_ratio


def test_a_session_numbers_itself_from_the_stored_runs_whichever_side_comes_first(tmp_path: Path) -> None:
    left, right = paired([1e6, 1e6], [1e6, 1e6])
    now = replace(left[0], launch=replace(left[0].launch, schedule="now"))
    with open_store(f"sqlite:///{tmp_path / 'runs.db'}") as store:
        store.add_runs([*left, *right])
        sides = (left[0].revision.identity, right[0].revision.identity)
        for order in (sides, sides[::-1]):
            session = Session(workspace=None, store=store, limits=SETTINGS, judge=None, progress=Heard())
            session._sides = order
            assert session._ordinal(now) == 2
            assert session._ordinal(replace(now, workload="other")) == 1


def test_a_series_of_another_preset_is_judged_by_the_gates_of_its_workload(tmp_path: Path) -> None:
    """``-w NAME@PRESET`` is how reports name it: it means the configured workload, not any runs of that name."""
    repository = Repository(tmp_path / "repository")
    preset = "presets: {small: {losses: [2.0, 1.0]}}, gates: [{metric: kernel_count}]"
    general = "judge: {gates: [{metric: h2d_bytes}]}"
    repository.write("perfci.yaml", f"workloads: [{{name: train, command: python train.py, {preset}}}]\n{general}\n")
    workspace = open_workspace(repository.root)
    with open_store(workspace.project.database_url) as store:
        for label, count in (("a", 10.0), ("b", 12.0)):
            values = {("step", "kernel_count"): count, ("step", "h2d_bytes"): 8.0}
            store.add_runs([run(values, workload="train@small", label=label, schedule="s", losses=(2.0, 1.0))])
        for words in ({"patterns": ("train@small",)}, {"patterns": ("train",), "preset": "small"}):
            (workload,) = run_comparison(workspace, store, CompareRequest(revisions="a..b", **words), Heard()).workloads
            gated = {row.metric: row.verdict for row in workload.rows if row.gated}
            assert gated == {"kernel_count": Verdict.REGRESSION, "h2d_bytes": Verdict.PASS}
