"""Error rates, power and cost of perfci's verdicts and of its rivals, by simulation, as tables for docs/statistics.md.

    python benchmarks/statistics/tables.py                       # about ten minutes on one core; prints the tables
    python benchmarks/statistics/tables.py --write               # and puts them into docs/statistics.md
    python benchmarks/statistics/tables.py --scale 0.05          # a quick look

Every table comes from the same seed, so that the same numbers come out again.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
from noise_models import MODELS, simulate
from rivals import RIVALS
from scipy import special, stats
from trials import Trial, adaptive_on, fixed_on, settings

from perfci.model.verdict import Verdict
from perfci.stats.family import ERROR_IN_USE
from perfci.stats.interval import paired_estimate, welch_estimate
from perfci.stats.plan import look_sizes
from perfci.stats.spending import nominal_levels

SEED = 20260101
DOCUMENT = Path(__file__).parents[2] / "docs" / "statistics.md"
BEGIN, END = "<!-- begin: benchmarks/statistics/tables.py -->", "<!-- end -->"
LAUNCHES = 6
MOST_LAUNCHES = 12
CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A markdown table with the sentence that says what it shows."""

    title: str
    lead: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        """The table as text."""
        lines = [f"### {self.title}", "", self.lead, "", _line(self.head), _line(["---"] * len(self.head))]
        return "\n".join([*lines, *map(_line, self.rows), ""])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def rate(count: int, total: int) -> str:
    """A share with the upper end of its one-sided 95 % Clopper-Pearson interval."""
    return f"{count / total:.2%} (≤ {upper_bound(count, total):.2%})"


def upper_bound(count: int, total: int) -> float:
    """Upper end of the one-sided 95 % Clopper-Pearson interval."""
    return 1.0 if count >= total else float(special.betaincinv(count + 1, total - count, 0.95))


def share(count: int, total: int) -> str:
    return f"{count / total:.0%}" if total else "–"


def generator(*key: int) -> np.random.Generator:
    """The stream of one cell of one table."""
    return np.random.default_rng([SEED, *key])


def in_chunks(comparisons: int) -> list[int]:
    return [min(CHUNK, comparisons - done) for done in range(0, comparisons, CHUNK)]


def alarms(trials: Sequence[Trial]) -> int:
    return sum(trial.alarm for trial in trials)


def false_alarms(name: str, scale: float) -> tuple[str, ...]:
    """One row: equal code under one noise model, all deciders on the same launches."""
    model, number = MODELS[name], list(MODELS).index(name)
    counts, total, looked, spent, passed = dict.fromkeys(RIVALS, 0), 0, 0, 0, 0
    ours = adaptive = adaptive_total = 0
    for chunk, size in enumerate(in_chunks(round(8000 * scale))):
        sessions = simulate(model, rng=generator(1, number, chunk), sessions=3 * size, launches=LAUNCHES)
        ours += alarms(fixed_on(sessions))
        total += size
        if not looked or total <= round(3000 * scale):
            looked += size
            for rival, test in RIVALS.items():
                counts[rival] += int(test(sessions).reshape(size, 3).any(axis=1).sum())
    for chunk, size in enumerate(in_chunks(round(3000 * scale))):
        sessions = simulate(model, rng=generator(2, number, chunk), sessions=3 * size, launches=MOST_LAUNCHES)
        trials = adaptive_on(sessions)
        adaptive, adaptive_total = adaptive + alarms(trials), adaptive_total + size
        spent += sum(trial.launches for trial in trials)
        passed += sum(trial.verdicts.count(Verdict.PASS) for trial in trials)
    return (
        model.meaning,
        rate(ours, total),
        rate(adaptive, adaptive_total),
        f"{spent / adaptive_total:.1f}",
        share(passed, 3 * adaptive_total),
        *(share(counts[rival], looked) for rival in RIVALS),
    )


def by_launches(name: str, scale: float) -> tuple[str, ...]:
    """One row: false alarms of one look at n launches a side."""
    model, number = MODELS[name], list(MODELS).index(name)
    cells, together, total = [], 0, 0
    for n in (3, 5, 8, 12, 20, 30):
        found = size_in_all = 0
        for chunk, size in enumerate(in_chunks(round(1500 * scale))):
            sessions = simulate(model, rng=generator(3, number, n, chunk), sessions=3 * size, launches=n)
            found += alarms(fixed_on(sessions))
            size_in_all += size
        cells.append(f"{found / size_in_all:.2%}")
        together, total = together + found, total + size_in_all
    return (model.meaning, *cells, rate(together, total))


