"""`/perf`: who may start a measurement or accept a regression, of which commit."""

import pytest
from github_cases import BASE, CONTEXT, HEAD, NOW, event, of, port_to

from perfci.github.command import (
    Authorized,
    Refusal,
    Verb,
    authorization_outputs,
    authorize,
    measured_event,
    parse_command,
)
from perfci.github.event import EventKind, IssueCommentInfo
from perfci.github.publish import publish
from perfci.model.verdict import Verdict


def asked(server, body, author="alice", **more):
    values = {
        "kind": EventKind.ISSUE_COMMENT,
        "origin": EventKind.ISSUE_COMMENT,
        "head_sha": None,
        "comment": IssueCommentInfo(id=1, author=author, body=body),
        **more,
    }
    return authorize(port_to(server), event(**values))


@pytest.mark.parametrize("permission", ["write", "admin", "maintain"])
def test_a_writer_who_names_the_head_may_run(server, permission):
    server.state.permissions["alice"] = permission
    found = asked(server, f"/perf run {HEAD} gpt res*\nplease")
    assert isinstance(found, Authorized)
    assert (found.command.verb, found.command.workloads) == (Verb.RUN, ("gpt", "res*"))
    assert authorization_outputs(found).splitlines() == [
        "verb=run",
        f"head_sha={HEAD}",
        f"base_sha={BASE}",
        "workloads=gpt res*",
        "measured_run=",
    ]
    known = measured_event(event(head_sha=None), found)
    assert (known.head_sha, known.head_repository, known.head_branch) == (HEAD, "octo/train", "topic")


@pytest.mark.parametrize(
    ("body", "author", "permission", "why"),
    [
        (f"/perf run {HEAD}", "alice", "read", "write permission"),
        (f"/perf run {HEAD}", "alice", None, "write permission"),
        (f"/perf run {HEAD}", "", "admin", "write permission"),
        (f"/perf run {'c' * 40}", "alice", "write", "not the commit you named"),
        (f"/perf run {HEAD[:12]}", "alice", "write", "full one"),
        (f"/perf run {HEAD} $(curl evil)", "alice", "write", "glob"),
        (f"/perf run {HEAD} --help", "alice", "write", "glob"),
        ("/perf run", "alice", "write", "wanted"),
        (f"/perf destroy {HEAD}", "alice", "write", "wanted"),
        (f"/perf accept {HEAD} ok", "alice", "write", "reason"),
    ],
)
def test_everything_else_is_refused_with_the_reason(server, body, author, permission, why):
    if permission:
        server.state.permissions["alice"] = permission
    found = asked(server, body, author)
    assert isinstance(found, Refusal)
    assert why in found.why
    assert not found.silent


@pytest.mark.parametrize("body", ["", "nice", "see /perf run", "/performance", "> /perf run " + HEAD])
def test_ordinary_talk_is_no_command(server, body):
    found = asked(server, body)
    assert isinstance(found, Refusal)
    assert found.silent
    assert server.state.requests == []


def test_a_closed_pull_request_or_an_issue_runs_nothing(server):
    server.state.permissions["alice"] = "write"
    assert asked(server, f"/perf run {HEAD}", pull_request=None).silent
    server.state.pulls[7]["state"] = "closed"
    assert "closed" in asked(server, f"/perf run {HEAD}").why


def test_an_odd_login_cannot_leave_its_place_in_the_url(server):
    found = asked(server, f"/perf run {HEAD}", "../../orgs/x")
    assert isinstance(found, Refusal)
    assert server.state.requests[-1][1].endswith("/collaborators/..%2F..%2Forgs%2Fx/permission")


def test_the_reason_may_span_lines():
    command = parse_command(f"/perf accept {HEAD.upper()}\nneeded for correctness,\r\nsee the design note")
    assert command.reason == "needed for correctness, see the design note"
    assert command.sha == HEAD


def test_accepting_needs_a_result_of_this_head_and_names_the_run_that_measured_it(server):
    server.state.permissions["alice"] = "write"
    body = f"/perf accept {HEAD} slower but right"
    assert "nothing was measured" in asked(server, body).why
    publish(of(Verdict.REGRESSION), event(), port_to(server), context=CONTEXT, now=NOW)
    assert asked(server, body).measured == (500, 1)
    again = event(run_id=900)
    publish(of(Verdict.REGRESSION), again, port_to(server), context=CONTEXT, now=NOW, measured=(500, 1))
    found = asked(server, body)
    assert found.measured == (500, 1), "still the run that has the bundles"
    assert "measured_run=500" in authorization_outputs(found)
