"""Two to four launches a side with noise floors from eight calibration launches, as a table for docs/statistics.md.

    python benchmarks/statistics/few_launches.py                # under two minutes on one core; prints the table
    python benchmarks/statistics/few_launches.py --write        # and puts it into docs/statistics.md

Every number comes from the same seed, so that the same numbers come out again.
"""

import numpy as np
from noise_models import MODELS, Sessions, simulate
from tables import Table, alarms, publish, rate, share
from trials import calibrated_on, fixed_on

SEED = 20261204
BEGIN = "<!-- begin: benchmarks/statistics/few_launches.py -->"
CALIBRATION_LAUNCHES = 8
LAUNCHES = (2, 3, 4)
BUDGET = 0.01
STEPS = 20
NAMES = ("quiet", "even", "between", "skewed", "wild", "bistable", "rare mode")
POWER_NAMES = ("quiet", "even")


def drawn(name: str, *key: int, comparisons: int, launches: int, effect: float = 0.0) -> tuple[Sessions, Sessions]:
    """Sessions of three gates, and as many calibrations of equal code on the same machine."""
    rng = np.random.default_rng([SEED, list(MODELS).index(name), launches, *key])
    return (
        simulate(MODELS[name], rng=rng, sessions=3 * comparisons, launches=launches, effect=effect, steps=STEPS),
        simulate(MODELS[name], rng=rng, sessions=3 * comparisons, launches=CALIBRATION_LAUNCHES // 2, steps=STEPS),
    )


def false_alarms(name: str, scale: float) -> tuple[str, ...]:
    """One row: equal code, with floors."""
    size = round(4000 * scale)
    cells = []
    for launches in LAUNCHES:
        sessions, calibrations = drawn(name, 0, comparisons=size, launches=launches)
        cells.append(rate(alarms(calibrated_on(sessions, calibrations, budget=BUDGET)), size))
    return (MODELS[name].meaning, *cells)


def power(name: str, scale: float) -> list[tuple[str, ...]]:
    """Rows: a true change of all three gates, with floors and without."""
    size = round(500 * scale)
    rows = []
    for place, effect in enumerate((0.02, 0.05)):
        cells = []
        for launches in LAUNCHES:
            sessions, calibrations = drawn(name, 1 + place, comparisons=size, launches=launches, effect=effect)
            known = alarms(calibrated_on(sessions, calibrations, budget=BUDGET))
            cells.append(f"{share(known, size)} ({share(alarms(fixed_on(sessions, budget=BUDGET)), size)})")
        rows.append((MODELS[name].meaning, f"+{effect:.0%}", *cells))
    return rows


def tables(scale: float) -> list[Table]:
    """Both tables."""
    head = tuple(f"{launches} launches" for launches in LAUNCHES)
    return [
        Table(
            title="Few launches with noise floors: false alarms",
            lead="Share of comparisons of equal code (three noisy gates, budget 1 %, declared error rate 1 %, one "
            f"look) with any false REGRESSION, when each gate has a noise floor from {CALIBRATION_LAUNCHES} launches "
            "of equal code; in brackets the upper end of the one-sided 95 % Clopper-Pearson interval.",
            head=("noise", *head),
            rows=tuple(false_alarms(name, scale) for name in NAMES),
        ),
        Table(
            title="Few launches with noise floors: power",
            lead="Share called REGRESSION when all three metrics are truly slower by so much; in brackets without "
            "floors.",
            head=("noise", "slower by", *head),
            rows=tuple(row for name in POWER_NAMES for row in power(name, scale)),
        ),
    ]


def main() -> None:
    """Run everything and print or write the tables."""
    publish(__doc__, BEGIN, f"`benchmarks/statistics/few_launches.py`, seed {SEED}", lambda scale, _jobs: tables(scale))


if __name__ == "__main__":
    main()
