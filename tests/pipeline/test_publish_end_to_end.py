"""From stored launches to a pull request: real perfci processes, real databases, a GitHub that checks its contract."""

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from publish_world import CONFIG, START, run, sides, spoiled

from perfci.config.baselines import write_baseline
from perfci.errors import BackendError
from perfci.stats.pinned import pin
from perfci.store.store import Store, open_store

TRACES = Path(__file__).parents[1] / "traces"
SCRIPT = Path(__file__).parents[2] / ".github" / "actions" / "perfci" / "run.sh"
HALF_AN_HOUR = timedelta(minutes=30)
LABEL = "perf-regression-accepted"


def check(world):
    return world.server.state.checks[-1]


def test_a_regression_of_a_fork_reaches_its_pull_request(world):
    bundle = world.bundle(*sides(world.base, world.head, slower=0.06, syncs=2))
    done = world.publish(*world.fork(), bundle, arguments=("--link", "dashboard=https://perf.example/x"), process=True)
    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    found = check(world)
    assert (found["conclusion"], found["head_sha"]) == ("failure", world.head)
    assert [(a["path"], a["start_line"]) for a in found["annotations"]] == [("train.py", 3)]
    (comment,) = world.shown()
    for text in (comment, found["summary"], world.summary.read_text()):
        assert "egression" in text.split("\n", 2)[0] + text.split("\n", 2)[1]
        assert f"{world.server.web_url}/octo/train/actions/runs/500#artifacts" in text
        assert "https://perf.example/x" in text
        assert f"perfci compare {world.base[:12]}..{world.head[:12]} --measure" in text
    assert "Regression: step unprofiled wall time +6.0" in done.stdout
    assert "2 of 2 checks regressed" in " ".join(done.stdout.split())
    assert world.stored() == frozenset(), "code of a pull request never becomes history"
    with open_store(world.database) as store:
        (kept,) = store.comparisons(candidate=world.head)
        assert kept.comparison.verdict == "REGRESSION"


def test_equal_code_passes_and_publishing_twice_posts_once(world):
    bundle = world.bundle(*sides(world.base, world.head))
    for _ in range(2):
        done = world.publish(*world.fork(), bundle, arguments=("-f", "json"))
        assert done.returncode == 0, done.stderr + done.stdout
    assert json.loads(done.stdout)["verdict"] == "PASS"
    assert [c["conclusion"] for c in world.server.state.checks] == ["success"]
    assert len(world.shown()) == 1


def test_the_number_of_a_session_travels_through_a_bundle(world):
    """The second session of a pair of revisions is judged at its share of the error rate also where it is published."""
    levels = {}
    for number in (1, 2):
        launches = [
            replace(one, launch=replace(one.launch, plan=(3, 12), session=number))
            for one in sides(
                world.base, world.head, slower=0.2, schedule=f"session {number}", start=START + number * HALF_AN_HOUR
            )
        ]
        done = world.publish(*world.fork(), world.bundle(*launches), arguments=("-f", "json"))
        (workload,) = json.loads(done.stdout)["workloads"]
        codes = {note["code"] for note in workload["notes"]}
        assert ("repeated-session" in codes) == (number == 2)
        (row,) = [row for row in workload["rows"] if row["metric"] == "unprofiled_wall_ns"]
        levels[number] = 1 - row["effect"]["confidence"]
    assert levels[2] < levels[1] / 10


@pytest.mark.parametrize("counted", [(1, 2), (1, 1), (None, None)], ids=["one database", "empty runner", "unknown"])
def test_a_second_session_tells_what_the_first_one_found(world, counted):
    """Also where each job of a runner starts with an empty database, and so counts from 1 (re-run until green)."""
    told = []
    for number, slower in ((1, 0.2), (2, 0.0)):
        launches = [
            replace(one, launch=replace(one.launch, plan=(3, 12), session=counted[number - 1]))
            for one in sides(
                world.base, world.head, slower=slower, schedule=f"session {number}", start=START + number * HALF_AN_HOUR
            )
        ]
        done = world.publish(*world.fork(), world.bundle(*launches), arguments=("-f", "json"))
        (workload,) = json.loads(done.stdout)["workloads"]
        told.append([note["text"] for note in workload["notes"] if note["code"] == "earlier-regression"])
        with closing(sqlite3.connect(world.database.removeprefix("sqlite:///"))) as database, database:
            database.execute("UPDATE comparisons SET stored_at_us = ?", [int((START + HALF_AN_HOUR).timestamp() * 1e6)])
    assert told[0] == []
    assert "step/unprofiled_wall_ns +2" in told[1][0]


