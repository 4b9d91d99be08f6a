"""Holds what `prove.py` measured against the table of what must be found (workloads/faults.yaml).

    python benchmarks/gpu/score.py OUT

OUT is the folder that prove.py wrote: one comparison per case, OUT/<n>-<workload>-<fault>.json. Of each case it asks:

- verdict: is the comparison a REGRESSION, for equal code (`none`) is it none;
- metrics: which of the gates that must say REGRESSION do not;
- phase: does the change show where it was planted, in a row of such a metric or in a finding of the right rule;
- rules: is every rule that must speak new or worse, and none that the table does not allow;
- cause: does the headline name a finding of the right rule as the likely cause.

Prints a table for docs/evidence. Exit code 0 when all is as the table says, else 1.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One case: an empty text where all is right, else what is not."""

    case: str
    verdict: str
    metrics: str
    phase: str
    rules: str
    cause: str

    @property
    def right(self) -> bool:
        """True when nothing is wrong."""
        return not (self.verdict or self.metrics or self.phase or self.rules or self.cause)


def score(case: str, document: Json, wanted: Json) -> Score:
    """What is wrong in the JSON report of one comparison, by the row of the fault table."""
    (workload,) = document["workloads"]
    telling = [finding for finding in workload["findings"] if finding["new"] or finding["worsened"]]
    named = [finding for finding in telling if finding["rule"] in wanted["rules"]]
    silent = [rule for rule in wanted["rules"] if rule not in {finding["rule"] for finding in named}]
    foreign = sorted({finding["rule"] for finding in telling} - {*wanted["rules"], *wanted["may"]})
    red = {row["metric"] for row in workload["rows"] if row["verdict"] == "REGRESSION"}
    planted = bool(wanted["metrics"])
    shown = any(_grew(row) for row in workload["rows"] if row["metric"] in wanted["metrics"] and _there(row, wanted))
    return Score(
        case=case,
        verdict="" if (document["verdict"] == "REGRESSION") is planted else document["verdict"],
        metrics=", ".join(metric for metric in wanted["metrics"] if metric not in red),
        phase="" if not planted or shown or any(_there(finding, wanted) for finding in named) else "not shown",
        rules=", ".join([*(f"{rule} silent" for rule in silent), *(f"{rule} not expected" for rule in foreign)]),
        cause="" if not planted or any(_is_cause(document, finding) for finding in named) else "another or none",
    )


def _there(item: Json, wanted: Json) -> bool:
    return item["phase"] in wanted["phases"]


def _grew(row: Json) -> bool:
    """More beyond noise: a regression, an interval above zero, an exact count that rose."""
    if row["verdict"] == "REGRESSION":
        return True
    if row["effect"] is not None:
        return (row["effect"]["low_ratio"] or 0.0) > 0
    before, after = row["baseline"]["location"], row["candidate"]["location"]
    return after is not None and after > (before or 0.0)


def _is_cause(document: Json, finding: Json) -> bool:
    """The headline shortens long titles: their beginning decides."""
    return f"likely cause: {finding['title'][:60]}" in document["headline"]


def table(scores: list[Score]) -> str:
    """Markdown, one row per case."""
    lines = ["| case | verdict | metrics | phase | rules | cause |", "| --- | --- | --- | --- | --- | --- |"]
    for one in scores:
        cells = (one.verdict, one.metrics, one.phase, one.rules, one.cause)
        lines.append(f"| {one.case} | {' | '.join(cell or 'right' for cell in cells)} |")
    return "\n".join([*lines, "", f"{sum(one.right for one in scores)} of {len(scores)} cases are as the table says."])


def read(folder: Path) -> list[Score]:
    """Scores of all comparisons in the folder whose fault the table has; of one fault the row of its workload."""
    rows = yaml.safe_load((ROOT / "workloads" / "faults.yaml").read_text())["faults"]
    by_fault = {row["fault"]: row for row in rows}
    scores = []
    for path in sorted(folder.glob("[0-9][0-9]-*.json")):
        document = json.loads(path.read_text())
        if "workloads" not in document or len(document["workloads"]) != 1:
            continue  # a calibration
        workload = document["workloads"][0]["workload"]
        fault = path.stem.split("-", 1)[1].removeprefix(f"{workload}-")
        if fault in by_fault:
            scores.append(score(f"{workload}:{fault}", document, by_fault[fault]))
    return scores


def main() -> int:
    """Print the table."""
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("usage: score.py OUT: the folder that prove.py wrote", file=sys.stderr)
        return 2
    scores = read(Path(sys.argv[1]))
    print(table(scores))
    return 0 if scores and all(one.right for one in scores) else 1


if __name__ == "__main__":
    sys.exit(main())
