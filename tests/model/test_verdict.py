"""The verdict algebra: joining loses no bad news."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.errors import ExitCode
from perfci.model.verdict import Tally, Verdict, exit_code_of

verdicts = st.lists(st.sampled_from(Verdict))
SEVERITY = {ExitCode.OK: 0, ExitCode.INCONCLUSIVE: 1, ExitCode.MEASUREMENT: 2, ExitCode.REGRESSION: 3}


@given(verdicts, verdicts, verdicts)
def test_joining_is_commutative_associative_and_has_an_identity(a: list, b: list, c: list) -> None:
    x, y, z = Tally.of(a), Tally.of(b), Tally.of(c)
    assert x + y == y + x
    assert (x + y) + z == x + (y + z)
    assert x + Tally.of(()) == x
    assert x + y == Tally.of([*a, *b])


@given(verdicts, verdicts)
def test_no_bad_news_is_lost(a: list, b: list) -> None:
    total = Tally.of(a) + Tally.of(b)
    for verdict in Verdict:
        assert total.count(verdict) == a.count(verdict) + b.count(verdict)
    for part in (a, b):
        if part:
            assert SEVERITY[exit_code_of(total.worst)] >= max(SEVERITY[exit_code_of(v)] for v in part)


def test_nothing_checked_is_not_green() -> None:
    assert Tally.of(()).worst is Verdict.NOT_MEASURED
    assert exit_code_of(Verdict.NOT_MEASURED) is ExitCode.MEASUREMENT


def test_green_needs_only_green() -> None:
    assert exit_code_of(Tally.of([Verdict.PASS, Verdict.IMPROVEMENT]).worst) is ExitCode.OK
    for bad in (Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE, Verdict.NOT_MEASURED, Verdict.REGRESSION):
        assert exit_code_of(Tally.of([Verdict.PASS] * 50 + [bad]).worst) is not ExitCode.OK


def test_a_tally_is_written_in_one_way() -> None:
    for counts in (((Verdict.PASS, 0),), ((Verdict.REGRESSION, 1), (Verdict.PASS, 1)), ((Verdict.PASS, 1),) * 2):
        with pytest.raises(ValueError, match="tally"):
            Tally(counts=counts)
