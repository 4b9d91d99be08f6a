"""The shipped workflows: linted, least privilege, one measurement per GPU, and a script that trusts no input."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTION = GITHUB / "actions" / "perfci" / "action.yml"
SCRIPT = GITHUB / "actions" / "perfci" / "run.sh"
BIN = Path(sys.executable).parent


def tool(name, *arguments, **kwargs):
    return subprocess.run([BIN / name, *arguments], capture_output=True, text=True, cwd=ROOT, check=False, **kwargs)


def test_actionlint():
    done = tool("actionlint", "-config-file", str(GITHUB / "actionlint.yaml"), *map(str, WORKFLOWS))
    assert done.returncode == 0, done.stdout


def test_zizmor_as_auditor():
    done = tool("zizmor", "--offline", "--no-progress", "--persona", "auditor", "--strict-collection", str(GITHUB))
    assert done.returncode == 0, done.stdout + done.stderr


def test_schemas():
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *map(str, WORKFLOWS))
    assert done.returncode == 0, done.stdout
    done = tool("check-jsonschema", "--builtin-schema", "vendor.github-actions", str(ACTION))
    assert done.returncode == 0, done.stdout


def test_the_linters_can_fail(tmp_path):
    bad = tmp_path / "bad.yml"
    bad.write_text(
        "on: pull_request_target\njobs:\n  x:\n    runs-on: nowhere\n    steps:\n"
        "      - uses: actions/checkout@v4\n      - run: echo ${{ github.event.pull_request.title }}\n"
    )
    assert tool("actionlint", str(bad)).returncode != 0
    assert tool("zizmor", "--offline", "--no-progress", "--no-config", str(bad)).returncode != 0
    bad.write_text("on: push\njobs: []\n")
    assert tool("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(bad)).returncode != 0


def jobs():
    for path in WORKFLOWS:
        for name, job in yaml.safe_load(path.read_text())["jobs"].items():
            yield pytest.param(path.stem, job, id=f"{path.stem}/{name}")


def on_gpu(job):
    return "self-hosted" in job.get("runs-on", ())


def measures(job):
    """Measures itself, or by way of the shared workflow."""
    return on_gpu(job) or job.get("uses") == "./.github/workflows/perf-measure.yml"


@pytest.mark.parametrize(("workflow", "job"), list(jobs()))
def test_measuring_jobs_have_no_secret_and_no_write_permission(workflow, job):
    if not measures(job):
        return
    assert job["permissions"] == {"contents": "read"}
    assert "secrets" not in job
    text = yaml.safe_dump(job)
    for word in ("secrets.", "github.token", "GITHUB_TOKEN", "database", "id-token"):
        assert word not in text
    for step in job.get("steps", ()):
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize(("workflow", "job"), list(jobs()))
def test_a_gpu_is_never_shared_and_no_measurement_is_cancelled_in_line(workflow, job):
    if not on_gpu(job):
        return
    assert job["concurrency"] == {
        "group": "perfci-gpu-${{ matrix.gpu }}",
        "cancel-in-progress": False,
        "queue": "max",
    }
    assert job["runs-on"][-1] == "${{ matrix.gpu }}"
    assert job["strategy"]["fail-fast"] is False


@pytest.mark.parametrize(("workflow", "job"), list(jobs()))
def test_jobs_that_may_write_run_only_code_of_the_default_branch(workflow, job):
    if not any(right == "write" for right in job["permissions"].values()):
        return
    assert workflow in ("perf-publish", "perf-command")
    assert not on_gpu(job)
    for step in job["steps"]:
        if "checkout" in step.get("uses", ""):
            assert "ref" not in step["with"]
            assert "repository" not in step["with"]
        assert "run" not in step


def test_no_workflow_uses_pull_request_target_or_grants_rights_to_all_jobs():
    for path in WORKFLOWS:
        document = yaml.safe_load(path.read_text())
        assert "pull_request_target" not in str(document[True])  # YAML 1.1 reads the key `on` as true
        assert document["permissions"] == {}


def test_publish_listens_to_exactly_the_measuring_workflows():
    documents = {path.stem: yaml.safe_load(path.read_text()) for path in WORKFLOWS}
    heard = documents["perf-publish"][True]["workflow_run"]["workflows"]
    measuring = {
        name
        for name, document in documents.items()
        if any(measures(job) for job in document["jobs"].values())
        and "publish" not in document["jobs"]  # perf-command publishes itself
        and "workflow_call" not in document[True]
    }
    assert set(heard) == measuring == {"perf-pull-request", "perf-main", "perf-nightly", "perf-merge-queue"}
    assert all(documents[name]["name"] == name for name in documents)


def test_every_measuring_run_that_was_not_skipped_is_published():
    """A job that takes longer than its `timeout-minutes` ends its run as cancelled: that is not measured."""
    publish = yaml.safe_load((GITHUB / "workflows" / "perf-publish.yml").read_text())["jobs"]["publish"]
    assert publish["if"] == "github.event.workflow_run.conclusion != 'skipped'"


@pytest.mark.parametrize(("extra", "wanted"), [("", ""), ("[postgres]", "[postgres]")])
def test_the_action_installs_the_driver_of_a_database_that_it_is_given(tmp_path, extra, wanted):
    install = yaml.safe_load(ACTION.read_text())["runs"]["steps"][0]
    assert install["env"]["EXTRA"] == "${{ inputs.database != '' && '[postgres]' || '' }}"
    python = tmp_path / "perfci-venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/usr/bin/env bash\nprintf "%s\\n" "$@" >"$RUNNER_TEMP/arguments"\n')
    python.chmod(0o755)
    environ = {
        "PATH": os.environ["PATH"],
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_ACTION_PATH": str(ACTION.parent),
        "PYTHON": "true",
        "EXTRA": extra,
    }
    subprocess.run(["bash", "-c", install["run"]], env=environ, check=True)
    assert (tmp_path / "arguments").read_text().splitlines()[-1] == f"{ROOT}{wanted}"


@pytest.fixture
def step(tmp_path):
    """Runs the action's script with a `perfci` that writes down its arguments."""
    binary = tmp_path / "perfci-venv" / "bin" / "perfci"
    binary.parent.mkdir(parents=True)
    binary.write_text(
        '#!/usr/bin/env bash\nprintf "%s\\0" "$@" >>"$RUNNER_TEMP/calls"; printf "\\1" >>"$RUNNER_TEMP/calls"\n'
        'case "$1" in plan) echo "$MATRIX";; compare|run|publish) exit "${CODE:-0}";; esac\n'
    )
    binary.chmod(0o755)
    (tmp_path / "work").mkdir()

    def run(mode, **environ):
        done = subprocess.run(
            ["bash", SCRIPT],
            env={
                "PATH": os.environ["PATH"],
                "RUNNER_TEMP": str(tmp_path),
                "GITHUB_OUTPUT": str(tmp_path / "output"),
                "MODE": mode,
                "GPU": "h200",
                **dict.fromkeys(
                    ("WORKLOAD", "GPU_LABELS", "BASE", "HEAD_REVISION", "BUNDLES", "PERFCI_DATABASE_URL"), ""
                ),
                **environ,
            },
            cwd=tmp_path / "work",
            capture_output=True,
            text=True,
            check=False,
        )
        calls = tmp_path / "calls"
        lines = calls.read_text().split("\1")[:-1] if calls.exists() else []
        done.calls = [line.split("\0")[:-1] for line in lines]
        return done

    run.folder = tmp_path
    return run


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (3, 0), (4, 0), (1, 1), (2, 2), (5, 5), (130, 130)])
def test_only_a_failed_measurement_fails_the_measuring_job_and_the_bundle_is_always_written(step, code, ends):
    done = step("measure", WORKLOAD="gpt", BASE="b" * 40, HEAD_REVISION="a" * 40, CODE=str(code))
    assert done.returncode == ends
    assert done.calls[0][:3] == ["compare", "b" * 40 + "..." + "a" * 40, "--measure"]
    assert done.calls[1][:2] == ["bundle", done.calls[0][1]]
    assert done.calls[1][-1].endswith("perfci-h200-gpt.json.gz")
    assert ("--failed" in done.calls[1]) == (ends != 0), "and says that something is missing"


