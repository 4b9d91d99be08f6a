"""The real github3.py against the contract server: what lands on the pull request, also when GitHub misbehaves."""

import threading
from dataclasses import replace

import pytest
from contract_server import ContractServer
from github_cases import CONTEXT, HEAD, NOW, comparison, event, of, port_to, regressed, sync_finding, workload

from perfci.errors import ExitCode
from perfci.github.event import EventKind
from perfci.github.github3_port import port_from_environment
from perfci.github.publish import PublishSettings, publish
from perfci.github.sticky import StickyState, marker_line, state_of
from perfci.model.verdict import Verdict

OTHER = "c" * 40


def post(server, shown, the_event=None, *, port=None, settings=None, **more):
    return publish(
        shown,
        the_event or event(),
        port or port_to(server),
        context=CONTEXT,
        now=NOW,
        settings=settings or PublishSettings(),
        **more,
    )


def ours(server):
    return [c for c in server.state.comments if c["login"] == server.state.login and state_of(c["body"])]


@pytest.mark.parametrize(
    ("verdict", "conclusion", "code"),
    [
        (Verdict.PASS, "success", 0),
        (Verdict.IMPROVEMENT, "success", 0),
        (Verdict.INCONCLUSIVE, "neutral", 4),
        (Verdict.NOT_COMPARABLE, "neutral", 4),
        (Verdict.NOT_MEASURED, "failure", 5),
        (Verdict.REGRESSION, "failure", 3),
    ],
)
def test_verdict_reaches_check_comment_and_exit_code(server, verdict, conclusion, code, tmp_path):
    summary = tmp_path / "summary.md"
    outcome = post(server, of(verdict), summary_path=summary)
    assert outcome.posted == ("job summary", "check run", "comment")
    assert (outcome.exit_code, outcome.failures, outcome.dropped) == (code, (), "")
    (check,) = server.state.checks
    assert (check["conclusion"], check["head_sha"], check["name"]) == (conclusion, HEAD, "perfci")
    (comment,) = ours(server)
    headline = check["title"].split(":")[0]
    assert headline in comment["body"]
    assert headline in check["summary"]
    assert headline in summary.read_text()


def test_the_check_goes_on_the_head_commit_and_never_on_the_test_merge(server):
    server.state.pulls[7]["merge_commit_sha"] = OTHER
    post(server, of(Verdict.PASS), event(kind=EventKind.PULL_REQUEST))
    assert [c["head_sha"] for c in server.state.checks] == [HEAD]


def test_a_second_push_updates_the_one_comment(server):
    post(server, of(Verdict.REGRESSION))
    first = ours(server)[0]["id"]
    server.state.pulls[7]["head_sha"] = OTHER
    post(server, of(Verdict.PASS), event(head_sha=OTHER, run_id=501))
    (comment,) = ours(server)
    assert comment["id"] == first
    assert state_of(comment["body"]).head_sha == OTHER
    assert "No regression" in comment["body"]


def test_publishing_the_same_bundle_again_changes_nothing_twice(server):
    for _ in range(3):
        post(server, of(Verdict.REGRESSION))
    assert len(server.state.checks) == 1
    assert len(ours(server)) == 1


@pytest.mark.parametrize(("before", "after"), [(32, 2), (0, 130), (130, 0)])
def test_our_comment_is_found_on_any_page(server, before, after):
    for _ in range(before):
        server.state.add_comment(7, "alice", "hm")
    mine = server.state.add_comment(7, server.state.login, marker_line(state(order=(1, 1))) + "\nold")
    for _ in range(after):
        server.state.add_comment(7, "bob", "hm")
    post(server, of(Verdict.PASS))
    assert [c["id"] for c in ours(server)] == [mine["id"]]
    assert "No regression" in mine["body"]


def state(*, order=(1, 1), head=HEAD, name="perfci", digest="0" * 16, green=False):
    return StickyState(name=name, head_sha=head, order=order, measured=order, digest=digest, green=green)


def test_a_strangers_comment_with_our_marker_is_left_alone(server):
    forged = server.state.add_comment(7, "mallory", marker_line(state(order=(10**9, 1))) + "\nall is well")
    ghost = server.state.add_comment(7, None, marker_line(state()))
    quoted = server.state.add_comment(7, server.state.login, "> " + marker_line(state()) + "\nquoted by another bot")
    other = server.state.add_comment(
        7, server.state.login, marker_line(state(name="perfci-nightly")) + "\nother set-up"
    )
    texts = [c["body"] for c in (forged, ghost, quoted, other)]
    outcome = post(server, of(Verdict.REGRESSION))
    assert "comment" in outcome.posted
    assert [c["body"] for c in (forged, ghost, quoted, other)] == texts
    assert len([c for c in server.state.comments if "Regression" in c["body"]]) == 1


