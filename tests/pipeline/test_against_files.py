"""`compare @baseline..REV`: reviewed files instead of a baseline run. Real store, real git, real files."""

from dataclasses import replace
from pathlib import Path

import pytest
from heard import Heard
from repository import CONFIG, Repository
from run_builder import ENVIRONMENT, run

from perfci.config.baselines import read_baselines, write_baseline
from perfci.errors import MeasurementError, UsageError
from perfci.model.baseline import ACCEPTED_ALONE
from perfci.model.comparison import Reason
from perfci.model.environment import Environment
from perfci.model.finding import Confidence, Finding, Quantity
from perfci.model.history import NoiseLevel
from perfci.model.metrics import Statistic
from perfci.model.run import Revision, Run
from perfci.model.verdict import Verdict
from perfci.pipeline import against_files
from perfci.pipeline.compare import CompareRequest, run_comparison
from perfci.pipeline.measure import Launched
from perfci.pipeline.workspace import open_workspace
from perfci.report.context import ReportContext
from perfci.report.view import view_of
from perfci.stats.pinned import judge_pinned, pin
from perfci.store.store import open_store

KEY = ("step", "unprofiled_wall_ns")
GOLDEN = CONFIG.replace(
    "command: python train.py",
    "command: python train.py, default_preset: one, presets: {one: {losses: [2.0, 1.0]}}",
)
QUIET = (1.0, 1.001, 0.999, 1.0005)


def launches(revision: Revision, step_ns: float, *, schedule: str = "s", hour: int = 0, **more) -> list[Run]:
    return [
        replace(
            run({KEY: step_ns * wobble}, schedule=schedule, pair=i, position=i, minute=60 * hour + i,
                **{"workload": "train", **more}),
            revision=revision,
        )
        for i, wobble in enumerate(QUIET)
    ]  # fmt: skip


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def head_of(repository: Repository) -> Revision:
    return open_workspace(repository.root).require_repository().resolve("HEAD")


def accepted(repository: Repository, step_ns: float = 1e7, *, workload: str = "train", **more) -> None:
    runs = launches(Revision(label="then"), step_ns, workload=workload, **more)
    write_baseline(repository.root / "baselines", pin(runs, reason="first numbers", accepted_on="2026-01-01"))


def stored(repository: Repository, *runs: Run) -> None:
    with open_store(open_workspace(repository.root).project.database_url) as store:
        store.add_runs(runs)


def compared(repository: Repository, revisions: str = "@baseline..HEAD", **request):
    workspace = open_workspace(repository.root)
    with open_store(workspace.project.database_url) as store:
        return run_comparison(workspace, store, CompareRequest(revisions=revisions, **request), Heard())


def step_row(workload):
    (row,) = [row for row in workload.rows if (row.phase, row.metric) == KEY]
    return row


def test_a_head_is_judged_by_the_files_and_says_so(repository: Repository) -> None:
    accepted(repository)
    stored(repository, *launches(head_of(repository), 1.5e7))
    (workload,) = compared(repository).workloads
    assert (step_row(workload).verdict, step_row(workload).reason) == (Verdict.REGRESSION, Reason.CUMULATIVE)
    assert [note.code for note in workload.notes] == [ACCEPTED_ALONE]
    assert "first numbers" in workload.notes[0].text


def test_changes_in_the_working_tree_matter_only_when_it_is_measured(repository: Repository) -> None:
    accepted(repository)
    stored(repository, *launches(head_of(repository), 1e7))
    repository.write("train.py", "# half done\n")
    (workload,) = compared(repository).workloads
    assert step_row(workload).verdict is Verdict.PASS
    with pytest.raises(UsageError, match="uncommitted"):
        compared(repository, measure=True)


