"""`plan`, `authorize`, `bundle` and `publish` at the command line: help, wrong use, what they print. What they do to a
pull request is in tests/pipeline/test_publish_end_to_end.py."""

import json
import subprocess
import sys

import pytest

from perfci.cli import main

CONFIG = """\
workloads:
  - {name: gpt, command: python train.py, tags: [fast]}
  - {name: resnet, command: python train.py}
"""
TOKEN = "ghs_0123456789abcdefghijklmnop"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a configuration and no git repository, outside of any workflow job."""
    for name in ("EVENT_NAME", "EVENT_PATH", "REPOSITORY", "RUN_ID", "TOKEN", "STEP_SUMMARY"):
        monkeypatch.delenv(f"GITHUB_{name}", raising=False)
    monkeypatch.delenv("PERFCI_DATABASE_URL", raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perfci.yaml").write_text(CONFIG)
    return tmp_path


@pytest.fixture
def event(here, monkeypatch):
    """Makes this a job of an event."""

    def make(name, payload):
        (here / "event.json").write_text(json.dumps(payload))
        monkeypatch.setenv("GITHUB_EVENT_NAME", name)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(here / "event.json"))
        monkeypatch.setenv("GITHUB_REPOSITORY", "octo/train")
        monkeypatch.setenv("GITHUB_RUN_ID", "900")

    return make


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("plan", ["--gpu", "--workload", "github-matrix"]),
        ("authorize", ["write permission", "--name"]),
        ("bundle", ["BASE...HEAD", "--failed", "GITHUB_RUN_ID"]),
        ("publish", ["--bundle", "--link", "--strict", "--quiet", "--ended", "refused"]),
    ],
)
def test_help_tells_what_it_does(command, words, capsys):
    assert main([command, "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for word in words:
        assert word in text


def test_the_matrix_is_one_line_of_json(here, capsys):
    code = main(["plan", "--format", "github-matrix", "--gpu", "h200", "--gpu", "a100", "--workload", "tag:fast"])
    out = capsys.readouterr().out
    assert code == 0
    assert out.count("\n") == 1
    assert json.loads(out) == {"include": [{"workload": "gpt", "gpu": "h200"}, {"workload": "gpt", "gpu": "a100"}]}


def test_a_plan_for_people(here, capsys):
    assert main(["plan"]) == 0
    assert capsys.readouterr().out == "gpt\nresnet\n"
    assert main(["plan", "--gpu", "h200", "-w", "res*"]) == 0
    assert capsys.readouterr().out == "resnet on h200\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["plan", "--format", "github-matrix"], "no GPU label"),
        (["plan", "--format", "github-matrix", "--gpu", "h 200"], "cannot be used in a job matrix"),
        (["plan", "-w", "bert"], "no workload matches"),
        (["plan", "--format", "yaml"], "Invalid value"),
        (["authorize"], "not a GitHub Actions job"),
        (["authorize", "--name", "x --> y"], "Invalid value"),
        (["bundle"], "Missing argument"),
        (["bundle", "main...HEAD"], "Missing option"),
        (["bundle", "main...HEAD", "-o", "x.gz"], "not in a git repository"),
        (["publish"], "not a GitHub Actions job"),
        (["publish", "--name", "a--b"], "Invalid value"),
        (["publish", "--link", "dashboard"], "TITLE=URL"),
        (["publish", "--link", "d=javascript:alert(1)"], "TITLE=URL"),
        (["publish", "-f", "json", "-f", "md"], "formats"),
    ],
)
def test_wrong_use_says_what_to_do(here, capsys, arguments, said):
    assert main(arguments) == 2
    heard = capsys.readouterr()
    assert said in heard.err
    assert heard.out == ""


def test_bundle_outside_of_a_workflow_says_which_variables_are_missing(here, capsys):
    for arguments in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *arguments], cwd=here, check=True)
    assert main(["bundle", "HEAD", "-o", "x.gz"]) == 2
    assert "GITHUB_REPOSITORY" in capsys.readouterr().err
    assert not (here / "x.gz").exists()


def test_a_plain_http_address_is_refused(event, monkeypatch, capsys):
    event(
        "push", {"repository": {"full_name": "octo/train"}, "ref": "refs/heads/main", "before": "", "after": "a" * 40}
    )
    monkeypatch.setenv("GITHUB_API_URL", "http://github.example.com/api/v3")
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    assert main(["publish"]) == 2
    assert "unencrypted" in capsys.readouterr().err


def test_a_comment_cannot_be_decided_without_a_token(event, capsys):
    issue = {"number": 7, "pull_request": {"url": "x"}}
    comment = {"id": 1, "user": {"login": "a"}, "body": "/perf run"}
    event("issue_comment", {"repository": {"full_name": "octo/train"}, "issue": issue, "comment": comment})
    assert main(["publish"]) == 2
    assert main(["authorize"]) == 2
    assert capsys.readouterr().err.count("no GitHub token") == 2


def test_no_token_is_printed_by_errors_logs_or_tracebacks(here):
    """The three ways out, each with the token in its text."""
    script = (
        "import logging, os, sys\n"
        "from perfci.cli.github import _redacting\n"
        "from perfci.errors import BackendError\n"
        "token = os.environ['GITHUB_TOKEN']\n"
        "with _redacting():\n"
        "    try:\n"
        "        with _redacting():\n"
        "            raise BackendError(f'refused {token}', todo=f'try {token}')\n"
        "    except BackendError as error:\n"
        "        print(error, repr(error.args))\n"
        "    logging.getLogger('urllib3').warning('sent %s', token)\n"
        "    raise RuntimeError(f'oops {token}')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env={"GITHUB_TOKEN": "opaque-enterprise-token"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "RuntimeError: oops [redacted]" in said
    assert "urllib3: sent [redacted]" in said
    assert "refused [redacted]" in said
    assert "opaque-enterprise-token" not in said
