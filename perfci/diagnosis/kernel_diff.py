"""Which kernels explain a change of kernel time: the diff of two sides, exact to the nanosecond."""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction

from perfci.model.comparison import KernelChange, KernelChangeKind
from perfci.model.run import KernelStat

REST = "(other kernels)"
"""Name of the row that carries what the limit cut off, so that the rows of a phase still sum to its change."""

_Key = tuple[str, str]
_Amount = tuple[Fraction, Fraction]
"""Launches and time per step, unrounded."""
_Totals = dict[_Key, _Amount]
_NOTHING: _Amount = (Fraction(0), Fraction(0))


def diff_kernels(
    baseline: Sequence[KernelStat],
    baseline_steps: int,
    candidate: Sequence[KernelStat],
    candidate_steps: int,
    *,
    limit: int | None = None,
) -> tuple[KernelChange, ...]:
    """Every (phase, kernel) whose launches or time per step differ, largest share of the change first.

    Several launches of one side are given together: the stats of all of them one after the other, and the sum of
    their steps. A kernel that occurs twice is added up. The share of a row is its |delta| in the sum of all |delta|;
    ties fall back to phase and name. The deltas of a phase sum to the change of its kernel time per step, computed in
    rationals and rounded once per row. With ``limit`` the rows after it are joined into one REST row per phase, so the
    sum still holds; kinds of REST rows are SLOWER or FASTER, their launches are summed.

    A side without kernels (and at least one step) makes every kernel NEW or GONE. ValueError when a side has no step:
    then nothing was measured, and nothing is zero.
    """
    if baseline_steps < 1 or candidate_steps < 1:
        raise ValueError(f"wanted at least one step on both sides, got {baseline_steps} and {candidate_steps}")
    before = _per_step(baseline, baseline_steps)
    after = _per_step(candidate, candidate_steps)
    keys = [key for key in before.keys() | after.keys() if before.get(key, _NOTHING) != after.get(key, _NOTHING)]

    def delta_ns(key: _Key) -> Fraction:
        return after.get(key, _NOTHING)[1] - before.get(key, _NOTHING)[1]

    keys.sort(key=lambda key: (-abs(delta_ns(key)), key))
    cut = len(keys) if limit is None else max(limit, 0)
    shown = [
        _change(key, _kind(before.get(key), after.get(key)), before.get(key, _NOTHING), after.get(key, _NOTHING))
        for key in keys[:cut]
    ]
    return (*shown, *_rest(keys[cut:], before, after))


def _per_step(stats: Sequence[KernelStat], steps: int) -> _Totals:
    counts: dict[_Key, int] = defaultdict(int)
    totals_ns: dict[_Key, int] = defaultdict(int)
    for stat in stats:
        counts[stat.phase, stat.name] += stat.count
        totals_ns[stat.phase, stat.name] += stat.total_ns
    return {key: (Fraction(counts[key], steps), Fraction(totals_ns[key], steps)) for key in counts if counts[key]}


def _change(key: _Key, kind: KernelChangeKind, before: _Amount, after: _Amount) -> KernelChange:
    return KernelChange(
        phase=key[0],
        name=key[1],
        kind=kind,
        baseline_count=float(before[0]),
        candidate_count=float(after[0]),
        baseline_ns=float(before[1]),
        candidate_ns=float(after[1]),
    )


def _kind(before: _Amount | None, after: _Amount | None) -> KernelChangeKind:
    """What explains most of the change: other launches at the old time each, or another time each at the new launches.

    A tie goes to the launches: they are exact.
    """
    if before is None:
        return KernelChangeKind.NEW
    if after is None:
        return KernelChangeKind.GONE
    (old_count, old_ns), (new_count, new_ns) = before, after
    by_launches_ns = (new_count - old_count) * old_ns / old_count
    by_speed_ns = new_ns - old_ns - by_launches_ns
    if new_count != old_count and abs(by_launches_ns) >= abs(by_speed_ns):
        return KernelChangeKind.MORE_LAUNCHES if new_count > old_count else KernelChangeKind.FEWER_LAUNCHES
    return KernelChangeKind.SLOWER if by_speed_ns > 0 else KernelChangeKind.FASTER


def _rest(keys: Sequence[_Key], before: _Totals, after: _Totals) -> list[KernelChange]:
    by_phase: dict[str, list[_Key]] = defaultdict(list)
    for key in keys:
        by_phase[key[0]].append(key)
    rows = []
    for phase, cut in sorted(by_phase.items()):
        old, new = _sum(before, cut), _sum(after, cut)
        kind = KernelChangeKind.SLOWER if new[1] > old[1] else KernelChangeKind.FASTER
        rows.append(_change((phase, REST), kind, old, new))
    return rows


def _sum(side: _Totals, keys: Sequence[_Key]) -> _Amount:
    found = [side[key] for key in keys if key in side]
    return sum((count for count, _ in found), Fraction(0)), sum((time_ns for _, time_ns in found), Fraction(0))