def test_real_traces_travel_through_a_bundle(world):
    for commit, name in ((world.base, "h200_gpt_cuda_graph_granularity_node"), (world.head, "h200_gpt_item_each_step")):
        (trace,) = TRACES.glob(f"{name}*.gz")
        done = world.perfci("import", trace, "-w", "gpt", "-r", commit, cwd=world.measured)
        assert done.returncode == 0, done.stderr
    (world.trusted / "perfci.yaml").write_text("workloads: [{name: gpt, command: python train.py}]\n")
    done = world.publish(*world.fork(), world.bundle_of(f"{world.base}..{world.head}"), arguments=("-f", "json"))
    assert done.returncode == 3, done.stderr
    (workload,) = json.loads(done.stdout)["workloads"]
    rows = {(row["phase"], row["metric"]): row["verdict"] for row in workload["rows"]}
    assert rows["step", "kernel_count"] == "REGRESSION"
    assert rows["step", "gpu_busy_ns"] == "INCONCLUSIVE"


def test_pushes_to_main_make_the_history_they_are_judged_by(world):
    first = world.bundle(*(run(world.base, pair=i, position=i) for i in range(5)), revisions=world.base, run_id=600)
    done = world.publish(*world.push(world.base, 600), first, process=True)
    assert done.returncode == 5, done.stderr
    assert "nothing to compare with yet" in world.summary.read_text()
    assert world.stored() == {world.base}
    world.commit()  # never measured
    second = world.commit(**{"train.py": "print(3)\n"})
    world.clone()
    later = [run(second, pair=i, position=100 + i, syncs=2, schedule="t") for i in range(5)]
    done = world.publish(*world.push(second, 601), world.bundle(*later, revisions=second, run_id=601))
    assert done.returncode == 3, done.stderr + done.stdout
    assert world.base[:12] in world.summary.read_text()
    assert world.stored() == {world.base, second}
    assert [c["head_sha"] for c in world.server.state.checks] == [world.base, second]
    assert world.shown() == [], "a push has no pull request to comment on"


@pytest.mark.parametrize(("syncs", "code"), [(1, 4), (2, 3)])
def test_the_first_push_is_judged_by_a_reviewed_baseline_file(world, syncs, code):
    """Counts decide; step time cannot within a budget of 2 %, which is what a machine may drift (decision 0043)."""
    level = [run(world.base, pair=i, position=i) for i in range(5)]
    write_baseline(world.trusted / "baselines", pin(level, reason="agreed", accepted_on="2026-01-01"))
    pushed = [run(world.base, pair=i, position=50 + i, syncs=syncs) for i in range(5)]
    bundle = world.bundle(*pushed, revisions=world.base, run_id=600)
    done = world.publish(*world.push(world.base, 600), bundle, arguments=("-f", "json"))
    (workload,) = json.loads(done.stdout)["workloads"]
    (row,) = (row for row in workload["rows"] if row["metric"] == "sync_count")
    assert row["verdict"] == ("PASS", "REGRESSION")[syncs - 1]
    assert done.returncode == code, done.stderr
    assert "agreed" in world.summary.read_text()


def test_a_first_push_with_other_losses_is_not_comparable_with_the_file(world):
    golden = "command: python train.py, default_preset: one, presets: {one: {losses: [2.0, 1.0]}}"
    config = (world.trusted / "perfci.yaml").read_text()
    (world.trusted / "perfci.yaml").write_text(config.replace("command: python train.py", golden))
    level = [run(world.base, pair=i, position=i) for i in range(5)]
    write_baseline(world.trusted / "baselines", pin(level, reason="agreed", accepted_on="2026-01-01"))
    pushed = [run(world.base, pair=i, position=50 + i, losses=(2.0, 0.2)) for i in range(5)]
    bundle = world.bundle(*pushed, revisions=world.base, run_id=600)
    done = world.publish(*world.push(world.base, 600), bundle, arguments=("-f", "json"))
    (workload,) = json.loads(done.stdout)["workloads"]
    (row,) = (row for row in workload["rows"] if row["metric"] == "sync_count")
    assert (row["verdict"], row["reason"]) == ("NOT_COMPARABLE", "numerics-differ")
    assert done.returncode == 4, done.stderr