@pytest.mark.parametrize("late", [499, 500], ids=["older", "same run, earlier attempt"])
def test_an_older_result_that_arrives_last_is_dropped(server, late):
    post(server, of(Verdict.REGRESSION), event(run_attempt=2))
    before = ours(server)[0]["body"]
    outcome = post(server, of(Verdict.PASS), event(run_id=late, run_attempt=1))
    assert "newer result" in outcome.dropped
    assert ours(server)[0]["body"] == before
    assert [c["conclusion"] for c in server.state.checks] == ["failure"]
    assert outcome.exit_code == 0


def test_an_older_result_is_dropped_also_where_only_the_comment_shows_it(server):
    server.state.can_check = False
    post(server, of(Verdict.REGRESSION), event(run_id=501))
    outcome = post(server, of(Verdict.PASS))
    assert "newer result" in outcome.dropped
    assert "Regression" in ours(server)[0]["body"]


def test_a_result_of_an_old_head_is_not_posted(server):
    server.state.pulls[7]["head_sha"] = OTHER
    outcome = post(server, of(Verdict.REGRESSION))
    assert OTHER in outcome.dropped
    assert (server.state.checks, server.state.comments, server.state.statuses) == ([], [], [])
    assert outcome.exit_code == ExitCode.REGRESSION


def test_a_push_between_check_and_comment_stops_the_comment(server):
    server.state.hooks["POST", "/check-runs"] = lambda: server.state.pulls[7].update(head_sha=OTHER)
    outcome = post(server, of(Verdict.REGRESSION))
    assert OTHER in outcome.dropped
    assert server.state.comments == []


@pytest.mark.parametrize(("mine", "theirs"), [(500, 501), (501, 500)])
def test_two_publishers_that_create_at_once_leave_one_comment_with_the_newer_result(server, mine, theirs):
    results = {500: of(Verdict.REGRESSION), 501: of(Verdict.PASS)}

    def other():
        post(server, results[theirs], event(run_id=theirs))

    server.state.hooks["POST", "/comments"] = other
    post(server, results[mine], event(run_id=mine))
    (comment,) = ours(server)
    assert state_of(comment["body"]).order == (501, 1)
    assert "No regression" in comment["body"]


