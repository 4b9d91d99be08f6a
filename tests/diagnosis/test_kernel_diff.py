"""The kernel diff: kinds, order, and that every phase adds up."""

import itertools
from collections import defaultdict
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.diagnosis.kernel_diff import REST, diff_kernels
from perfci.model.comparison import KernelChangeKind as Kind
from perfci.model.run import KernelStat


def stat(name: str, count: int, total_ns: int, phase: str = "forward") -> KernelStat:
    return KernelStat(phase=phase, name=name, count=count, total_ns=total_ns)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (None, (10, 500), Kind.NEW),
        ((10, 500), None, Kind.GONE),
        ((10, 500), (10, 700), Kind.SLOWER),
        ((10, 500), (10, 300), Kind.FASTER),
        ((10, 500), (20, 1000), Kind.MORE_LAUNCHES),
        ((20, 1000), (10, 500), Kind.FEWER_LAUNCHES),
        ((1000, 500_000), (1001, 900_000), Kind.SLOWER),  # one launch more explains next to nothing
        ((50, 2500), (55, 3500), Kind.SLOWER),  # 250 ns by the launches, 750 ns by the speed
        ((10, 500), (20, 500), Kind.MORE_LAUNCHES),  # equal time: more launches, each shorter
        ((10, 0), (20, 0), Kind.MORE_LAUNCHES),
    ],
)
def test_kinds(before, after, kind):
    sides = [[] if side is None else [stat("k", *side)] for side in (before, after)]
    (change,) = diff_kernels(sides[0], 10, sides[1], 10)
    assert change.kind is kind
    assert change.delta_ns == ((after or (0, 0))[1] - (before or (0, 0))[1]) / 10


def test_equal_per_step_is_no_change_whatever_the_number_of_steps():
    assert diff_kernels([stat("k", 30, 900)], 10, [stat("k", 90, 2700)], 30) == ()


def test_several_launches_of_a_side_are_joined():
    once = diff_kernels([stat("k", 10, 100)], 10, [stat("k", 20, 400)], 20)
    assert diff_kernels([stat("k", 4, 40), stat("k", 6, 60)], 10, [stat("k", 20, 400)], 20) == once


def test_largest_share_first():
    before = [stat("a", 10, 1000), stat("b", 10, 1000), stat("c", 10, 1000)]
    after = [stat("a", 10, 1010), stat("b", 10, 400), stat("c", 10, 1200)]
    assert [change.name for change in diff_kernels(before, 1, after, 1)] == ["b", "c", "a"]


def test_a_side_without_kernels_is_a_side():
    assert [change.kind for change in diff_kernels([], 10, [stat("k", 1, 1)], 10)] == [Kind.NEW]
    assert diff_kernels([], 10, [], 10) == ()


@pytest.mark.parametrize("steps", [(0, 10), (10, 0), (0, 0)])
def test_a_side_without_steps_was_not_measured(steps):
    with pytest.raises(ValueError, match="at least one step"):
        diff_kernels([stat("k", 1, 1)], steps[0], [stat("k", 1, 1)], steps[1])


STATS = st.lists(
    st.builds(
        KernelStat,
        phase=st.sampled_from(["forward", "backward"]),
        name=st.sampled_from("abcdef"),
        count=st.integers(1, 1000),
        total_ns=st.integers(0, 10**12),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(STATS, STATS, st.integers(1, 100), st.integers(1, 100), st.integers(0, 8))
def test_every_phase_adds_up_with_and_without_a_limit(before, after, steps_before, steps_after, limit):
    wanted: dict[str, Fraction] = defaultdict(Fraction)
    for sign, stats, steps in ((-1, before, steps_before), (1, after, steps_after)):
        for one in stats:
            wanted[one.phase] += Fraction(sign * one.total_ns, steps)
    every = diff_kernels(before, steps_before, after, steps_after)
    cut = diff_kernels(before, steps_before, after, steps_after, limit=limit)
    assert cut[: min(limit, len(every))] == every[:limit]
    assert all(change.name == REST for change in cut[limit:])
    for changes in (every, cut):
        sums: dict[str, float] = defaultdict(float)
        for change in changes:
            sums[change.phase] += change.delta_ns
        for phase in wanted.keys() | sums.keys():
            assert sums.get(phase, 0) == pytest.approx(float(wanted[phase]), rel=1e-12, abs=1e-2)
    shares = [abs(change.delta_ns) for change in every]
    assert all(one >= two - 1e-2 for one, two in itertools.pairwise(shares))  # ordered unrounded, shown rounded


@settings(max_examples=100, deadline=None)
@given(STATS, STATS, st.integers(1, 100), st.integers(1, 100))
def test_swapping_the_sides_mirrors(before, after, steps_before, steps_after):
    mirror = {
        Kind.NEW: Kind.GONE, Kind.GONE: Kind.NEW,
        Kind.MORE_LAUNCHES: Kind.FEWER_LAUNCHES, Kind.FEWER_LAUNCHES: Kind.MORE_LAUNCHES,
        Kind.SLOWER: Kind.FASTER, Kind.FASTER: Kind.SLOWER,
    }  # fmt: skip
    one = {(c.phase, c.name): c for c in diff_kernels(before, steps_before, after, steps_after)}
    other = {(c.phase, c.name): c for c in diff_kernels(after, steps_after, before, steps_before)}
    assert one.keys() == other.keys()
    for key, change in one.items():
        assert other[key].delta_ns == -change.delta_ns
        assert other[key].baseline_count == change.candidate_count
        if change.kind in (Kind.NEW, Kind.GONE):
            assert other[key].kind is mirror[change.kind]