def test_a_changed_machine_starts_a_new_history_and_is_not_green(world):
    first = world.bundle(*(run(world.base, pair=i, position=i) for i in range(3)), revisions=world.base, run_id=600)
    world.publish(*world.push(world.base, 600), first)
    second = world.commit()
    world.clone()
    moved = [run(second, pair=i, position=50 + i, schedule="t", gpu="NVIDIA B200") for i in range(3)]
    done = world.publish(*world.push(second, 601), world.bundle(*moved, revisions=second, run_id=601))
    assert done.returncode == 4, done.stderr
    assert "B200" in world.summary.read_text()
    third = world.commit()
    world.clone()
    again = [run(third, pair=i, position=90 + i, schedule="u", gpu="NVIDIA B200", syncs=2) for i in range(3)]
    done = world.publish(*world.push(third, 602), world.bundle(*again, revisions=third, run_id=602))
    assert done.returncode == 3, done.stderr
    assert second[:12] in world.summary.read_text()


def test_a_merge_queue_entry_gets_a_check_and_no_comment(world):
    bundle = world.bundle(*sides(world.base, world.head, syncs=2))
    event = world.fork(
        event="merge_group", head_branch="gh-readonly-queue/main/pr-7", head_repository={"full_name": "octo/train"}
    )
    assert world.publish(*event, bundle).returncode == 3
    assert [(c["head_sha"], c["conclusion"]) for c in world.server.state.checks] == [(world.head, "failure")]
    assert (world.shown(), world.stored()) == ([], frozenset())


def test_a_branch_that_only_looks_like_main_extends_nothing(world):
    bundle = world.bundle(*(run(world.head, pair=i, position=i) for i in range(3)), revisions=world.head)
    for more in ({"head_branch": "main"}, {"event": "push", "head_branch": "main"}, {"event": "push"}):
        assert world.publish(*world.fork(**more), bundle).returncode == 5
    assert world.stored() == frozenset()


def test_a_regression_is_accepted_by_label_and_reason_and_stays_accepted(world):
    bundle = world.bundle(*sides(world.base, world.head, slower=0.06))
    assert world.publish(*world.fork(), bundle).returncode == 3
    world.server.state.permissions["alice"] = "write"
    world.server.state.pulls[7]["labels"].append(LABEL)
    event = world.comment(f"/perf accept {world.head} correctness comes first")
    told = world.publish(*event, command="authorize")
    assert told.returncode == 0, told.stderr
    assert f"verb=accept\nhead_sha={world.head}\n" in told.stdout
    assert "measured_run=500\n" in told.stdout
    done = world.publish(*event, bundle, arguments=("--ended", "skipped"), process=True)
    assert done.returncode == 0, done.stderr
    assert check(world)["conclusion"] == "neutral"
    assert "correctness comes first" in world.shown()[0]
    with open_store(world.database) as store:
        (kept,) = store.acknowledgements(repository="octo/train", head_sha=world.head)
        assert (kept.author, kept.pull_request, kept.regressions) == (
            "alice",
            7,
            (("gpt", "step", "unprofiled_wall_ns"),),
        )
        world.server.state.comments = [c for c in world.server.state.comments if c["login"] != "alice"]
    done = world.publish(*world.fork(), bundle)
    assert (done.returncode, check(world)["conclusion"]) == (0, "neutral"), "the database remembers"


def test_accepting_hides_nothing_that_is_missing(world):
    """What was not measured stays not measured, although the event of the comment does not say how measuring ended."""
    bundle = world.bundle(*sides(world.base, world.head, slower=0.06))
    assert world.publish(*world.fork(conclusion="failure"), bundle).returncode == 3
    world.server.state.permissions["alice"] = "write"
    world.server.state.pulls[7]["labels"].append(LABEL)
    event = world.comment(f"/perf accept {world.head} correctness comes first")
    assert world.publish(*event, bundle).returncode == 5
    before = world.shown()
    gone = world.publish(*event)
    assert gone.returncode == 5
    assert "/perf run" in gone.stderr
    assert world.shown() == before, "bundles that GitHub has deleted overwrite no result"


@pytest.mark.parametrize(
    ("body", "login", "code", "said"),
    [
        ("nice work", "alice", 0, ""),
        ("/perf run HEAD", "mallory", 2, "write permission"),
        ("/perf run HEAD", "alice", 0, "verb=run"),
        ("/perf accept HEAD because I say so", "alice", 2, "nothing was measured"),
    ],
)
def test_authorize_says_what_it_decided(world, body, login, code, said):
    world.server.state.permissions["alice"] = "write"
    done = world.publish(*world.comment(body.replace("HEAD", world.head), login), command="authorize")
    assert done.returncode == code, done.stderr
    assert said in (done.stderr if code else done.stdout)
    assert bool(done.stdout) == (said == "verb=run")


