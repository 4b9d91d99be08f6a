"""Which stored sessions spare `compare --measure` its launches, which are counted, and how the number travels: real git
and store, no launches."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from heard import Heard
from repository import Repository
from run_builder import run

from perfci.errors import BackendError
from perfci.model.comparison import Comparison
from perfci.model.environment import Environment
from perfci.model.run import Revision, Run
from perfci.model.verdict import Verdict
from perfci.pipeline import compare, measure
from perfci.pipeline.compare import CompareRequest, run_comparison
from perfci.pipeline.interleave import Measured, Session
from perfci.pipeline.measure import MeasureRequest, measure_revision
from perfci.pipeline.workspace import Workspace, open_workspace
from perfci.store.store import Store, open_store

LEAST = 4
"""min_launches in the configuration of the repository."""
GATES = "  gates:\n    - {metric: kernel_count}\n"


class World:
    """A repository with branches, runs in its store, and a stand-in for the session that would launch."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.repository = Repository(root)
        self.gates(GATES)
        self.repository.commit("Gates", forward_s=0.001)
        for name in ("topic", "other"):
            self.repository.branch(name, forward_s=0.002)
        self.launched: list[str] = []
        self.heard = Heard()
        monkeypatch.setattr(compare, "Session", self._session)

    def _session(self, **_) -> SimpleNamespace:
        def measure(workloads, *_sides, lock_clocks: bool) -> Measured:
            assert not lock_clocks
            self.launched = [workload.spec.name for workload in workloads]
            return Measured()

        return SimpleNamespace(measure=measure)

    def gates(self, text: str) -> None:
        config = self.repository.root / "perfci.yaml"
        before = config.read_text()
        self.repository.write("perfci.yaml", before[: before.index("  gates:")] + text)

    def workspace(self) -> Workspace:
        return open_workspace(self.repository.root)

    def session(self, *branches: str, pairs: int = LEAST, name: str = "s", **more) -> list[Run]:
        """Store a session of two branches, launched in turns, as the configuration of now describes its workload."""
        with open_store(self.workspace().project.database_url) as store:
            runs = [self.launch(one, pair, name, **more) for pair in range(pairs) for one in branches]
            store.add_runs(runs)
        return runs

    def launch(self, branch: str, pair: int, schedule: str, *, values=None, definition=None, gpu="H200", **more) -> Run:
        number = more.pop("number", None)
        (workload,) = self.workspace().project.select(())
        made = run(
            values or {("step", "kernel_count"): 10.0},
            workload=more.pop("workload", "train"),
            schedule=schedule,
            pair=pair,
            environment=Environment.of(
                {"gpu_model": gpu, "world_size": "1", "workload_hash": definition or workload.spec.definition_hash}
            ),
            **more,
        )
        commit = self.repository.git("rev-parse", branch)
        revision = Revision(label=branch, commit=commit, tree="0" * 40)
        return replace(
            made,
            revision=revision,
            launch=replace(made.launch, started_at=datetime.now(UTC), plan=(LEAST, 6), session=number),
        )

    def launches(self, revisions: str = "main..topic", **request) -> bool:
        """Whether `compare --measure` would launch anything."""
        self.launched, self.heard = [], Heard()
        self.compared(revisions, measure=True, **request)
        assert bool(self.launched) != any("nothing to launch" in line for line in self.heard.lines)
        return bool(self.launched)

    def compared(self, revisions: str, **request) -> Comparison:
        workspace = self.workspace()
        with open_store(workspace.project.database_url) as store:
            return run_comparison(workspace, store, CompareRequest(revisions=revisions, **request), self.heard)

    def ordinal(self, like: Run, *branches: str) -> int:
        """The number that a launch of a new session of two branches gives itself."""
        with open_store(self.workspace().project.database_url) as store:
            session = Session(workspace=None, store=store, limits=None, judge=None, progress=self.heard)
            session._sides = tuple(self.repository.git("rev-parse", branch) for branch in branches)
            return session._ordinal(replace(like, launch=replace(like.launch, schedule="now")))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path / "repository", monkeypatch)


def test_a_session_of_both_sides_is_enough_and_remeasure_asks_for_another(world: World) -> None:
    assert world.launches()
    world.session("main", "topic")
    assert not world.launches()
    assert world.launches(remeasure=True)
    assert world.launched == ["train"]


@pytest.mark.parametrize(
    ("branches", "session"),
    [
        (("main", "other"), {}),
        (("topic", "other"), {}),
        (("main",), {}),
        (("main", "topic"), {"workload": "eval"}),
        (("main", "topic"), {"definition": "of another day"}),
        (("main", "topic"), {"spoiled": True}),
        (("main", "topic"), {"pairs": LEAST - 1}),
        (("main", "topic"), {"name": ""}),
    ],
    ids=[
        "another baseline",
        "another candidate",
        "one side alone",
        "another workload",
        "another definition",
        "spoiled",
        "too few pairs",
        "not in turns",
    ],
)
def test_what_is_no_session_of_this_comparison_does_not_spare_the_launches(world: World, branches, session) -> None:
    world.session(*branches, **session)
    assert world.launches()


def test_sides_that_were_launched_in_different_sessions_were_not_measured_together(world: World) -> None:
    world.session("main", name="first")
    world.session("topic", name="second")
    assert world.launches()


def test_the_same_two_revisions_the_other_way_round_were_measured(world: World) -> None:
    world.session("topic", "main")
    assert not world.launches("main..topic")
    assert not world.launches("topic..main")


def test_the_environment_measured_last_counts(world: World) -> None:
    world.session("main", "topic", name="old")
    world.session("main", "topic", name="new", gpu="B200", pairs=1)
    assert world.launches(), "the newest session, in its environment, is what would be judged: it has too few launches"


