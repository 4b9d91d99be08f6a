"""Looking often without more false alarms: how much error each look may spend.

The alpha-spending approach of Lan & DeMets (Biometrika 1983) with the power family of Kim & DeMets (Biometrika 1987):
by the time a share t of the planned launches is there, α·t^1.5 is spent. Between the bold Pocock shape (a clear
effect is known after the first block) and the timid O'Brien-Fleming shape (the last look costs little). The nominal
level of each look comes from recursive integration of the Brownian motion that the test statistics follow (Armitage,
McPherson & Rowe, JRSS A 1969), and is used with Student's t of that look (Jennison & Turnbull 2000, chapter 11).
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr

SPENDING_POWER = 1.5
SMALL_SAMPLE_FACTOR = 1.25
"""Nominal levels from normal theory let t statistics of 3 to 12 launches cross up to 1.2 times too often (simulated:
benchmarks/statistics, table "spending"), so that much less is given out when there is more than one look."""
_GRID = 400
_REACH = 8.0


def nominal_levels(alpha: float, looks: Sequence[int], planned: int) -> tuple[float, ...]:
    """One-sided level for each look such that under no effect any look errs with probability at most ``alpha``.

    ``looks`` are the launches (pairs) at which was or is looked, rising; ``planned`` the most that there will be. One
    look at all launches gets all of ``alpha``. Looks beyond ``planned`` stretch the plan to the last look. The levels
    of the first looks do not depend on later ones. Raises ValueError when the looks do not rise from at least 1.
    """
    if not looks or looks[0] < 1 or any(b <= a for a, b in pairwise(looks)):
        raise ValueError(f"looks must rise from at least 1, got {tuple(looks)}")
    if not 0 < alpha < 0.5:
        raise ValueError(f"alpha must lie in (0, 0.5), got {alpha}")
    end = max(planned, looks[-1])
    if len(looks) == 1 and looks[0] == end:
        return (alpha,)
    return _levels(alpha / SMALL_SAMPLE_FACTOR, tuple(look / end for look in looks))


@lru_cache(maxsize=2048)
def _levels(alpha: float, shares: tuple[float, ...]) -> tuple[float, ...]:
    levels: list[float] = []
    spent = 0.0
    grid: NDArray[np.float64] = np.zeros(1)
    density: NDArray[np.float64] = np.ones(1)  # all mass at 0 before the first look
    before = 0.0
    for share in shares:
        may_spend = alpha * share**SPENDING_POWER - spent
        step = np.sqrt(share - before)

        def overshoot(
            bound: float, *, grid: NDArray[np.float64] = grid, density: NDArray[np.float64] = density,
            step: float = step, root: float = share**0.5, target: float = may_spend,
        ) -> float:  # fmt: skip
            return float(density @ ndtr(-(bound * root - grid) / step)) - target

        bound = float(brentq(overshoot, -_REACH, 2 * _REACH, xtol=1e-10))
        levels.append(float(ndtr(-bound)))
        root = share**0.5
        target_grid = np.linspace(-_REACH * root, bound * root, _GRID + 1)
        weights = np.full(_GRID + 1, target_grid[1] - target_grid[0])
        weights[[0, -1]] /= 2
        steps = (target_grid[:, None] - grid[None, :]) / step
        density = (np.exp(-0.5 * steps**2) @ density) / (step * np.sqrt(2 * np.pi)) * weights
        grid, before, spent = target_grid, share, alpha * share**SPENDING_POWER
    return tuple(levels)
