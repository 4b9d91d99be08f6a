"""Judging against accepted levels of another day: false alarms and power, as tables for docs/statistics.md.

    python benchmarks/statistics/accepted_levels.py             # about nine minutes on one core; prints the tables
    python benchmarks/statistics/accepted_levels.py --write     # and puts them into docs/statistics.md
    python benchmarks/statistics/accepted_levels.py --jobs 2 # in about half of the time

Every number comes from the same seed, so that the same numbers come out again.
"""

from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from noise_models import MODELS
from tables import Table, alarms, publish, rate, share
from trials import Accepted, accepted, accepted_on

SEED = 20261207
BEGIN = "<!-- begin: benchmarks/statistics/accepted_levels.py -->"
LAUNCHES = 6
"""Of the accepted level, and of the candidate."""
HISTORY_LAUNCHES = 4
HISTORIES = (0, 5, 10)
"""Sessions of one revision in history when the level is accepted."""
SESSIONS = (0.0, 0.002, 0.005, 0.01)
"""Standard deviations between sessions of equal code."""
FEW_LAUNCHES = (2, 3, 4)
BUDGET = 0.02
EFFECT = 2 * BUDGET
STEPS = 20
NAMES = ("quiet", "even", "between", "skewed", "bistable")
POWER_NAMES = ("quiet", "even")
FEW_NAMES = ("quiet", "even", "wild", "bistable", "rare mode")


def drawn(
    name: str, *key: int, comparisons: int, session: float, launches: int = LAUNCHES, effect: float = 0.0
) -> Accepted:
    """Levels, candidates and history of one cell."""
    return accepted(
        MODELS[name],
        rng=np.random.default_rng([SEED, list(MODELS).index(name), *key]),
        comparisons=comparisons,
        launches=(launches, launches),
        history=(max(HISTORIES), HISTORY_LAUNCHES),
        session=session,
        effect=effect,
        steps=STEPS,
    )


def false_alarms(cell: tuple[str, float], *, scale: float) -> tuple[str, ...]:
    """One row: equal code on another day."""
    name, session = cell
    size = round(3000 * scale)
    made = drawn(name, 0, SESSIONS.index(session), comparisons=size, session=session)
    found = [alarms(accepted_on(made, sessions=sessions, budget=BUDGET)) for sessions in HISTORIES]
    return (MODELS[name].meaning, f"{session:.1%}", *(rate(count, size) for count in found))


def power(cell: tuple[str, float], *, scale: float) -> tuple[str, ...]:
    """One row: all three gates slower by twice the budget."""
    name, session = cell
    size = round(500 * scale)
    made = drawn(name, 1, SESSIONS.index(session), comparisons=size, session=session, effect=EFFECT)
    found = [alarms(accepted_on(made, sessions=sessions, budget=BUDGET)) for sessions in HISTORIES]
    return (MODELS[name].meaning, f"{session:.1%}", *(share(count, size) for count in found))


def few_launches(name: str, *, scale: float) -> tuple[str, ...]:
    """One row: equal code, a level and a candidate of few launches, a noise floor for each gate."""
    size = round(2000 * scale)
    cells = []
    for launches in FEW_LAUNCHES:
        made = drawn(name, 2, launches, comparisons=size, session=0.0, launches=launches)
        cells.append(rate(alarms(accepted_on(made, sessions=5, budget=BUDGET)), size))
    return (MODELS[name].meaning, *cells)


def tables(scale: float, workers: int) -> list[Table]:
    """All tables."""
    histories = tuple(f"{sessions} sessions" if sessions else "no history" for sessions in HISTORIES)
    head = ("noise", "between sessions", *histories)
    with ProcessPoolExecutor(workers) as pool:
        alarm_rows = pool.map(
            partial(false_alarms, scale=scale), [(name, session) for name in NAMES for session in SESSIONS]
        )
        power_rows = pool.map(
            partial(power, scale=scale), [(name, session) for name in POWER_NAMES for session in SESSIONS]
        )
        few_rows = pool.map(partial(few_launches, scale=scale), FEW_NAMES)
        return [
            Table(
                title="Against accepted levels: false alarms",
                lead=f"Share of comparisons of equal code (three noisy gates, budget {100 * BUDGET:g} %, declared "
                f"error rate 1 %, one look) with any false REGRESSION: {LAUNCHES} launches against a level that rests "
                f"on {LAUNCHES} launches of another session, by the standard deviation between sessions (each gate has "
                f"its own luck) and by the sessions of one revision, with {HISTORY_LAUNCHES} launches each, that "
                "history held when the level was accepted; in brackets the upper end of the one-sided 95 % "
                "Clopper-Pearson interval.",
                head=head,
                rows=tuple(alarm_rows),
            ),
            Table(
                title="Against accepted levels: power",
                lead=f"Share called REGRESSION when all three metrics are truly slower by {100 * EFFECT:g} %, twice "
                "the budget.",
                head=head,
                rows=tuple(power_rows),
            ),
            Table(
                title="Against accepted levels: few launches with noise floors",
                lead="False alarms as above, with as few launches of the level and of the candidate, no noise between "
                f"sessions, and noise floors from 5 sessions of {HISTORY_LAUNCHES} launches.",
                head=("noise", *(f"{launches} launches" for launches in FEW_LAUNCHES)),
                rows=tuple(few_rows),
            ),
        ]


def main() -> None:
    """Run everything and print or write the tables."""
    publish(__doc__, BEGIN, f"`benchmarks/statistics/accepted_levels.py`, seed {SEED}", tables)


if __name__ == "__main__":
    main()
