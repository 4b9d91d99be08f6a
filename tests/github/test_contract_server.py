"""The contract server itself must be able to say no: otherwise the other tests prove nothing."""

import contract_server as theirs
import pytest
import requests
from contract_server import ContractServer, load_description
from github_cases import HEAD

from perfci.github import limits


@pytest.fixture
def raw():
    server = ContractServer()
    server.state.add_pull(7, head_sha=HEAD)
    yield server
    server.state.violations.clear()
    server.close()


def call(server, method, path, **kwargs):
    return requests.request(
        method,
        f"{server.url}/repos/octo/train{path}",
        headers={"Authorization": f"token {server.state.token}"},
        timeout=5,
        **kwargs,
    )


def check_run(**output):
    return {
        "name": "perfci",
        "head_sha": HEAD,
        "status": "completed",
        "conclusion": "success",
        "completed_at": "2026-03-01T12:00:00Z",
        "output": {"title": "t", "summary": "s", **output},
    }


ANNOTATION = {
    "path": "a.py",
    "start_line": 1,
    "end_line": 1,
    "annotation_level": "notice",
    "title": "t",
    "message": "m",
}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/labels", None),
        ("PUT", "/pulls/7", None),
        ("POST", "/check-runs", {"name": "x"}),
        ("POST", "/check-runs", {**check_run(), "completed_at": "yesterday"}),
        ("POST", "/check-runs", {**check_run(), "conclusion": "great"}),
        ("POST", "/check-runs", check_run(annotations=[ANNOTATION] * 51)),
        ("POST", "/check-runs", check_run(summary="x" * 65_536)),
        ("POST", "/issues/7/comments", {"text": "wrong key"}),
        ("POST", f"/statuses/{HEAD}", {"state": "neutral"}),
    ],
)
def test_what_the_description_forbids_is_a_violation(raw, method, path, body):
    assert call(raw, method, path, json=body).status_code == 500
    assert len(raw.state.violations) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/issues/7/comments", {"body": "x" * 65_537}),
        ("/issues/7/comments", {"body": "\U0001f525" * 32_769}),
        (f"/statuses/{HEAD}", {"state": "success", "context": "c", "description": "x" * 141}),
        ("/check-runs", check_run(title="x" * 256)),
    ],
)
def test_undocumented_limits_are_refused(raw, path, body):
    assert call(raw, "POST", path, json=body).status_code == 422
    assert raw.state.violations == []


def test_a_wrong_token_is_refused(raw):
    assert requests.get(f"{raw.url}/repos/octo/train", timeout=5).status_code == 401


def test_the_limits_of_perfci_are_those_of_the_server():
    assert limits.COMMENT_CHARS == theirs.BODY_LIMIT
    assert limits.ANNOTATIONS_PER_REQUEST == theirs.ANNOTATIONS_LIMIT
    assert limits.STATUS_DESCRIPTION_CHARS == theirs.DESCRIPTION_LIMIT
    assert limits.CHECK_TITLE_CHARS == theirs.TITLE_LIMIT


def test_the_cut_description_names_its_source_and_licence():
    info = load_description()["info"]
    assert info["x-cut-from"].startswith("@octokit/openapi ")
    assert info["x-licence"].startswith("MIT License")
