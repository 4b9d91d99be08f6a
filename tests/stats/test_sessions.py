"""Repeated sessions of one pair of revisions: their number and their share of the error."""

from dataclasses import replace
from itertools import pairwise

import pytest
from run_builder import paired, run

from perfci.model.comparison import Reason
from perfci.model.environment import Environment
from perfci.model.run import MOST_SESSIONS
from perfci.model.settings import Gate, JudgeSettings
from perfci.stats.judge import judge_workload
from perfci.stats.sessions import next_session, share_of, share_text

NOW = run({("step", "gpu_busy_ns"): 1e6}, schedule="now")


def test_shares_sum_to_no_more_than_the_whole() -> None:
    assert [share_of(k) for k in (None, 1, 2, 3)] == pytest.approx([1.0, 0.9, 0.05, 0.025])
    assert sum(share_of(k) for k in range(1, 5000)) <= 1 + 1e-12
    with pytest.raises(ValueError, match="count from 1"):
        share_of(0)


def test_the_share_falls_and_stays_a_number_however_late_the_session() -> None:
    shares = [share_of(k) for k in (*range(1, 1300), MOST_SESSIONS)]
    assert all(later < earlier for earlier, later in pairwise(shares))
    assert shares[28] == pytest.approx(0.1 * 2**-28)
    assert shares[-1] > 1e-25, "far from the smallest level that the looks can be planned with"


def test_a_share_is_told_in_per_cent() -> None:
    assert [share_text(k) for k in (1, 2, 3)] == [f"{number} % of the error rate" for number in ("90", "5", "2.5")]
    assert share_text(40) == "less than 0.01 % of the error rate"


def test_earlier_sessions_are_counted_and_swapping_sides_changes_nothing() -> None:
    left, right = paired([1e6, 1e6], [1e6, 1e6])
    assert next_session([], [], like=NOW) == 1
    assert next_session(left, right, like=NOW) == next_session(right, left, like=NOW) == 2
    again = [[replace(r, launch=replace(r.launch, schedule="t")) for r in runs] for runs in (left, right)]
    assert next_session([*left, *again[0]], [*right, *again[1]], like=NOW) == 3


def test_what_was_never_looked_at_or_is_something_else_does_not_count() -> None:
    left, right = paired([1e6, 1e6], [1e6, 1e6])
    spoiled = run({("step", "gpu_busy_ns"): 1e6}, schedule="s", pair=0, spoiled=True)
    assert next_session(left[:1], [spoiled], like=NOW) == 1
    assert next_session(left[:1], right[1:], like=NOW) == 1
    assert next_session(left, [], like=NOW) == 1
    assert next_session(left, right, like=left[0]) == 1
    assert next_session(left, right, like=replace(NOW, workload="other")) == 1
    assert next_session(left, right, like=replace(NOW, environment=Environment.of({"gpu_model": "other"}))) == 1


def test_a_session_that_could_decide_no_noisy_gate_spends_nothing() -> None:
    left, right = paired([1e6, 1e6], [1.2e6, 1.2e6])
    gate = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.01),), error_rate=0.4, min_launches=1)
    for launches, number in ((1, 1), (2, 2)):
        sides = left[:launches], right[:launches]
        (row,) = judge_workload(*sides, gate, noise_floors={("step", "gpu_busy_ns"): 1e-9}).rows
        assert (row.reason is Reason.TOO_FEW_LAUNCHES) == (number == 1), "one launch a side decides nothing noisy"
        assert next_session(*sides, like=NOW) == number


def test_two_launches_of_one_side_may_have_been_held_against_an_accepted_level() -> None:
    left, right = paired([1e6, 1e6], [1e6, 1e6])
    assert next_session(left[:1], right, like=NOW) == next_session(right, left[:1], like=NOW) == 2
    broken = run({("step", "gpu_busy_ns"): 1e6}, schedule="s", pair=1, spoiled=True)
    assert next_session(left[:1], [right[0], broken], like=NOW) == 1
