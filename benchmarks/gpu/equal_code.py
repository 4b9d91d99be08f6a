"""What comparisons of equal code (A/A) said: false alarms, and the noise of each gate.

    python benchmarks/gpu/equal_code.py OUT [OUT …]

Each OUT is a folder that prove.py wrote; its comparisons of the fault `none` are read. Prints two tables for
docs/evidence. Exit code 1 when any gate raised a false alarm, 2 when there is no such comparison.

A false alarm is a gate that says REGRESSION or IMPROVEMENT. All launches of one comparison are equal code in one
session, whichever side they stood on; the noise within and between sessions is what `perfci.stats.noise` tells of them.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy import stats

from perfci.model.metrics import METRICS
from perfci.stats.noise import NoiseFloor, floor_of

Json = dict[str, Any]
CLAIMS = ("REGRESSION", "IMPROVEMENT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Equal:
    """All A/A comparisons of one workload. ``noisy`` and ``exact`` count the verdicts of all their gates, ``differing``
    are the exact gates that were not equal; ``samples`` are those of each comparison by (phase, metric)."""

    workload: str
    comparisons: int
    launches: int
    alarms: int
    noisy: Mapping[str, int]
    exact: Mapping[str, int]
    differing: tuple[str, ...]
    samples: Mapping[tuple[str, str], Sequence[Sequence[float]]]


def gather(documents: Sequence[Json]) -> list[Equal]:
    """By workload, in order of their names, from the workloads of JSON reports."""
    by_name: dict[str, list[Json]] = defaultdict(list)
    for document in documents:
        for workload in document["workloads"]:
            by_name[workload["workload"]].append(workload)
    return [_equal(name, by_name[name]) for name in sorted(by_name)]


def _equal(name: str, comparisons: Sequence[Json]) -> Equal:
    verdicts: dict[str, Counter[str]] = {"noisy": Counter(), "exact": Counter()}
    samples: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    differing = []
    for comparison in comparisons:
        for row in comparison["rows"]:
            if not row["gated"]:
                continue
            verdicts[row["kind"]][row["verdict"]] += 1
            sides = [*row["baseline"]["samples"], *row["candidate"]["samples"]]
            if row["kind"] == "noisy":
                samples[row["phase"], row["metric"]].append(sides)
            elif len(set(sides)) > 1:
                differing.append(f"{row['phase']}/{row['metric']}")
    return Equal(
        workload=name,
        comparisons=len(comparisons),
        launches=sum(one["baseline_launches"] + one["candidate_launches"] for one in comparisons),
        alarms=sum(any(row["gated"] and row["verdict"] in CLAIMS for row in one["rows"]) for one in comparisons),
        noisy=verdicts["noisy"],
        exact=verdicts["exact"],
        differing=tuple(dict.fromkeys(differing)),
        samples=samples,
    )


def upper_bound(count: int, total: int) -> float:
    """Upper end of the one-sided 95 % Clopper-Pearson interval of a share."""
    return 1.0 if count == total else float(stats.beta.ppf(0.95, count + 1, total - count))


def alarms_table(found: Sequence[Equal]) -> str:
    """Markdown: what the comparisons said, and the bound on the rate of false alarms that all of them give."""
    lines = [
        "| workload | comparisons | launches | false alarms | noisy gates | exact gates | counts that differed |",
        "| --- | ---: | ---: | ---: | --- | --- | --- |",
    ]
    for one in found:
        noisy, exact = (
            ", ".join(f"{count} {verdict}" for verdict, count in sorted(seen.items())) or "none"
            for seen in (one.noisy, one.exact)
        )
        differing = ", ".join(one.differing) or "none"
        lines.append(
            f"| {one.workload} | {one.comparisons} | {one.launches} | {one.alarms} | {noisy} | {exact} | {differing} |"
        )
    total, alarms = sum(one.comparisons for one in found), sum(one.alarms for one in found)
    bound = upper_bound(alarms, total)
    return "\n".join([*lines, "", f"{alarms} of {total} comparisons raised a false alarm (95 % bound: {bound:.1%})."])


def noise_of(samples: Sequence[Sequence[float]], phase: str, metric: str) -> NoiseFloor | None:
    """The noise of one gate; None with too few launches, or values of 0."""
    return floor_of(phase, metric, METRICS[metric].statistic, samples)


def noise_table(found: Sequence[Equal]) -> str:
    """Markdown: the noise of each noisy gate."""
    lines = [
        "| workload | gate | launches | between launches | upper bound (80 %) | between sessions, upper bound (80 %) |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for one in found:
        for (phase, metric), samples in sorted(one.samples.items()):
            floor = noise_of(samples, phase, metric)
            if floor is None:
                continue
            session = "not known" if floor.session is None else f"{floor.session:.3%}"
            lines.append(
                f"| {one.workload} | {phase}/{metric} | {floor.launches} | {floor.deviation:.3%} | {floor.upper:.3%} "
                f"| {session} |"
            )
    return "\n".join(lines)


def read(folders: Sequence[Path]) -> list[Json]:
    """The comparisons of equal code in these folders."""
    return [
        json.loads(path.read_text()) for folder in folders for path in sorted(folder.glob("[0-9][0-9]-*-none.json"))
    ]


def main() -> int:
    """Print the tables."""
    found = gather(read([Path(argument) for argument in sys.argv[1:]]))
    if not found:
        print("usage: equal_code.py OUT …: folders that prove.py wrote, with comparisons of `none`", file=sys.stderr)
        return 2
    print(alarms_table(found), noise_table(found), sep="\n\n")
    return 1 if any(one.alarms for one in found) else 0


if __name__ == "__main__":
    sys.exit(main())