def test_an_open_gate_is_launched_for_and_a_hopeless_or_finished_one_is_not(world: World) -> None:
    noisy = "  gates:\n    - {metric: gpu_busy_ns, budget: 1%}\n"
    world.gates(noisy)

    def measured(name: str, pairs: int, spread: float) -> None:
        for pair in range(pairs):
            for side, branch in enumerate(("main", "topic")):
                values = {("step", "gpu_busy_ns"): 1e8 * (1 + spread * ((3 * pair + 5 * side) % 7 - 3))}
                with open_store(world.workspace().project.database_url) as store:
                    store.add_runs([world.launch(branch, pair, name, values=values)])

    measured("decided", 4, 0.00001)
    assert not world.launches()
    measured("open", 4, 0.004)
    assert world.launches()
    measured("finished", 6, 0.004)
    assert not world.launches(), "all that the plan has"


def test_a_gate_newer_than_the_session_is_launched_for_once(world: World) -> None:
    world.session("main", "topic")
    assert not world.launches()
    world.gates(GATES + "    - {metric: sync_count}\n")
    assert world.compared("main..topic").verdict == "NOT_MEASURED", "a look at the stored runs measures nothing"
    assert world.launches()
    world.session("main", "topic", name="again")
    assert world.compared("topic..main").verdict == "NOT_MEASURED"
    assert not world.launches(), "a session was made for it and lacks it: this machine does not measure it"
    world.gates(GATES + "    - {metric: sync_count}\n    - {metric: alloc_count}\n")
    assert world.launches()
    both = {("step", metric): 1.0 for metric in ("kernel_count", "sync_count", "alloc_count")}
    world.session("main", "topic", name="with them", values=both)
    assert not world.launches()
    assert world.compared("main..topic").verdict == "PASS"


def test_a_gate_that_cannot_be_measured_costs_no_second_session(world: World) -> None:
    """A retry must not take a verdict away: the next session would be judged at a smaller share."""
    world.gates(GATES + "    - {metric: sync_count}\n")
    world.session("main", "topic")
    world.compared("main..topic")
    assert not world.launches()


def test_sessions_are_counted_for_these_revisions_this_workload_and_this_environment(world: World) -> None:
    first = world.session("main", "topic")[0]
    assert world.ordinal(first, "main", "topic") == world.ordinal(first, "topic", "main") == 2
    assert world.ordinal(first, "main", "other") == 1
    assert world.ordinal(replace(first, workload="eval"), "main", "topic") == 1
    elsewhere = Environment.of({"gpu_model": "B200"})
    assert world.ordinal(replace(first, environment=elsewhere), "main", "topic") == 1
    world.session("main", "topic", name="spoiled", spoiled=True)
    world.session("main", "topic", name="broken off", pairs=1)
    assert world.ordinal(first, "main", "topic") == 2
    world.session("topic", "main", name="swapped")
    assert world.ordinal(first, "main", "topic") == 3


def test_sessions_of_one_revision_with_itself_are_those_that_launched_it_as_both(world: World) -> None:
    first, *_ = world.session("main", "topic", name="one")
    assert world.ordinal(first, "main", "main") == 1
    both = [
        replace(made, launch=replace(made.launch, seed=7, position=position))
        for position in range(4)
        for made in [world.launch("main", position // 2, "itself")]
    ]
    with open_store(world.workspace().project.database_url) as store:
        store.add_runs(both)
    assert world.ordinal(first, "main", "main") == 2
    assert world.ordinal(first, "main", "topic") == 2


def test_ctrl_c_in_the_first_session_gives_no_verdict_and_spends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Run] = []

    def interrupted(*_sides, **_) -> Measured:
        kept.extend(world.session("main", "topic", pairs=1, number=1))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(compare, "Session", lambda **_: SimpleNamespace(measure=interrupted))
        with pytest.raises(KeyboardInterrupt):
            world.compared("main..topic", measure=True)
    with open_store(world.workspace().project.database_url) as store:
        assert store.comparisons() == ()
        assert len(store.runs("train", kept[0].revision.identity)) == 1
    assert world.ordinal(kept[0], "main", "topic") == 1
    assert world.launches()


@pytest.mark.parametrize("again", [10.0, 12.0], ids=["gone", "found again"])
def test_a_regression_of_an_earlier_session_is_told_beside_an_answer_that_is_none(world: World, again: float) -> None:
    def session(number: int, count: float) -> list[str]:
        world.session("main", name=f"s{number}", number=number)
        world.session("topic", name=f"s{number}", number=number, values={("step", "kernel_count"): count})
        (workload,) = world.compared("main..topic").workloads
        return [note.text for note in workload.notes if note.code == "earlier-regression"]

    assert session(1, 12.0) == []
    told = session(2, again)
    assert [text.partition("found a regression: ")[2] for text in told] == (
        ["step/kernel_count +20%; this answer is that of the newest session alone"] if again == 10.0 else []
    )
    with open_store(world.workspace().project.database_url) as store:
        told_first = [one for one in store.comparisons() if one.comparison.verdict is Verdict.REGRESSION]
    assert len(told_first) == (1 if again == 10.0 else 2)


def test_a_database_that_cannot_be_written_is_told_before_the_first_launch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "read_only", property(lambda _self: True))
    monkeypatch.setattr(measure, "bench_for", lambda *_, **__: pytest.fail("took the machine"))
    said = "is read-only, and what is measured must be stored"
    with pytest.raises(BackendError, match=said):
        world.compared("main..topic", measure=True)
    workspace = world.workspace()
    with open_store(workspace.project.database_url) as store, pytest.raises(BackendError, match=said):
        measure_revision(workspace, store, MeasureRequest(revision="main"), world.heard)
    assert world.launched == []