def test_many_publishers_in_threads_leave_one_comment_with_the_newest_result(server):
    barrier = threading.Barrier(4)

    def one(number):
        port = port_to(server)
        barrier.wait()
        post(server, of(Verdict.PASS), event(run_id=number), port=port, settings=PublishSettings())

    threads = [threading.Thread(target=one, args=(600 + i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcome = post(server, of(Verdict.PASS), event(run_id=700))
    assert outcome.failures == ()
    assert [state_of(c["body"]).order for c in ours(server)] == [(700, 1)]


@pytest.mark.parametrize("count", [0, 1, 50, 51, 120])
def test_all_annotations_arrive_once(server, count):
    findings = tuple(sync_finding(line=i + 1) for i in range(count))
    post(server, comparison(workload(regressed(), findings=findings)))
    lines = [a["start_line"] for a in server.state.checks[0]["annotations"]]
    assert sorted(lines) == list(range(1, count + 1))


@pytest.mark.parametrize("drop", [False, True], ids=["502", "connection lost"])
@pytest.mark.parametrize(
    ("method", "part"), [("POST", "/comments"), ("POST", "/check-runs"), ("PATCH", "/check-runs/"), ("GET", "/pulls/7")]
)
@pytest.mark.parametrize("after", [False, True], ids=["before acting", "after acting"])
def test_a_lost_answer_is_never_posted_twice(server, method, part, after, drop):
    server.state.fail(method, part, 502, after=after, drop=drop)
    findings = tuple(sync_finding(line=i + 1) for i in range(120))
    outcome = post(server, comparison(workload(regressed(), findings=findings)))
    assert outcome.failures == ()
    assert len(server.state.comments) == 1
    (check,) = server.state.checks
    assert len(check["annotations"]) == len({a["start_line"] for a in check["annotations"]}) == 120


def test_a_lost_answer_to_an_edit_is_repeated(server):
    post(server, of(Verdict.REGRESSION))
    server.state.fail("PATCH", "/issues/comments/", 500, times=2)
    outcome = post(server, of(Verdict.PASS), event(run_id=501))
    assert outcome.failures == ()
    assert "No regression" in ours(server)[0]["body"]


ODD_SUCCESS = [
    ("GET", "/octo/train", {"job summary"}),
    ("GET", "/pulls/7", {"job summary", "check run"}),
    ("GET", "/issues/7/comments", {"job summary", "check run"}),
    ("GET", "/commits/", {"job summary", "comment"}),
    ("POST", "/check-runs", {"job summary", "comment"}),
    ("POST", "/statuses/", {"job summary", "comment"}),
    ("POST", "/comments", {"job summary", "check run"}),
    ("PATCH", "/issues/comments/", {"job summary", "check run"}),
]


@pytest.mark.parametrize("status", [202, 203, 204, 299])
@pytest.mark.parametrize("case", ODD_SUCCESS)
def test_a_success_of_another_kind_that_did_nothing_is_none(server, tmp_path, case, status):
    """What a proxy may answer in GitHub's place: the verdict stands, and nothing is claimed that is not there."""
    method, part, posted = case
    if method == "PATCH":
        post(server, of(Verdict.PASS), event(run_id=499))
    server.state.can_check = part != "/statuses/"
    server.state.fail(method, part, status, times=99)
    summary = tmp_path / "s.md"
    outcome = post(server, of(Verdict.REGRESSION), summary_path=summary)
    assert outcome.exit_code == ExitCode.REGRESSION
    assert set(outcome.posted) == posted
    assert outcome.failures
    assert "egression" in summary.read_text().splitlines()[0]
    assert sum("Regression" in comment["body"].split("\n")[1] for comment in ours(server)) == ("comment" in posted)


@pytest.mark.parametrize("status", [202, 204])
@pytest.mark.parametrize(
    ("method", "part"), [("POST", "/comments"), ("POST", "/check-runs"), ("PATCH", "/check-runs/")]
)
def test_a_success_of_another_kind_that_did_its_work_is_not_repeated(server, method, part, status):
    server.state.fail(method, part, status, after=True)
    findings = tuple(sync_finding(line=i + 1) for i in range(60))
    outcome = post(server, comparison(workload(regressed(), findings=findings)))
    assert outcome.failures == ()
    assert [len(check["annotations"]) for check in server.state.checks] == [60]
    assert len(ours(server)) == 1


def test_a_comment_that_is_deleted_in_between_is_made_again(server):
    post(server, of(Verdict.REGRESSION))
    server.state.hooks["PATCH", "/issues/comments/"] = server.state.comments.clear
    outcome = post(server, of(Verdict.PASS), event(run_id=501))
    assert outcome.failures == ()
    assert "No regression" in ours(server)[0]["body"]


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.PASS, 6), (Verdict.REGRESSION, 3), (Verdict.INCONCLUSIVE, 4)])
def test_no_permission_at_all_leaves_the_verdict_in_summary_and_exit_code(server, tmp_path, verdict, code):
    for method, part in (("POST", "/check-runs"), ("POST", "/statuses/"), ("POST", "/comments")):
        server.state.fail(method, part, 403, "Resource not accessible by integration", times=9)
    naps = []
    summary = tmp_path / "summary.md"
    outcome = post(server, of(verdict), port=port_to(server, naps=naps), summary_path=summary)
    assert outcome.exit_code == code
    assert outcome.posted == ("job summary",)
    assert len(outcome.failures) == 3
    assert "not accessible by integration" in outcome.failures[0]
    assert naps == [], "a permission error is final: no waiting"
    assert summary.read_text().startswith("## ")


def test_refused_check_runs_fall_back_to_a_commit_status(server):
    server.state.can_check = False
    outcome = post(server, of(Verdict.REGRESSION))
    assert outcome.posted == ("commit status", "comment")
    (status,) = server.state.statuses
    assert (status["sha"], status["state"], status["context"]) == (HEAD, "failure", "perfci")
    assert outcome.failures == ()


@pytest.mark.parametrize(
    ("verdict", "state"),
    [(Verdict.PASS, "success"), (Verdict.INCONCLUSIVE, "error"), (Verdict.NOT_MEASURED, "error")],
)
def test_a_personal_token_uses_the_status_and_its_own_name(verdict, state):
    server = ContractServer()
    server.state.token, server.state.login = "ghp_personaltoken0123456789", "perf-robot"
    server.state.add_pull(7, head_sha=HEAD)
    outcome = post(server, of(verdict), port=port_to(server, kind="personal"))
    post(server, of(verdict), event(run_id=501), port=port_to(server, kind="personal"))
    assert outcome.posted == ("commit status", "comment")
    assert {s["state"] for s in server.state.statuses} == {state}
    assert len(server.state.comments) == 1
    server.close()


LIMITS = {
    "secondary": (403, {"Retry-After": "2"}, "You have exceeded a secondary rate limit", 2.0),
    "429": (429, {"Retry-After": "1"}, "Too many requests", 1.0),
    "secondary without header": (403, {}, "You have exceeded a secondary rate limit. Please wait a few minutes", 60.0),
    "primary": (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "0"}, "API rate limit exceeded", 1.0),
}


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize("part", ["/comments", "/check-runs"])
def test_rate_limits_are_waited_out(server, kind, part):
    status, headers, message, waited = LIMITS[kind]
    server.state.fail("POST", part, status, message, headers=headers)
    naps = []
    outcome = post(server, of(Verdict.PASS), port=port_to(server, naps=naps, max_wait_s=60))
    assert outcome.failures == ()
    assert naps == [waited]
    assert (len(server.state.comments), len(server.state.checks)) == (1, 1)


