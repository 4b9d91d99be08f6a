"""Injected shifts against perfci, apache-otava and ruptures; writes the table of docs/change-detection.md.

python -m venv /tmp/bench && /tmp/bench/bin/pip install -r benchmarks/changepoint/requirements.txt
PYTHONPATH=. /tmp/bench/bin/python benchmarks/changepoint/compare.py --write
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from detectors import DETECTORS, Detector
from series import KINDS, Injected, late, make

DOCUMENT = Path(__file__).parents[2] / "docs" / "change-detection.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
TOLERANCE = 2
"""Entries between an injected and a found change that still count as the same."""
FIRST_SEED = 30_000
"""Seeds below were looked at while perfci's constants were chosen."""
SIZES = (1.0, 1.5, 2.0, 3.0)
"""Small shifts, in standard deviations."""


@dataclass(slots=True)
class Score:
    """Counts over many series."""

    true: int = 0
    false: int = 0
    missed: int = 0
    seconds: float = 0.0
    offsets: list[int] = field(default_factory=list)
    calm_alarms: int = 0
    calm_series: int = 0
    delays: list[int | None] = field(default_factory=list)
    small: dict[float, list[int]] = field(default_factory=dict)

    @property
    def precision(self) -> float:
        return self.true / max(1, self.true + self.false)

    @property
    def recall(self) -> float:
        return self.true / max(1, self.true + self.missed)


def match(found: Sequence[int], shifts: Sequence[int], *, tolerance: int = TOLERANCE) -> list[tuple[int, int]]:
    """Pairs (found, injected) within the tolerance, nearest first, each used once."""
    pairs = sorted((abs(f - s), f, s) for f in found for s in shifts if abs(f - s) <= tolerance)
    used: list[tuple[int, int]] = []
    for _, f, s in pairs:
        if all(f != a and s != b for a, b in used):
            used.append((f, s))
    return used


def score_series(score: Score, detector: Detector, series: Injected) -> None:
    start = time.perf_counter()
    found = detector(series.values)
    score.seconds += time.perf_counter() - start
    pairs = match(found, series.shifts)
    score.true += len(pairs)
    score.false += len(found) - len(pairs)
    score.missed += len(series.shifts) - len(pairs)
    score.offsets += [abs(f - s) for f, s in pairs]
    if not series.shifts:
        score.calm_series += 1
        score.calm_alarms += bool(found)


def delay(detector: Detector, series: Injected) -> int | None:
    """Entries of the new level that were needed until the change was found, None: not within the series."""
    shift = series.shifts[0]
    for after in range(1, len(series.values) - shift + 1):
        if match(detector(series.values[: shift + after]), series.shifts):
            return after
    return None


def measure(repeats: int, kinds: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Score]]:
    scores = {name: {kind: Score() for kind in kinds} for name in names}
    for kind in kinds:
        print(f"{kind} …", file=sys.stderr, flush=True)
        for seed in range(FIRST_SEED, FIRST_SEED + repeats):
            for shifts in (0, 1, 3):
                series = make(kind, shifts, seed)
                for name in names:
                    score_series(scores[name][kind], DETECTORS[name], series)
            if seed < FIRST_SEED + repeats // 4:
                series = late(kind, seed, size=5.0)
                for name in names:
                    scores[name][kind].delays.append(delay(DETECTORS[name], series))
            for size in SIZES if kind == KINDS[0] else ():
                series = late(kind, seed, size=size, before=60, after=60)
                for name in names:
                    hit = len(match(DETECTORS[name](series.values), series.shifts, tolerance=10))
                    scores[name][kind].small.setdefault(size, []).append(hit)
    return scores


def table(scores: dict[str, dict[str, Score]], repeats: int) -> str:
    kinds = list(next(iter(scores.values())))
    lines = [
        f"{repeats} series per kind with 0, 1 and 3 shifts each, 120 entries; shifts of 4 to 8 standard deviations; "
        f"found within ±{TOLERANCE} entries counts. Delay: entries after one shift of 5 deviations until it is found "
        "(median; in brackets the share never found within 30). Time: relative to perfci, same process, same series.",
        "",
        "| detector | kind | precision | recall | calm series with an alarm | delay |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name, by_kind in scores.items():
        for kind in kinds:
            lines.append(f"| {name} | {kind} | {_cells(by_kind[kind])} |")
    ours = sum(score.seconds for score in scores["perfci"].values())
    lines += [
        "",
        "| detector | precision | recall | calm series with an alarm | exact place | time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, by_kind in scores.items():
        all_kinds = list(by_kind.values())
        total = Score(
            true=sum(s.true for s in all_kinds),
            false=sum(s.false for s in all_kinds),
            missed=sum(s.missed for s in all_kinds),
            calm_alarms=sum(s.calm_alarms for s in all_kinds),
            calm_series=sum(s.calm_series for s in all_kinds),
        )
        offsets = [offset for s in all_kinds for offset in s.offsets]
        exact = sum(offset == 0 for offset in offsets) / max(1, len(offsets))
        alarms = total.calm_alarms / max(1, total.calm_series)
        ratio = sum(s.seconds for s in all_kinds) / ours
        cells = [f"{total.precision:.3f}", f"{total.recall:.3f}", f"{alarms:.1%}", f"{exact:.0%}", f"{ratio:.1f}×"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "Small shifts: share found (within ±10 entries) of one shift between 60 and 60 quiet entries, by its size in "
        "standard deviations.",
        "",
        f"| detector | {' | '.join(f'{size:g}' for size in SIZES)} |",
        f"| --- |{' ---: |' * len(SIZES)}",
    ]
    for name, by_kind in scores.items():
        small = next(iter(by_kind.values())).small
        lines.append(f"| {name} | {' | '.join(f'{statistics.fmean(small[size]):.0%}' for size in small)} |")
    return "\n".join(lines)


def _cells(score: Score) -> str:
    known = [d for d in score.delays if d is not None]
    never = 1 - len(known) / max(1, len(score.delays))
    delays = f"{statistics.median(known):g} ({never:.0%})" if known else "–"
    alarms = score.calm_alarms / max(1, score.calm_series)
    return f"{score.precision:.2f} | {score.recall:.2f} | {alarms:.0%} | {delays}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--detectors", nargs="*", default=list(DETECTORS), choices=list(DETECTORS))
    parser.add_argument("--write", action="store_true", help="write the table into docs/change-detection.md")
    options = parser.parse_args()
    text = table(measure(options.repeats, options.kinds, options.detectors), options.repeats)
    print(text)
    if options.write:
        document = DOCUMENT.read_text(encoding="utf-8")
        before, rest = document.split(BEGIN)
        _, after = rest.split(END)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