@pytest.mark.parametrize(("ended", "code"), [("success", 0), ("failure", 5)])
def test_a_commanded_measurement_is_incomplete_when_its_job_failed(world, ended, code):
    world.server.state.permissions["alice"] = "write"
    bundle = world.bundle(*sides(world.base, world.head), run_id=900)
    done = world.publish(*world.comment(f"/perf run {world.head}"), bundle, arguments=("--ended", ended))
    assert done.returncode == code, done.stderr
    assert len([body for body in world.shown() if "perfci" in body]) == 1


def test_a_commanded_measurement_of_one_workload_turns_the_check_of_all_not_green(world):
    """One check speaks for the head: a regression of another workload must not vanish behind `/perf run SHA gpt`."""
    config = CONFIG.replace("judge:", "  - {name: bert, command: python train.py}\njudge:")
    (world.trusted / "perfci.yaml").write_text(config)
    world.server.state.permissions["alice"] = "write"
    bundle = world.bundle(*sides(world.base, world.head), run_id=900)
    done = world.publish(*world.comment(f"/perf run {world.head} gpt"), bundle, arguments=("--ended", "success"))
    assert done.returncode == 5, done.stderr
    assert check(world)["conclusion"] == "failure"
    assert "bert" in world.shown()[-1]


def test_a_stale_head_is_judged_but_not_posted(world):
    bundle = world.bundle(*sides(world.base, world.head, slower=0.06))
    world.server.state.pulls[7]["head_sha"] = "c" * 40
    done = world.publish(*world.fork(), bundle)
    assert done.returncode == 3
    assert "has moved on" in done.stderr
    assert (world.server.state.checks, world.shown()) == ([], [])


def hostile_bundles(world, honest):
    document = json.loads(gzip.decompress(honest.read_bytes()))
    identity = document["identity"]
    impossible = json.loads(json.dumps(document))
    impossible["runs"][0]["series"][1]["values"] = [10**18] * 4
    for name, content in {
        "another commit": {**document, "identity": {**identity, "head_sha": "e" * 40}},
        "another repository": {**document, "identity": {**identity, "repository": "octo/other"}},
        "another run": {**document, "identity": {**identity, "run_id": 1}},
        "the head with itself": {**document, "identity": {**identity, "base_sha": identity["head_sha"]}},
        "impossible numbers": impossible,
        "not a bundle": {"format": "x"},
    }.items():
        path = honest.with_name(f"hostile-{name.replace(' ', '-')}.json.gz")
        path.write_bytes(gzip.compress(json.dumps(content).encode()))
        yield name, path


def test_hostile_bundles_are_refused_told_and_not_stored(world):
    honest = world.bundle(*sides(world.base, world.head), run_id=600, revisions=f"{world.base}..{world.head}")
    for name, path in hostile_bundles(world, honest):
        done = world.publish(*world.push(world.head, 600), path, process=name == "another commit")
        assert done.returncode == 5, (name, done.stderr)
        assert "Traceback" not in done.stderr
        assert check(world)["conclusion"] == "failure"
        assert "refused" in world.summary.read_text(), name
        assert world.stored() == frozenset(), name


def test_no_bundle_is_posted_as_not_measured(world):
    done = world.publish(*world.fork(conclusion="failure"), process=True)
    assert done.returncode == 5
    assert check(world)["conclusion"] == "failure"
    assert "left no bundle" in world.shown()[0]


def test_a_launch_that_failed_is_told_with_its_reason(world):
    bundle = world.bundle(
        *sides(world.base, world.head, pairs=1)[:1], arguments=("--failed", f"no nsys in {world.measured}/bin")
    )
    done = world.publish(*world.fork(conclusion="failure"), bundle)
    assert done.returncode == 5
    assert "no nsys in bin" in world.shown()[0], "without the folders of the machine"


def test_a_later_attempt_heals_a_failed_one(world):
    failed = world.bundle(arguments=("--failed", "the machine was busy"))
    healed = world.bundle(*sides(world.base, world.head), attempt=2)
    assert world.publish(*world.fork(run_attempt=2), failed, healed).returncode == 0
    assert world.publish(*world.fork(run_attempt=1), failed, healed).returncode == 5, "an attempt of the future"