def test_imported_runs_are_named_by_their_label(repository: Repository, tmp_path: Path) -> None:
    accepted(repository)
    stored(repository, *launches(Revision(label="nightly"), 1e7))
    (workload,) = compared(repository, "@baseline..nightly").workloads
    assert step_row(workload).verdict is Verdict.PASS
    with pytest.raises(UsageError, match="nowhere"):
        compared(repository, "@baseline..nowhere")
    with pytest.raises(UsageError, match="nightly"):
        compared(repository, "@baseline..nightly", measure=True)
    (repository.root / ".git").rename(tmp_path / "elsewhere")
    (workload,) = compared(repository, "@baseline..nightly").workloads
    assert step_row(workload).verdict is Verdict.PASS
    with pytest.raises(UsageError, match="no runs with the label 'nowhere'"):
        compared(repository, "@baseline..nowhere")
    with pytest.raises(UsageError, match="not inside a git repository"):
        compared(repository, "@baseline..nightly", measure=True)


def test_workloads_come_from_the_configuration_the_patterns_and_the_files(repository: Repository) -> None:
    accepted(repository, workload="imported")
    head = head_of(repository)
    stored(repository, *launches(head, 1e7, workload="imported"))
    assert [w.workload for w in compared(repository).workloads] == ["train"]
    assert [w.workload for w in compared(repository, patterns=("imp*",)).workloads] == ["imported"]
    with pytest.raises(UsageError, match="no workload matches 'typo'"):
        compared(repository, patterns=("imp*", "typo"))
    repository.write("perfci.yaml", CONFIG[: CONFIG.index("workloads:")] + CONFIG[CONFIG.index("measure:") :])
    (workload,) = compared(repository).workloads
    assert (workload.workload, step_row(workload).verdict) == ("imported", Verdict.PASS)
    for path in (repository.root / "baselines").iterdir():
        path.unlink()
    with pytest.raises(UsageError, match="baselines holds no baseline file"):
        compared(repository)


def test_other_numerics_are_not_comparable(repository: Repository) -> None:
    repository.write("perfci.yaml", GOLDEN)
    accepted(repository)
    head = head_of(repository)
    stored(repository, *launches(head, 1.5e7, losses=(2.0, 7.0)))
    workload = compared(repository).workloads[0]
    assert (step_row(workload).verdict, step_row(workload).reason) == (
        Verdict.NOT_COMPARABLE,
        Reason.NUMERICS_DIFFER,
    )
    assert any("loss 7 at step 1" in note.text for note in workload.notes)


def test_launches_of_several_sessions_share_the_error_rate(repository: Repository) -> None:
    accepted(repository)
    head = head_of(repository)
    first, second = (launches(head, 1e7, schedule=name, hour=hour) for hour, name in enumerate("ab"))
    stored(repository, *first)
    (once,) = compared(repository).workloads
    stored(repository, *second)
    (twice,) = compared(repository).workloads
    assert twice.candidate_launches == 2 * once.candidate_launches
    assert [note.code for note in twice.notes] == [ACCEPTED_ALONE, "repeated-session"]
    assert "2 sessions: judged at 5 % of the error rate" in twice.notes[1].text
    settings = open_workspace(repository.root).project.judge
    ((_, levels),) = read_baselines(repository.root / "baselines")
    at_share = judge_pinned(levels, [*first, *second], replace(settings, error_rate=settings.error_rate * 0.05))
    assert step_row(twice).effect == step_row(at_share).effect
    stored(repository, *launches(head, 1e7, schedule="c", hour=2, spoiled=True))
    (spoiled,) = compared(repository).workloads
    assert step_row(spoiled).effect == step_row(twice).effect, "spoiled launches were judged by nobody"


def test_a_noise_floor_of_another_statistic_is_not_used_and_said(repository: Repository) -> None:
    accepted(repository)
    stored(repository, *launches(head_of(repository), 1e7))
    floor = NoiseLevel(phase=KEY[0], metric=KEY[1], deviation=0.004, upper=0.005, launches=8, statistic=Statistic.P10)
    with open_store(open_workspace(repository.root).project.database_url) as store:
        store.set_noise_floors("train", ENVIRONMENT, [floor])
    (workload,) = compared(repository).workloads
    assert [note.code for note in workload.notes] == [ACCEPTED_ALONE, "noise-floor-unused"]


