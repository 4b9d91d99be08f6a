"""One error rate for all gates of a comparison."""

from collections.abc import Callable, Sequence

from perfci.model.metrics import RUN, STEP

STEP_SHARE = 0.8
"""Share of a workload's error that whole-step and whole-run gates get when phases are gated too: the step decides,
phases explain."""


ERROR_IN_USE = 0.8
"""Share of the declared error rate that is given out. Intervals are exact for normal noise only; the rest is a
reserve, so that the declared rate holds for the noise of real machines too (docs/statistics.md shows by simulation
that it does)."""


def weights(phases: Sequence[str]) -> tuple[float, ...]:
    """Share of the workload's error for each noisy gate, given the gate's phase. Sums to 1 (empty: empty)."""
    whole = [phase in (STEP, RUN) for phase in phases]
    count, parts = sum(whole), len(whole) - sum(whole)
    if not count or not parts:
        return tuple(1 / len(whole) for _ in whole)
    return tuple(STEP_SHARE / count if is_whole else (1 - STEP_SHARE) / parts for is_whole in whole)


def weighted_holm(alpha: float, shares: Sequence[float], rejects: Callable[[int, float], bool]) -> tuple[float, ...]:
    """The level at which each hypothesis is tested by Holm's weighted step-down procedure (Scandinavian Journal of
    Statistics 1979), which keeps the chance of any false rejection at ``alpha`` under every dependence.

    ``rejects(i, level)`` says whether hypothesis i is rejected at a level; it must be monotone in the level. A rejected
    hypothesis hands its error to those that are left: a step found slower lets its phases be judged at a laxer level.
    """
    levels = [alpha * share for share in shares]
    left = [index for index, share in enumerate(shares) if share > 0]
    while left:
        total = sum(shares[index] for index in left)
        for index in left:
            levels[index] = alpha * shares[index] / total
        rejected = [index for index in left if rejects(index, levels[index])]
        if not rejected:
            break
        left = [index for index in left if index not in rejected]
    return tuple(levels)