def test_a_broken_configuration_is_told_on_the_pull_request(world):
    (world.measured / "perfci.yaml").write_text("workloads: []\nmeasure: {warmup: 3}\n")
    done = world.publish(*world.fork(conclusion="failure"), world.bundle_of(f"{world.base}..{world.head}"))
    assert done.returncode == 5
    assert "unknown key" in world.shown()[0]
    assert str(world.measured) not in world.shown()[0]


def test_a_workload_that_is_missing_or_spoiled_is_not_green(world):
    config = CONFIG.replace("judge:", "  - {name: bert, command: python train.py}\njudge:")
    (world.trusted / "perfci.yaml").write_text(config)
    bundle = world.bundle(*sides(world.base, world.head))
    done = world.publish(*world.fork(), bundle)
    assert done.returncode == 5
    assert "bert" in world.shown()[0]
    done = world.publish(*world.fork(), bundle, arguments=("--workload", "gpt"))
    assert done.returncode == 0, done.stderr


def test_all_launches_spoiled_is_not_measured(world):
    bundle = world.bundle(*map(spoiled, sides(world.base, world.head)))
    assert world.publish(*world.fork(), bundle).returncode in (4, 5)
    assert check(world)["conclusion"] != "success"


def test_two_kinds_of_gpu_are_judged_apart(world):
    fast = world.bundle(*sides(world.base, world.head))
    slow = sides(world.base, world.head, slower=0.06, gpu="NVIDIA A100", schedule="u")
    with open_store(f"sqlite:///{world.root / 'other.db'}") as store:
        store.add_runs(slow)
    other = world.bundle_of(f"{world.base}..{world.head}", arguments=("--db", f"sqlite:///{world.root / 'other.db'}"))
    done = world.publish(*world.fork(), fast, other, arguments=("-f", "json"))
    assert done.returncode == 3, done.stderr
    verdicts = {
        w["workload"]: {r["verdict"] for r in w["rows"] if r["verdict"]} for w in json.loads(done.stdout)["workloads"]
    }
    assert verdicts["gpt on NVIDIA H200"] == {"PASS"}
    assert "REGRESSION" in verdicts["gpt on NVIDIA A100"]


def test_a_bundle_is_made_also_where_measuring_ended_before_it_made_a_database(world):
    missing = world.root / "missing" / "runs.db"
    arguments = ("--db", f"sqlite:///{missing}", "--failed", "the machine stayed busy")
    done = world.publish(*world.fork(), world.bundle_of(f"{world.base}..{world.head}", arguments=arguments))
    assert done.returncode == 5, done.stderr
    assert "the machine stayed busy" in world.summary.read_text()
    assert not missing.parent.exists()


@pytest.mark.parametrize(("slower", "code"), [(0.06, 3), (0.0, 6)])
def test_a_refusing_github_changes_no_verdict(world, slower, code):
    bundle = world.bundle(*sides(world.base, world.head, slower=slower))
    for method, part in (("POST", "/check-runs"), ("POST", "/statuses/"), ("POST", "/comments")):
        world.server.state.fail(method, part, 403, "Resource not accessible by integration", times=9)
    done = world.publish(*world.fork(), bundle, process=True)
    assert done.returncode == code, done.stderr
    assert "not accessible by integration" in done.stderr
    assert world.summary.read_text().startswith("## ")
    assert world.server.state.token not in done.stderr + done.stdout + world.summary.read_text()


def test_without_a_token_or_a_database_the_verdict_is_still_given(world):
    bundle = world.bundle(*sides(world.base, world.head, slower=0.06))
    done = world.publish(*world.fork(), bundle, GITHUB_TOKEN="")
    assert done.returncode == 3
    assert "no GitHub token" in done.stderr
    assert world.summary.exists()
    url = "postgresql+psycopg://someone:hunter2@127.0.0.1:1/none"
    done = world.publish(*world.fork(), bundle, arguments=("--db", url))
    assert done.returncode == 3, done.stderr
    assert "hunter2" not in done.stderr + done.stdout + world.summary.read_text()
    assert "database could not be reached" in world.shown()[0]


def break_database(monkeypatch, method):
    """From now on this method of every database but the ones in memory fails."""
    works = getattr(Store, method)

    def broken(self, *arguments, **more):
        if self.name != "sqlite://":
            raise BackendError("the database went away")
        return works(self, *arguments, **more)

    monkeypatch.setattr(Store, method, broken)