def test_without_a_base_the_head_alone_is_measured(step):
    done = step("measure", HEAD_REVISION="a" * 40)
    assert done.calls[0] == ["run", "a" * 40, "--launches", "5"]


EVIL = "$(touch pwned) `touch pwned`; touch pwned\n--db x"


@pytest.mark.parametrize("name", ["WORKLOAD", "BASE", "HEAD_REVISION", "GPU"])
def test_hostile_inputs_are_arguments_and_never_code(step, name):
    done = step("measure", **{"WORKLOAD": "gpt", "BASE": "b", "HEAD_REVISION": "a", name: EVIL})
    assert not (step.folder / "work" / "pwned").exists()
    assert done.returncode == 0
    assert any(EVIL in argument for argument in done.calls[0]), "the text arrives whole, inside one argument"


def test_plan_counts_the_jobs(step):
    done = step(
        "plan", GPU_LABELS="h200  a100", WORKLOAD="gpt res*", MATRIX='{"include":[{"workload":"gpt","gpu":"h200"}]}'
    )
    assert done.returncode == 0, done.stderr
    assert done.calls == [
        [
            "plan",
            "--format",
            "github-matrix",
            "--gpu",
            "h200",
            "--gpu",
            "a100",
            "--workload",
            "gpt",
            "--workload",
            "res*",
        ]
    ]
    assert (step.folder / "output").read_text().splitlines()[1] == "count=1"


def test_publish_hands_over_every_downloaded_bundle_and_nothing_else(step):
    folder = step.folder / "bundles"
    for part in ("perfci-bundle-gpt h200", "perfci-bundle-eval"):
        (folder / part).mkdir(parents=True)
        (folder / part / "perfci-x.json.gz").write_bytes(b"")
    (folder / "other.txt").write_bytes(b"")
    (folder / "perfci-link.json.gz").symlink_to("/etc/passwd")
    done = step("publish", BUNDLES=str(folder), PERFCI_DATABASE_URL="postgresql://db", CODE="3")
    assert done.returncode == 3
    (call,) = done.calls
    assert call[0] == "publish"
    assert call.count("--bundle") == 2
    assert not any("link" in argument for argument in call)
    assert call[-2:] == ["--db", "postgresql://db"]


def test_publish_without_a_bundle_still_publishes(step):
    done = step("publish", BUNDLES=str(step.folder / "none"))
    assert done.calls == [["publish"]]


def test_publish_hands_over_links_and_how_measuring_ended(step):
    done = step("publish", LINKS="dashboard=https://perf.example/\n\nwiki=https://w.example/ x", ENDED="failure")
    assert done.calls == [
        [
            "publish",
            "--ended",
            "failure",
            "--link",
            "dashboard=https://perf.example/",
            "--link",
            "wiki=https://w.example/ x",
        ]
    ]


def test_an_unknown_mode_is_an_error(step):
    assert step("destroy").returncode == 2
