"""The plan of launches: balance, prefix stability, independence of the workloads."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.capture.schedule import PAIRS_PER_BLOCK, SideName, next_round, pair_slots

SEEDS = st.integers(min_value=0, max_value=2**63 - 1)
NAMES = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=5, unique=True)


def plan(pairs, seed, *, workload=""):
    """All launches of so many pairs of one workload in order."""
    return [
        slot
        for pair in range(pairs)
        for slot in pair_slots(pair=pair, seed=seed, workload=workload, first_position=2 * pair)
    ]


@given(pairs=st.integers(0, 40), seed=SEEDS)
def test_every_pair_holds_both_sides_next_to_each_other(pairs, seed):
    slots = plan(pairs, seed)
    assert [slot.position for slot in slots] == list(range(2 * pairs))
    for pair in range(pairs):
        first, second = slots[2 * pair], slots[2 * pair + 1]
        assert (first.pair, second.pair) == (pair, pair)
        assert {first.side, second.side} == {SideName.BASELINE, SideName.CANDIDATE}


@given(blocks=st.integers(0, 20), seed=SEEDS)
def test_linear_drift_cancels_in_every_whole_block(blocks, seed):
    slots = plan(2 * blocks, seed)
    for block in range(blocks):
        part = slots[4 * block : 4 * block + 4]
        drift = {side: sum(s.position for s in part if s.side is side) for side in SideName}
        assert drift[SideName.BASELINE] == drift[SideName.CANDIDATE]


def test_the_drawn_order_is_fair_and_fixed_for_ever():
    first = Counter(plan(1, seed)[0].side for seed in range(4000))
    assert abs(first[SideName.BASELINE] - 2000) < 4 * 32  # four standard deviations of a fair coin
    letters = "".join("A" if slot.side is SideName.BASELINE else "B" for slot in plan(8, 20240229))
    assert letters == "BAABABBABAABBAAB"


def test_the_two_kinds_of_block_follow_each_other_without_a_pattern():
    kinds = [plan(400, 7)[4 * block].side for block in range(200)]
    changes = sum(a is not b for a, b in itertools.pairwise(kinds))
    assert 70 < changes < 130


@given(rounds=st.integers(0, 6), seed=SEEDS, names=NAMES)
def test_each_workload_keeps_its_own_plan_when_several_are_interleaved(rounds, seed, names):
    slots = []
    for block in range(rounds):
        slots += next_round(block=block, seed=seed, workloads=names, first_position=len(slots))
    assert [slot.position for slot in slots] == list(range(2 * PAIRS_PER_BLOCK * rounds * len(names)))
    for name in names:
        own = [(s.pair, s.side) for s in slots if s.workload == name]
        assert own == [(s.pair, s.side) for s in plan(PAIRS_PER_BLOCK * rounds, seed, workload=name)]


@given(seed=SEEDS, names=NAMES, block=st.integers(0, 20), data=st.data())
def test_a_decided_workload_leaves_the_others_as_they_were(seed, names, block, data):
    left = data.draw(st.sets(st.sampled_from(names)))
    full = [(s.workload, s.pair, s.side) for s in next_round(block=block, seed=seed, workloads=names)]
    rest = next_round(block=block, seed=seed, workloads=[n for n in names if n in left], first_position=100)
    assert [(s.workload, s.pair, s.side) for s in rest] == [row for row in full if row[0] in left]
    assert [s.position for s in rest] == list(range(100, 100 + 4 * len(left)))


def test_rounds_begin_with_different_workloads():
    starts = {next_round(block=b, seed=3, workloads=["a", "b", "c"])[0].workload for b in range(12)}
    assert starts == {"a", "b", "c"}


def test_a_repeated_pair_has_the_order_of_the_first_try():
    first = plan(5, 11)[6:8]
    again = pair_slots(pair=3, seed=11, first_position=20)
    assert [s.side for s in again] == [s.side for s in first]
    assert [s.position for s in again] == [20, 21]


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match="negative"):
        pair_slots(pair=-1, seed=0, first_position=0)
    with pytest.raises(ValueError, match="unique"):
        next_round(block=0, seed=0, workloads=["a", "a"])
