"""A regression is accepted by label and reason, for one commit and the regressions it has."""

from dataclasses import replace

import pytest
from github_cases import CONTEXT, HEAD, NOW, comparison, event, port_to, regressed, row, workload

from perfci.errors import ExitCode
from perfci.github.acceptance import ACCEPTED_LABEL
from perfci.github.publish import publish
from perfci.model.verdict import Verdict

REASON = "correctness fix, agreed in the design note"


def slow(*phases):
    return comparison(workload(*(regressed(phase=phase, metric="gpu_busy_ns") for phase in phases or ("step",))))


def post(server, shown=None, the_event=None, stored=()):
    return publish(shown or slow(), the_event or event(), port_to(server), context=CONTEXT, now=NOW, stored=stored)


@pytest.fixture
def accepted(server):
    server.state.pulls[7]["labels"].append(ACCEPTED_LABEL)
    server.state.permissions["alice"] = "write"
    server.state.add_comment(7, "alice", f"/perf accept {HEAD} {REASON}")
    return server


def test_label_and_reason_make_it_neutral_and_are_handed_out_to_be_stored(accepted):
    outcome = post(accepted)
    assert (outcome.exit_code, outcome.conclusion) == (ExitCode.OK, "neutral")
    assert outcome.acceptance.reason == REASON
    assert outcome.acceptance.author == "alice"
    assert outcome.acceptance.regressions == (("gpt", "step", "gpu_busy_ns"),)
    body = accepted.state.comments[-1]["body"]
    assert "Accepted regression" in body
    assert "correctness fix" in body


def test_the_stored_acceptance_holds_for_the_same_regression_and_head(accepted):
    stored = (post(accepted).acceptance,)
    outcome = post(accepted, the_event=event(run_id=501), stored=stored)
    assert (outcome.exit_code, outcome.acceptance) == (ExitCode.OK, None)


def test_another_regression_of_the_same_head_needs_another_reason(accepted):
    stored = (post(accepted).acceptance,)
    outcome = post(accepted, slow("step", "forward"), event(run_id=501), stored=stored)
    assert outcome.exit_code == ExitCode.REGRESSION
    accepted.state.add_comment(7, "alice", f"/perf accept {HEAD} forward is slower on purpose, too")
    outcome = post(accepted, slow("step", "forward"), event(run_id=502), stored=stored)
    assert outcome.exit_code == ExitCode.OK
    assert outcome.acceptance.regressions == (("gpt", "forward", "gpu_busy_ns"),)


def test_a_new_head_is_not_covered(accepted):
    stored = (post(accepted).acceptance,)
    new = "c" * 40
    accepted.state.pulls[7]["head_sha"] = new
    accepted.state.commits[new] = "Make it slower still"
    outcome = post(accepted, the_event=event(head_sha=new, run_id=501), stored=stored)
    assert outcome.exit_code == ExitCode.REGRESSION


def test_the_reason_without_the_label_changes_nothing(accepted):
    accepted.state.pulls[7]["labels"].clear()
    assert post(accepted).exit_code == ExitCode.REGRESSION


@pytest.mark.parametrize(
    ("author", "text"),
    [
        ("mallory", f"/perf accept {HEAD} {REASON}"),
        ("bob", f"/perf accept {HEAD} {REASON}"),
        (None, f"/perf accept {HEAD} {REASON}"),
        ("alice", f"/perf accept {'c' * 40} {REASON}"),
        ("alice", f"I would not `/perf accept {HEAD}` this"),
        ("alice", f"/perf accept {HEAD}"),
    ],
)
def test_the_label_without_a_reason_by_a_writer_for_this_head_changes_nothing(server, author, text):
    server.state.pulls[7]["labels"].append(ACCEPTED_LABEL)
    server.state.permissions.update(alice="write", bob="read")
    server.state.commits[HEAD] = "Slow it down"
    server.state.add_comment(7, author, text)
    assert post(server).exit_code == ExitCode.REGRESSION


@pytest.mark.parametrize(("repository", "code"), [("octo/train", ExitCode.OK), ("mallory/train", ExitCode.REGRESSION)])
def test_a_trailer_counts_only_from_the_repository_itself(server, repository, code):
    server.state.add_pull(7, head_sha=HEAD, head_repository=repository, labels=(ACCEPTED_LABEL,))
    server.state.commits[HEAD] = f"Fix rounding\n\nLong story.\n\nPerf-Regression-Accepted: {REASON}\nSigned-off-by: A"
    outcome = post(server, the_event=event(head_repository=repository))
    assert outcome.exit_code == code
    if code == ExitCode.OK:
        assert (outcome.acceptance.reason, outcome.acceptance.source) == (REASON, f"trailer:{HEAD}")


def test_the_word_in_the_middle_of_a_message_is_no_trailer(server):
    server.state.pulls[7]["labels"].append(ACCEPTED_LABEL)
    server.state.commits[HEAD] = f"Fix\n\nPerf-Regression-Accepted: {REASON}\n\nNot the last paragraph."
    assert post(server).exit_code == ExitCode.REGRESSION


def test_other_bad_news_stays(accepted):
    shown = slow()
    undecided = row(Verdict.INCONCLUSIVE, phase="forward")
    broken = workload(name="resnet", verdict_override=Verdict.NOT_MEASURED)
    mixed = replace(shown.workloads[0], rows=(*shown.workloads[0].rows, undecided))
    assert post(accepted, comparison(mixed)).exit_code == ExitCode.INCONCLUSIVE
    assert post(accepted, comparison(mixed, broken), event(run_id=501)).exit_code == ExitCode.MEASUREMENT


def test_a_hostile_reason_is_text(accepted):
    accepted.state.comments[-1]["body"] = f"/perf accept {HEAD} <img src=x> @octo/team closes #1 --> | ok\x1b[0m"
    post(accepted)
    body = accepted.state.comments[-1]["body"]
    assert "<img" not in body
    assert "@octo" not in body
    assert "\x1b" not in body


def test_a_thousand_commands_of_a_stranger_cost_one_question(server):
    server.state.pulls[7]["labels"].append(ACCEPTED_LABEL)
    server.state.commits[HEAD] = "Slow it down"
    for _ in range(300):
        server.state.add_comment(7, "mallory", f"/perf accept {HEAD} {REASON}")
    assert post(server).exit_code == ExitCode.REGRESSION
    assert sum("permission" in path for _, path, _ in server.state.requests) == 1