EFFECTS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1)


def power(name: str, scale: float) -> list[tuple[str, ...]]:
    """Rows: how often a true change of all three gates is called a regression."""
    model, number = MODELS[name], list(MODELS).index(name)
    ours, plan, launches = [], [], []
    rivals: dict[str, list[str]] = {rival: [] for rival in RIVALS}
    for place, effect in enumerate(EFFECTS):
        size = max(10, round(400 * scale))
        sessions = simulate(
            model, rng=generator(4, number, place), sessions=3 * size, launches=MOST_LAUNCHES, effect=effect
        )
        first = simulate(model, rng=generator(5, number, place), sessions=3 * size, launches=LAUNCHES, effect=effect)
        ours.append(share(alarms(fixed_on(first)), size))
        trials = adaptive_on(sessions)
        plan.append(share(alarms(trials), size))
        launches.append(f"{sum(trial.launches for trial in trials) / size:.1f}")
        for rival, test in RIVALS.items():
            rivals[rival].append(share(int(test(first).reshape(size, 3).any(axis=1).sum()), size))
    rows: list[tuple[str, ...]] = [
        (model.meaning, f"perfci, {LAUNCHES} launches", *ours),
        ("", f"perfci, plan of at most {MOST_LAUNCHES}", *plan),
        ("", "launches the plan spent", *launches),
    ]
    return rows + [("", rival, *cells) for rival, cells in rivals.items()]


def false_passes(name: str, scale: float) -> tuple[str, ...]:
    """One row: a true harm of exactly the budget that is called PASS, per gate."""
    model, number = MODELS[name], list(MODELS).index(name)
    fixed = plan = total = 0
    for chunk, size in enumerate(in_chunks(round(1000 * scale))):
        sessions = simulate(
            model, rng=generator(6, number, chunk), sessions=3 * size, launches=MOST_LAUNCHES, effect=0.02
        )
        fixed += sum(trial.verdicts.count(Verdict.PASS) for trial in fixed_on(sessions))
        plan += sum(trial.verdicts.count(Verdict.PASS) for trial in adaptive_on(sessions))
        total += 3 * size
    return (model.meaning, rate(fixed, total), rate(plan, total))


def coverage(name: str, scale: float) -> tuple[str, ...]:
    """One row: how often the interval of nominal 99 % covers the true effect."""
    model, number = MODELS[name], list(MODELS).index(name)
    cells = []
    for n in (4, 6, 12):
        size = round(3000 * scale)
        sessions = simulate(model, rng=generator(7, number, n), sessions=size, launches=n)
        left, right = (np.median(side, axis=2) for side in (sessions.baseline, sessions.candidate))
        for paired in (True, False):
            covered = 0
            for a, b in zip(left, right, strict=True):
                estimate = (
                    paired_estimate(b - a, least_deviation=1e-9)
                    if paired
                    else welch_estimate(a, b, least_deviation=1e-9)
                )
                covered += abs(estimate.log_ratio) <= estimate.half_width(0.005)
            cells.append(f"{covered / size:.1%}")
    return (model.meaning, *cells)


def spending(scale: float) -> Table:
    """Normal noise, looked at after every block: chance that any look crosses, as a share of what may be spent."""
    rows = []
    for number, (alpha, looks) in enumerate(
        (alpha, looks)
        for alpha in (0.008, 0.0027)
        for looks in (look_sizes(settings()), tuple(range(3, 13)), look_sizes(settings(max_launches=30)))
    ):
        sessions = round(1_000_000 * scale)
        levels = nominal_levels(alpha, looks, looks[-1])
        values = generator(8, number).standard_normal((sessions, looks[-1]))
        crossed = np.zeros(sessions, dtype=bool)
        naive = np.zeros(sessions, dtype=bool)
        for n, level in zip(looks, levels, strict=True):
            seen = values[:, :n]
            statistic = seen.mean(axis=1) / seen.std(axis=1, ddof=1) * np.sqrt(n)
            crossed |= statistic > stats.t.isf(level, n - 1)
            naive |= statistic > stats.t.isf(alpha, n - 1)
        rows.append(
            (f"{alpha:.2%}", ", ".join(map(str, looks)), rate(int(crossed.sum()), sessions), f"{naive.mean():.2%}")
        )
    return Table(
        title="Looking often",
        lead="Equal code, normal noise: the chance that a one-sided claim is made at any look. Naive: each look at the "
        "full level.",
        head=("may be spent", "looks at (pairs)", "error spending", "naive"),
        rows=tuple(rows),
    )