def test_the_newest_environment_with_a_file_is_judged_and_another_one_is_named(repository: Repository) -> None:
    accepted(repository)
    other = Environment.of({**dict(ENVIRONMENT.entries), "driver": "580.1"})
    head = head_of(repository)
    stored(repository, *launches(head, 1e7), *launches(head, 3e7, environment=other, schedule="t", hour=1))
    (workload,) = compared(repository).workloads
    assert (step_row(workload).verdict, workload.candidate_launches) == (Verdict.PASS, 4)
    lone = repository.commit("another driver", forward_s=0.001)
    stored(repository, *launches(Revision(label="HEAD", commit=lone, tree="0" * 40), 1e7, environment=other))
    (workload,) = compared(repository).workloads
    assert step_row(workload).verdict is Verdict.NOT_COMPARABLE
    assert [(d.field, d.baseline, d.candidate) for d in workload.key_differences] == [("driver", "570.2", "580.1")]


def test_only_what_is_missing_is_launched_and_a_failure_leaves_the_others_judged(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("measured", "broken")
    repository.write(
        "perfci.yaml",
        CONFIG.replace("workloads:\n", "workloads:\n" + "".join(f"  - {{name: {n}, command: x}}\n" for n in names)),
    )
    head_commit = repository.commit("three workloads", forward_s=0.001)
    workspace = open_workspace(repository.root)
    hashes = {w.spec.name: w.spec.definition_hash for w in workspace.project.select()}
    head = workspace.require_repository().resolve(head_commit)

    def made(name: str, *, definition: str | None = None) -> list[Run]:
        environment = Environment.of({**dict(ENVIRONMENT.entries), "workload_hash": definition or hashes[name]})
        return launches(head, 1e7, workload=name, environment=environment)

    for name in hashes:
        write_baseline(workspace.project.baselines, pin(made(name), reason="first", accepted_on="2026-01-01"))
    stored(repository, *made("measured"), *made("train", definition="yesterday"))
    asked = []

    def launch(_workspace, store, workloads, revision, *, launches, **_more) -> Launched:
        asked.append(([w.spec.name for w in workloads], revision.commit, launches))
        store.add_runs(run for w in workloads if w.spec.name != "broken" for run in made(w.spec.name))
        failed = {w.spec.name: MeasurementError("exit code 3") for w in workloads if w.spec.name == "broken"}
        return Launched(runs=(), failures=failed)

    monkeypatch.setattr(against_files, "launch_revision", launch)
    judged = {w.workload: w for w in compared(repository, f"@baseline..{head_commit}", measure=True).workloads}
    assert asked == [(["broken", "train"], head_commit, 4)]
    assert step_row(judged["measured"]).verdict is step_row(judged["train"]).verdict is Verdict.PASS
    assert judged["broken"].tally.worst is Verdict.NOT_MEASURED
    assert judged["broken"].notes[0].text == "exit code 3"
    compared(repository, f"@baseline..{head_commit}", remeasure=True)
    assert asked[1][0] == ["measured", "broken", "train"]


def test_known_patterns_are_present_and_not_called_equal_to_a_side_that_is_not_there(repository: Repository) -> None:
    sync = Finding(
        rule="accidental-sync",
        phase="step",
        title="waits each step",
        evidence=(Quantity(name="calls per step", value=1.0, unit="count"),),
        confidence=Confidence.HIGH,
        advice="Keep the loss on the GPU.",
    )
    accepted(repository)
    head = head_of(repository)
    stored(repository, *(replace(one, findings=(sync,)) for one in launches(head, 1e7)))
    comparison = compared(repository)
    (finding,) = comparison.workloads[0].findings
    assert (finding.new, finding.worsened) == (False, False)
    assert [f.standing for f in view_of(comparison, ReportContext(perfci_version="1")).workloads[0].findings] == [
        "present"
    ]
