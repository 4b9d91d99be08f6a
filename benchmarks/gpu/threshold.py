"""What a threshold on one number says of the launches that perfci judged: each launch of one side against each of the
other, since a tool that takes one number per side could have met any of these pairs.

    python benchmarks/gpu/threshold.py SUMMARY.json …

A SUMMARY is summary.json of prove.py (docs/evidence keeps them as raw numbers). Prints one table row per case: of how
many pairs the threshold of other_tools.py says "regression" or "improvement", and between which changes the pairs lie.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from other_tools import THRESHOLD, threshold_says

METRICS = ("step/unprofiled_wall_ns", "step/gpu_busy_ns")
Case = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """All pairs of one metric in one case: how many are called slower and faster, and their extreme changes."""

    pairs: int
    regressions: int
    improvements: int
    least_ratio: float
    most_ratio: float


def pairs_of(baseline: Sequence[float], candidate: Sequence[float]) -> Pairs | None:
    """What the threshold says of each pair; None where a side has no number."""
    changes = [after / before - 1 for before, after in product(baseline, candidate)]
    if not changes:
        return None
    said = [threshold_says(change) for change in changes]
    return Pairs(
        pairs=len(changes),
        regressions=said.count("regression"),
        improvements=said.count("improvement"),
        least_ratio=min(changes),
        most_ratio=max(changes),
    )


def table(cases: Sequence[Case]) -> str:
    """One Markdown row per case."""
    titles = [f"pairs beyond {THRESHOLD:.0%}, {metric.partition('/')[2]}" for metric in METRICS]
    lines = [f"| case | perfci | {' | '.join(titles)} |", "| --- | --- | --- | --- |"]
    for case in cases:
        cells = [_cell(pairs_of(*case["samples"].get(metric, ((), ())))) for metric in METRICS]
        lines.append(f"| {case['case']} | {case['verdict']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(seen: Pairs | None) -> str:
    if seen is None:
        return "not measured"
    said = [f"{seen.regressions} of {seen.pairs} slower"] + [f"{seen.improvements} faster"] * bool(seen.improvements)
    return f"{', '.join(said)} ({seen.least_ratio:+.1%} … {seen.most_ratio:+.1%})"


def main(paths: Sequence[str]) -> int:
    """Print the table of all cases."""
    if not paths or paths[0].startswith("-"):
        print(__doc__)
        return 0 if paths else 2
    print(table([case for path in paths for case in json.loads(Path(path).read_text())]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