def tables(scale: float, jobs: int) -> list[Table]:
    """All tables, models spread over ``jobs`` processes."""
    with ProcessPoolExecutor(max_workers=jobs) as pool:

        def each(work: Callable[..., object], names: Sequence[str]) -> list[object]:
            return list(pool.map(partial(work, scale=scale), names))

        names = list(MODELS)
        interleaved = [name for name, model in MODELS.items() if not model.sequential]
        rows_of_false_alarms = each(false_alarms, names)
        rows_by_launches = each(by_launches, names)
        rows_of_power = each(power, ["quiet", "even", "between", "wild"])
        rows_of_passes = each(false_passes, interleaved)
        rows_of_coverage = each(coverage, interleaved)
    return [
        Table(
            title="False alarms on equal code",
            lead=f"Share of comparisons (three noisy gates each, budget 2 %, declared error rate 1 %) with any false "
            f"REGRESSION; in brackets the upper end of the one-sided 95 % Clopper-Pearson interval. One look at "
            f"{LAUNCHES} launches a side for all deciders, on the same launches; the plan looks after every block of "
            f"two pairs up to {MOST_LAUNCHES}.",
            head=(
                "noise",
                f"perfci, {LAUNCHES} launches",
                "perfci, plan",
                "launches spent",
                "gates that pass",
                *RIVALS,
            ),
            rows=tuple(rows_of_false_alarms),  # type: ignore[arg-type]
        ),
        Table(
            title="False alarms by number of launches",
            lead="perfci, one look at n launches a side, otherwise as above.",
            head=("noise", *(f"n = {n}" for n in (3, 5, 8, 12, 20, 30)), "all together"),
            rows=tuple(rows_by_launches),  # type: ignore[arg-type]
        ),
        Table(
            title="Power",
            lead="Share of comparisons called REGRESSION (rivals: an alarm) when all three metrics are truly slower by "
            "so much, budget 2 %. The first column is the false-alarm rate that buys the rest of the row.",
            head=("noise", "decider", *(f"+{effect:.1%}" if effect else "equal" for effect in EFFECTS)),
            rows=tuple(row for rows in rows_of_power for row in rows),  # type: ignore[attr-defined]
        ),
        Table(
            title="False passes",
            lead="A true harm of exactly the budget (2 %) that a gate calls PASS; wanted at most 1 %.",
            head=("noise", f"one look at {MOST_LAUNCHES}", f"plan of at most {MOST_LAUNCHES}"),
            rows=tuple(rows_of_passes),  # type: ignore[arg-type]
        ),
        Table(
            title="Coverage",
            lead="How often an interval of nominal 99 % covers the true effect.",
            head=("noise", *(f"{kind}, n = {n}" for n in (4, 6, 12) for kind in ("paired", "Welch"))),
            rows=tuple(rows_of_coverage),  # type: ignore[arg-type]
        ),
        spending(scale),
    ]


def publish(
    description: str | None, begin: str, source: str, make: Callable[[float, int], Sequence[Table]], *, end: str = ""
) -> None:
    """The command line of a script of tables: print what ``make(scale, jobs)`` gives and, with ``--write``, put it into
    the document between the mark ``begin`` and the next END. ``source`` and ``end`` tell where it comes from."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the simulated comparisons")
    parser.add_argument("--jobs", type=int, default=1, help="processes, where the script can use them")
    parser.add_argument("--write", action="store_true", help=f"put the tables into {DOCUMENT.name}")
    wanted = parser.parse_args()
    started = time.monotonic()
    made = make(wanted.scale, wanted.jobs)
    note = f"Written by {source}, scale {wanted.scale:g}{end}.\n"
    text = "\n".join([note, *(table.markdown() for table in made)])
    if wanted.write:
        DOCUMENT.write_text(between(DOCUMENT.read_text(), begin, text))
    print(text)
    print(f"{time.monotonic() - started:.0f} s")


def between(document: str, begin: str, text: str) -> str:
    """The document with the text in place of what stood between the mark and the next END."""
    before, rest = document.split(begin)
    return f"{before}{begin}\n{text}\n{END}{rest.split(END, 1)[1]}"


def main() -> None:
    """Run everything and print or write the tables."""
    publish(
        __doc__,
        BEGIN,
        f"`benchmarks/statistics/tables.py` on {datetime.now(UTC):%Y-%m-%d}, seed {SEED}",
        tables,
        end=f"; {ERROR_IN_USE:.0%} of the declared error rate is in use",
    )


if __name__ == "__main__":
    main()
