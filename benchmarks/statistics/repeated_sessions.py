"""A comparison that is measured again, up to five times, as tables for docs/statistics.md.

    python benchmarks/statistics/repeated_sessions.py            # 7 minutes with --jobs 2; prints the tables
    python benchmarks/statistics/repeated_sessions.py --write    # and puts them into docs/statistics.md
    python benchmarks/statistics/repeated_sessions.py --scale 0.05    # a quick look

Every comparison is measured in all five sessions, whatever the answers are: what is counted is whether any of the first
k sessions erred, and no rule for stopping earlier (measure again until it is green) can err more often than that.
Every number comes from the same seed, so that the same numbers come out again.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
from noise_models import MODELS, Sessions, simulate
from tables import Table, in_chunks, publish, rate
from trials import Trial, repeated_on

from perfci.model.verdict import Verdict
from perfci.stats.sessions import share_of

SEED = 20261205
BEGIN = "<!-- begin: benchmarks/statistics/repeated_sessions.py -->"
SESSIONS = 5
ERROR_RATE = 0.01
MOST_LAUNCHES = 12
BUDGET = 0.02
STEPS = 20
SHARED = tuple(ERROR_RATE * share_of(k) for k in range(1, SESSIONS + 1))
FULL = (ERROR_RATE,) * SESSIONS
NAMES = [name for name, model in MODELS.items() if not model.sequential]

Erred = Callable[[Trial], Sequence[bool]]


def alarmed(trial: Trial) -> tuple[bool, ...]:
    """One answer for the comparison: any gate said REGRESSION."""
    return (trial.alarm,)


def passed(trial: Trial) -> tuple[bool, ...]:
    """One answer for each gate: it said PASS."""
    return tuple(verdict is Verdict.PASS for verdict in trial.verdicts)


def erred_by(repetitions: Sequence[Sessions], rates: Sequence[float], erred: Erred) -> np.ndarray:
    """How many erred in any of the first k sessions, for each k; the last number is how many there are."""
    answers = np.array([[erred(trial) for trial in trials] for trials in repeated_on(repetitions, rates)])
    so_far = np.logical_or.accumulate(answers.reshape(len(answers), -1), axis=0)
    return np.array([*so_far.sum(axis=1), so_far.shape[1]])


def row(name: str, scale: float, *, table: int) -> tuple[str, ...]:
    """One row of a table: 0 is false alarms on equal code, 1 false passes of harm of the size of the budget. Both ways
    to judge see the same launches."""
    comparisons, effect, erred = ((1500, 0.0, alarmed), (500, BUDGET, passed))[table]
    shared = full = np.zeros(SESSIONS + 1, dtype=int)
    for chunk, size in enumerate(in_chunks(round(comparisons * scale))):
        rng = np.random.default_rng([SEED, table, list(MODELS).index(name), chunk])
        repetitions = [
            simulate(MODELS[name], rng=rng, sessions=3 * size, launches=MOST_LAUNCHES, effect=effect, steps=STEPS)
            for _ in range(SESSIONS)
        ]
        shared = shared + erred_by(repetitions, SHARED, erred)
        full = full + erred_by(repetitions, FULL, erred)
    return (MODELS[name].meaning, *cells(shared), *cells(full))


def cells(counts: np.ndarray) -> tuple[str, ...]:
    """Shares after 1, 2, … sessions; the last one with its upper bound."""
    *some, last, total = (int(count) for count in counts)
    return (*(f"{count / total:.2%}" for count in some), rate(last, total))


def tables(scale: float, jobs: int) -> list[Table]:
    """Both tables, models spread over ``jobs`` processes."""
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        alarms, passes = (list(pool.map(partial(row, scale=scale, table=table), NAMES)) for table in (0, 1))
    head = ("noise", *(f"{how}, {k}" for how in ("shared", "full") for k in range(1, SESSIONS + 1)))
    return [
        Table(
            title="Measuring again: false alarms",
            lead=f"Share of comparisons of equal code (three noisy gates, budget 2 %, declared error rate 1 %, "
            f"adaptive effort up to {MOST_LAUNCHES} launches a side) with any false REGRESSION in "
            f"the first k of {SESSIONS} sessions. *Shared*: sessions share the error rate, as perfci judges; *full*: "
            "each session is judged at the full rate. In brackets the upper end of the one-sided 95 % Clopper-Pearson "
            "interval.",
            head=head,
            rows=tuple(alarms),
        ),
        Table(
            title="Measuring again: false passes",
            lead="Share of gates that call a true harm of exactly the budget PASS in any of the first k sessions; "
            "wanted at most 1 %.",
            head=head,
            rows=tuple(passes),
        ),
    ]


def main() -> None:
    """Run everything and print or write the tables."""
    publish(__doc__, BEGIN, f"`benchmarks/statistics/repeated_sessions.py`, seed {SEED}", tables)


if __name__ == "__main__":
    main()