@pytest.mark.parametrize(
    "method", ["add_runs", "add_comparison", "measured_commits", "acknowledgements", "noise_levels"]
)
def test_a_database_that_fails_half_way_takes_no_verdict_away(world, monkeypatch, method):
    """A push uses the database for all it can do; the level to judge by is a reviewed file."""
    level = [run(world.base, pair=i, position=i) for i in range(5)]
    write_baseline(world.trusted / "baselines", pin(level, reason="agreed", accepted_on="2026-01-01"))
    pushed = [run(world.base, pair=i, position=50 + i, syncs=2) for i in range(5)]
    bundle = world.bundle(*pushed, revisions=world.base, run_id=600)
    break_database(monkeypatch, method)
    done = world.publish(*world.push(world.base, 600), bundle)
    assert done.returncode == 3, done.stderr
    assert done.stderr.count("the database went away") == 1
    assert check(world)["conclusion"] == "failure"
    judged_without = method in ("measured_commits", "noise_levels")
    assert ("noise floors, history and earlier acceptances are not known" in done.stdout) == judged_without


def test_a_refused_bundle_overwrites_no_result_when_a_regression_is_accepted(world):
    bundle = world.bundle(*sides(world.base, world.head, slower=0.06))
    assert world.publish(*world.fork(), bundle).returncode == 3
    world.server.state.permissions["alice"] = "write"
    world.server.state.pulls[7]["labels"].append(LABEL)
    event = world.comment(f"/perf accept {world.head} correctness comes first")
    before = world.shown()
    bundle.write_bytes(gzip.compress(b"{}"))
    assert world.publish(*event, bundle).returncode == 5
    assert world.shown() == before


def step(world, mode, name="push", payload=None, *, cwd=None, **environ):
    """The shipped action's script with the real perfci."""
    runner = world.root / "runner"
    runner.mkdir(exist_ok=True)
    if not (runner / "perfci-venv").exists():
        (runner / "perfci-venv").symlink_to(sys.prefix)
    (world.root / "event.json").write_text(json.dumps(payload or {}))
    unset = ("WORKLOAD", "GPU_LABELS", "BASE", "HEAD_REVISION", "BUNDLES", "PERFCI_DATABASE_URL")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PERFCI_", "GITHUB_", "GH_"))}
    return subprocess.run(
        ["bash", SCRIPT],
        cwd=cwd or world.trusted,
        env={
            **clean,
            **dict.fromkeys(unset, ""),
            "MODE": mode,
            "GPU": "h200",
            "RUNNER_TEMP": str(runner),
            "PERFCI_LOCK_DIR": str(runner / "locks"),
            "GITHUB_OUTPUT": str(world.root / "output"),
            "GITHUB_EVENT_NAME": name,
            "GITHUB_EVENT_PATH": str(world.root / "event.json"),
            "GITHUB_REPOSITORY": "octo/train",
            "GITHUB_RUN_ID": "500",
            "GITHUB_API_URL": world.server.url,
            "GITHUB_SERVER_URL": world.server.web_url,
            **environ,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_shipped_script_carries_a_crash_from_the_runner_to_the_pull_request(world):
    """Plan, measure (the training crashes at once), publish: as the workflows call it."""
    planned = step(world, "plan", GPU_LABELS="h200 a100")
    assert planned.returncode == 0, planned.stderr
    assert "count=2" in (world.root / "output").read_text()
    world.git("checkout", "-q", "topic")
    world.base = world.commit(**{"train.py": "raise SystemExit('no such data set')\n"})  # either side may be first
    world.head = world.commit()
    world.server.state.pulls[7]["head_sha"] = world.head
    measured = step(world, "measure", cwd=world.measured, WORKLOAD="gpt", BASE=world.base, HEAD_REVISION=world.head)
    assert measured.returncode == 5, measured.stderr + measured.stdout
    folder = world.root / "runner" / "perfci-bundle"
    assert (folder / "perfci-h200-gpt.json.gz").exists()
    event, payload = world.fork(conclusion="failure")
    token = world.server.state.token
    links = "dashboard=https://perf.example/"
    done = step(world, "publish", event, payload, BUNDLES=str(folder), GITHUB_TOKEN=token, LINKS=links)
    assert done.returncode == 5, done.stderr
    (comment,) = world.shown()
    assert links.partition("=")[2] in comment
    assert "no such data set" in comment, "the last line of the training's own log"
    assert str(world.measured) not in comment
