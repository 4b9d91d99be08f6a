"""How others decide that a change is slower, each from the same simulated launches. One boolean per session."""

import numpy as np
from noise_models import Array, Sessions
from numpy.typing import NDArray
from scipy import stats

Bools = NDArray[np.bool_]


def _all_steps(side: Array) -> Array:
    return side.reshape(len(side), -1)


def _slower(sessions: Sessions) -> Bools:
    return np.asarray(
        np.median(_all_steps(sessions.candidate), axis=1) > np.median(_all_steps(sessions.baseline), axis=1)
    )


def step_t(sessions: Sessions) -> Bools:
    """Student's t over all steps at 0.05: every step counted as independent."""
    result = stats.ttest_ind(_all_steps(sessions.candidate), _all_steps(sessions.baseline), axis=1)
    return np.asarray((result.pvalue < 0.05) & (result.statistic > 0))


def step_mann_whitney(sessions: Sessions) -> Bools:
    """Mann-Whitney over all steps at 0.002, asv's test of two results (asv/statistics.py, without its extra factor)."""
    result = stats.mannwhitneyu(
        _all_steps(sessions.candidate), _all_steps(sessions.baseline), axis=1, method="asymptotic"
    )
    return np.asarray((result.pvalue < 0.002) & _slower(sessions))


def pyperf_t(sessions: Sessions) -> Bools:
    """pyperf's is_significant: pooled t at 95 % over all values, three values per process."""
    sides = [
        np.exp(side)[:, :, : side.shape[2] // 3 * 3].reshape(*side.shape[:2], 3, -1).mean(axis=3).reshape(len(side), -1)
        for side in (sessions.candidate, sessions.baseline)
    ]
    result = stats.ttest_ind(*sides, axis=1)
    return np.asarray((result.pvalue < 0.05) & (result.statistic > 0))


def seven_percent(sessions: Sessions) -> Bools:
    """One launch a side, a threshold of 7 % on its median step (TorchBench's nightly check)."""
    change = np.median(sessions.candidate[:, 0], axis=1) - np.median(sessions.baseline[:, 0], axis=1)
    return np.asarray(change > np.log(1.07))


def benchstat(sessions: Sessions) -> Bools:
    """benchstat: Mann-Whitney over one number per launch at 0.05, no family control, no budget."""
    sides = [np.median(side, axis=2) for side in (sessions.candidate, sessions.baseline)]
    result = stats.mannwhitneyu(*sides, axis=1, method="exact")
    return np.asarray((result.pvalue < 0.05) & (np.median(sides[0], axis=1) > np.median(sides[1], axis=1)))


RIVALS = {
    "step-level t, 0.05": step_t,
    "step-level Mann-Whitney, 0.002 (asv)": step_mann_whitney,
    "pooled t, 95 % (pyperf)": pyperf_t,
    "7 % on single launches": seven_percent,
    "Mann-Whitney on launches, 0.05 (benchstat)": benchstat,
}
