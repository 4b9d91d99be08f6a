"""Events as GitHub writes them, cut to what perfci reads, and what must not be believed in them."""

import copy
import json

import pytest
from github_cases import BASE, HEAD

from perfci.errors import UsageError
from perfci.github.event import EventKind, event_from_environment, parse_event

ENVIRON = {
    "GITHUB_RUN_ID": "900",
    "GITHUB_RUN_ATTEMPT": "2",
    "GITHUB_REPOSITORY": "octo/train",
    "GITHUB_SHA": "d" * 40,
    "GITHUB_REF": "refs/heads/trunk",
}
REPOSITORY = {"id": 1, "full_name": "octo/train", "default_branch": "trunk"}
PULL = {
    "number": 7,
    "head": {"sha": HEAD, "ref": "topic", "repo": {"full_name": "mallory/train"}},
    "base": {"sha": BASE, "ref": "trunk", "repo": {"id": 1}},
}
WORKFLOW_RUN = {
    "repository": REPOSITORY,
    "workflow_run": {
        "id": 500,
        "run_attempt": 3,
        "event": "pull_request",
        "head_sha": HEAD,
        "head_branch": "topic",
        "head_repository": {"full_name": "mallory/train"},
        "pull_requests": [],
        "conclusion": "success",
    },
}


def workflow_run(**more):
    payload = copy.deepcopy(WORKFLOW_RUN)
    payload["workflow_run"].update(more)
    return parse_event("workflow_run", payload, ENVIRON)


def test_pull_request_takes_the_head_and_not_the_test_merge():
    found = parse_event("pull_request", {"repository": REPOSITORY, "pull_request": PULL}, ENVIRON)
    assert (found.head_sha, found.base_sha, found.pull_request) == (HEAD, BASE, 7)
    assert found.head_sha != ENVIRON["GITHUB_SHA"]
    assert (found.default_branch, found.order, found.trusted_code) == ("trunk", (900, 2), False)


def test_workflow_run_takes_the_identity_of_the_measuring_run():
    found = workflow_run()
    assert (found.kind, found.origin) == (EventKind.WORKFLOW_RUN, EventKind.PULL_REQUEST)
    assert (found.order, found.head_sha, found.head_repository) == ((500, 3), HEAD, "mallory/train")
    assert found.pull_request is None, "forks come without a pull request"


def test_workflow_run_believes_only_a_pull_request_of_this_repository_and_head():
    mine = {"number": 7, "head": {"sha": HEAD}, "base": {"ref": "trunk", "repo": {"id": 1}}}
    elsewhere = {"number": 3, "head": {"sha": HEAD}, "base": {"ref": "main", "repo": {"id": 2}}}
    moved = {"number": 4, "head": {"sha": "e" * 40}, "base": {"ref": "main", "repo": {"id": 1}}}
    assert workflow_run(pull_requests=[elsewhere, moved, mine]).pull_request == 7
    assert workflow_run(pull_requests=[mine, {**mine, "number": 8}]).pull_request is None
    assert workflow_run(pull_requests=[elsewhere]).pull_request is None


def test_a_fork_cannot_pose_as_the_default_branch():
    assert not workflow_run(event="push", head_branch="trunk").trusted_code
    assert not workflow_run(head_branch="trunk", head_repository={"full_name": "octo/train"}).trusted_code
    assert workflow_run(event="push", head_branch="trunk", head_repository={"full_name": "octo/train"}).trusted_code
    assert workflow_run(head_repository=None).head_repository is None


def test_push_to_a_renamed_default_branch_is_trusted():
    payload = {"repository": REPOSITORY, "ref": "refs/heads/trunk", "before": BASE, "after": HEAD}
    found = parse_event("push", payload, ENVIRON)
    assert (found.trusted_code, found.base_sha, found.head_branch) == (True, BASE, "trunk")
    assert not parse_event("push", {**payload, "ref": "refs/heads/main"}, ENVIRON).trusted_code
    assert parse_event("push", {**payload, "before": "0" * 40}, ENVIRON).base_sha is None


def test_merge_group_has_no_pull_request():
    group = {"head_sha": HEAD, "head_ref": "refs/heads/gh-readonly-queue/trunk/pr-7-abc", "base_sha": BASE}
    payload = {"repository": REPOSITORY, "merge_group": {**group, "base_ref": "refs/heads/trunk"}}
    found = parse_event("merge_group", payload, ENVIRON)
    assert (found.pull_request, found.head_sha, found.base_branch) == (None, HEAD, "trunk")
    assert not found.trusted_code


def test_issue_comment_knows_pull_requests_from_issues():
    comment = {"id": 5, "user": {"login": "alice"}, "body": "/perf run"}
    issue = {"number": 7, "pull_request": {"url": "x"}}
    found = parse_event("issue_comment", {"repository": REPOSITORY, "issue": issue, "comment": comment}, ENVIRON)
    assert (found.pull_request, found.comment.author, found.head_sha) == (7, "alice", None)
    on_issue = {"repository": REPOSITORY, "issue": {"number": 7}, "comment": {**comment, "user": None}}
    found = parse_event("issue_comment", on_issue, ENVIRON)
    assert (found.pull_request, found.comment.author) == (None, "")


@pytest.mark.parametrize("name", ["schedule", "workflow_dispatch"])
def test_scheduled_runs_take_the_commit_of_the_job(name):
    found = parse_event(name, {"repository": REPOSITORY}, ENVIRON)
    assert (found.head_sha, found.trusted_code) == ("d" * 40, True)


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("release", {"repository": REPOSITORY}),
        ("pull_request", {"repository": REPOSITORY}),
        ("pull_request", {"repository": REPOSITORY, "pull_request": {**PULL, "head": {"sha": "short", "ref": "x"}}}),
        ("workflow_run", {**WORKFLOW_RUN, "repository": {**REPOSITORY, "full_name": "../../etc"}}),
        ("push", []),
        ("push", None),
    ],
)
def test_what_is_not_an_event_is_an_error_that_says_so(name, payload):
    with pytest.raises(UsageError, match=name):
        parse_event(name, payload, ENVIRON)


def test_the_event_file(tmp_path):
    file = tmp_path / "event.json"
    environ = {**ENVIRON, "GITHUB_EVENT_NAME": "workflow_run", "GITHUB_EVENT_PATH": str(file)}
    with pytest.raises(UsageError, match="cannot read"):
        event_from_environment(environ)
    file.write_text("[" * 100_000)
    with pytest.raises(UsageError, match="not JSON"):
        event_from_environment(environ)
    file.write_text(json.dumps(WORKFLOW_RUN))
    assert event_from_environment(environ).run_id == 500
    with pytest.raises(UsageError, match="not a GitHub Actions job"):
        event_from_environment({})