def test_a_rate_limit_that_ends_too_late_is_reported_and_not_waited_for(server):
    server.state.fail("POST", "/comments", 403, "secondary rate limit", headers={"Retry-After": "3600"}, times=99)
    naps = []
    outcome = post(server, of(Verdict.PASS), port=port_to(server, naps=naps))
    assert max(naps, default=0) < 1
    assert outcome.exit_code == ExitCode.BACKEND
    assert "rate limit" in outcome.failures[0]


def test_a_server_that_stays_down_ends_in_6_and_not_in_a_traceback(server, tmp_path):
    for method in ("GET", "POST"):
        server.state.fail(method, "/", 503, times=999)
    outcome = post(server, of(Verdict.PASS), summary_path=tmp_path / "s.md")
    assert (outcome.exit_code, outcome.posted) == (6, ("job summary",))
    assert len(outcome.failures) == 2
    assert all("503" in line for line in outcome.failures)


def test_without_a_token_there_is_the_summary_and_the_verdict(tmp_path):
    summary = tmp_path / "s.md"
    for verdict, code in ((Verdict.PASS, 6), (Verdict.REGRESSION, 3)):
        outcome = publish(of(verdict), event(), None, context=CONTEXT, now=NOW, summary_path=summary)
        assert (outcome.exit_code, outcome.posted) == (code, ("job summary",))
    assert "no usable token" in outcome.failures[0]


def test_no_server_at_all_ends_in_6(server):
    port = port_to(server)
    server._http.server_close()
    outcome = post(server, of(Verdict.PASS), port=port)
    assert outcome.exit_code == 6
    assert [line.partition(":")[0] for line in outcome.failures] == [
        "cannot read pull request 7",
        "cannot list check runs",
    ]
    assert all("Connection refused" in line for line in outcome.failures)


@pytest.mark.parametrize("origin", [EventKind.MERGE_GROUP, EventKind.PUSH, EventKind.SCHEDULE])
def test_events_without_pull_request_get_a_check_and_no_comment(server, origin):
    outcome = post(server, of(Verdict.PASS), event(kind=origin, origin=origin, pull_request=None, conclusion=None))
    assert outcome.posted == ("check run",)
    assert server.state.comments == []


def test_github_enterprise_server_below_its_path_and_by_its_own_description(tmp_path):
    server = ContractServer(enterprise=True)
    server.state.add_pull(7, head_sha=HEAD, head_repository="mallory/train")
    server.state.permissions["alice"] = "write"
    environ = {"GITHUB_TOKEN": server.state.token, "GITHUB_SERVER_URL": server.web_url}
    port = port_from_environment(environ, repository="octo/train")
    findings = tuple(sync_finding(line=i + 1) for i in range(60))
    shown = comparison(workload(regressed(), findings=findings))
    fork = event(pull_request=None, head_repository="mallory/train")
    for number in (500, 501):
        outcome = post(server, shown, replace(fork, run_id=number), port=port)
        assert outcome.posted == ("check run", "comment")
    assert len(ours(server)) == 1
    assert [len(c["annotations"]) for c in server.state.checks] == [60, 60]
    assert port.permission("alice") == "write"
    server.state.can_check = False
    assert "commit status" in post(server, shown, replace(fork, run_id=502), port=port).posted
    server.close()


def test_quiet_mode_comments_only_on_change(server):
    quiet = PublishSettings(quiet=True)
    post(server, of(Verdict.PASS), settings=quiet)
    assert server.state.comments == []
    post(server, of(Verdict.REGRESSION), event(run_id=501), settings=quiet)
    (comment,) = ours(server)
    post(server, of(Verdict.PASS), event(run_id=502), settings=quiet)
    body = comment["body"]
    assert "No regression" in body
    outcome = post(server, of(Verdict.PASS), event(run_id=503), settings=quiet)
    assert comment["body"] == body
    assert outcome.posted == ("check run",)


def test_a_measuring_run_that_failed_is_never_green(server):
    outcome = post(server, of(Verdict.PASS), event(conclusion="failure"))
    assert outcome.exit_code == ExitCode.MEASUREMENT
    assert server.state.checks[0]["conclusion"] == "failure"
    assert "(not finished)" in server.state.checks[0]["summary"]


def test_strict_mode_fails_what_could_not_be_decided(server):
    outcome = post(server, of(Verdict.INCONCLUSIVE), settings=PublishSettings(strict=True))
    assert outcome.conclusion == "failure"
    assert outcome.exit_code == ExitCode.INCONCLUSIVE
