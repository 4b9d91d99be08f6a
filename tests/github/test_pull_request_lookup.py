"""From an event to the right pull request, or to none."""

import pytest
from github_cases import HEAD, event, port_to

from perfci.github.event import EventKind
from perfci.github.locate import locate_pull_request

FORK = "mallory/train"
OTHER = "c" * 40


def fork_event(**more):
    return event(**{"pull_request": None, "head_repository": FORK, **more})


def test_a_fork_is_found_by_head_commit_and_repository(server):
    server.state.add_pull(8, head_sha=HEAD, head_repository=FORK)
    assert locate_pull_request(port_to(server), fork_event()).pull.number == 8


def test_equal_branch_names_of_two_forks_are_told_apart(server):
    server.state.add_pull(8, head_sha=HEAD, head_repository=FORK)
    server.state.add_pull(9, head_sha=HEAD, head_repository="alice/train")
    assert locate_pull_request(port_to(server), fork_event()).pull.number == 8
    found = locate_pull_request(port_to(server), fork_event(head_repository="alice/train"), hint=8)
    assert found.pull.number == 9, "a hint cannot point at somebody else's pull request"


def test_two_forks_of_one_owner_are_told_apart(server):
    server.state.add_pull(8, head_sha=HEAD, head_repository="mallory/other-train")
    server.state.add_pull(9, head_sha=HEAD, head_repository=FORK)
    assert locate_pull_request(port_to(server), fork_event()).pull.number == 9


def test_one_head_for_two_bases_needs_a_hint(server):
    server.state.add_pull(8, head_sha=HEAD, head_repository=FORK)
    server.state.add_pull(9, head_sha=HEAD, head_repository=FORK, base_ref="release")
    found = locate_pull_request(port_to(server), fork_event())
    assert found.pull is None
    assert "#8" in found.why_none
    assert "#9" in found.why_none
    assert locate_pull_request(port_to(server), fork_event(), hint=9).pull.number == 9
    assert locate_pull_request(port_to(server), fork_event(), hint=7).pull is None


def test_a_force_push_makes_the_result_stale(server):
    server.state.add_pull(8, head_sha=OTHER, head_repository=FORK)
    found = locate_pull_request(port_to(server), fork_event())
    assert found.stale
    assert found.pull.head_sha == OTHER


def test_a_renamed_branch_is_found_by_its_commit(server):
    server.state.add_pull(8, head_sha=HEAD, head_repository=FORK, head_ref="new-name")
    server.state.linked[HEAD] = [8]
    assert locate_pull_request(port_to(server), fork_event(head_branch="old-name")).pull.number == 8


def test_a_deleted_fork_is_found_by_its_commit(server):
    server.state.add_pull(8, head_sha=HEAD, head_repository=None)
    server.state.linked[HEAD] = [7, 8]
    assert locate_pull_request(port_to(server), fork_event(head_repository=None)).pull.number == 8


def test_a_closed_pull_request_gets_nothing(server):
    server.state.pulls[7]["state"] = "closed"
    found = locate_pull_request(port_to(server), event())
    assert (found.pull, found.stale) == (None, False)
    assert "closed" in found.why_none


@pytest.mark.parametrize("origin", [EventKind.MERGE_GROUP, EventKind.PUSH, EventKind.SCHEDULE])
def test_other_events_ask_nothing(server, origin):
    assert locate_pull_request(port_to(server), event(origin=origin, pull_request=None)).pull is None
    assert server.state.requests == []
