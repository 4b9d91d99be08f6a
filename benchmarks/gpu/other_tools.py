"""What other tools say on recordings that perfci has judged.

    python benchmarks/gpu/other_tools.py RECORDINGS OUT --nsys-ai PATH [--nsys PATH]

RECORDINGS is `recordings.tar.xz` of `prove.py --recordings`, or a folder of the same layout: CASE/baseline-N.sqlite,
CASE/candidate-N.sqlite and, where perfci judged the case, CASE/comparison.json. The first pair of each case is used:
one recording per side is what these tools take.

- `nsys stats`, GPU projection of NVTX ranges: no verdict; what it gives `backward` on each side, and the change.
- `nsys-ai diff --exit-on-regression` (pip install nsys-ai in a venv of its own), default gate, in both directions.
- a threshold of 7 % on one number, the median step of one launch (unprofiled where comparison.json has it).

Writes OUT/other_tools.md and OUT/other_tools.json (commands, versions, exit codes, numbers).
"""

import argparse
import contextlib
import csv
import json
import os
import sqlite3
import statistics
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from perfci.capture.nsys import find_nsys

REPORTS = ("nvtx_gpu_proj_trace", "nvtxgpuproj")
"""Names of the report with one row per range and its projection, newer first (`nvtx_gpu_proj_sum` sums these rows)."""
THRESHOLD = 0.07
Case = dict[str, Any]


def ask(command: Sequence[str | Path]) -> dict[str, Any]:
    """Run a tool and keep what it was asked (file names without folders) and what it answered."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    told = [os.path.basename(part) for part in map(str, command)]  # noqa: PTH119  (also of options)
    return {"command": told, "exit_code": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def projected(text: str) -> dict[str, float]:
    """Range name → median projected GPU time, ns, from CSV of nsys stats; empty when it has no such table."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith("Name,")), None)
    times: dict[str, list[int]] = {}
    for row in csv.DictReader(lines[start:]) if start is not None else ():
        column = next((name for name in row if name and name.startswith("Projected Duration")), None)
        if column and row[column]:
            times.setdefault(row["Name"].lstrip(":"), []).append(int(row[column]))
    return {name: statistics.median(values) for name, values in times.items()}


def nsys_stats(nsys: Path, recording: Path) -> dict[str, Any]:
    """The projection table of one recording, by the first report name that this nsys knows."""
    answer: dict[str, Any] = {}
    for report in REPORTS:
        answer = ask([nsys, "stats", "--report", report, "--format", "csv", "--output", "-", recording])
        phases = projected(answer.pop("stdout"))
        if phases:
            return answer | {"phases": phases}
    return answer | {"phases": {}}


def nsys_ai(program: Path, before: Path, after: Path) -> dict[str, Any]:
    """Verdict, step-time change and exit code of its gate."""
    answer = ask([program, "diff", before, after, "--format", "json", "--no-ai", "--exit-on-regression"])
    text = answer.pop("stdout")
    said: dict[str, Any] = json.loads(text) if text.startswith("{") else {}
    answer["stderr"] = "" if said else answer["stderr"][-1000:]
    change = said.get("step_time") or {}
    return answer | {
        "verdict": said.get("verdict"),
        "step_pct": change.get("delta_pct"),
        "version": said.get("producer_version"),
    }


def step_ns(recording: Path) -> float | None:
    """Median length of the `step` ranges of a recording; None without any."""
    with contextlib.closing(sqlite3.connect(f"file:{recording}?mode=ro", uri=True)) as database:
        rows = database.execute(
            'SELECT "end" - start FROM NVTX_EVENTS LEFT JOIN StringIds ON textId = id '
            "WHERE coalesce(text, value) = 'step' AND \"end\" IS NOT NULL"
        ).fetchall()
    return statistics.median(row[0] for row in rows) if rows else None


def one_number(folder: Path, comparison: Case | None) -> dict[str, Any]:
    """The two numbers that a single-number gate compares, where they come from, and what it says."""
    rows = comparison["workloads"][0]["rows"] if comparison else []
    wall = [row for row in rows if (row["phase"], row["metric"]) == ("step", "unprofiled_wall_ns")]
    if wall and wall[0]["baseline"]["samples"] and wall[0]["candidate"]["samples"]:
        source = "unprofiled step"
        values = [wall[0][side]["samples"][0] for side in ("baseline", "candidate")]
    else:
        source, values = "profiled step", [step_ns(folder / f"{side}-1.sqlite") for side in ("baseline", "candidate")]
    change = values[1] / values[0] - 1 if all(values) else None
    return {"source": source, "values_ns": values, "change_ratio": change, "says": threshold_says(change)}


def threshold_says(change: float | None) -> str:
    """The answer of a gate on one number."""
    if change is None:
        return "no answer"
    return "regression" if change > THRESHOLD else "improvement" if change < -THRESHOLD else "nothing"


def judged(folder: Path, nsys: Path, program: Path) -> Case:
    """All answers for one case."""
    path = folder / "comparison.json"
    comparison = json.loads(path.read_text()) if path.is_file() else None
    sides = [folder / "baseline-1.sqlite", folder / "candidate-1.sqlite"]
    return {
        "case": folder.name,
        "perfci": comparison["verdict"] if comparison else None,
        "nsys_stats": [nsys_stats(nsys, side) for side in sides],
        "nsys_ai": [nsys_ai(program, *sides), nsys_ai(program, *reversed(sides))],
        "one_number": one_number(folder, comparison),
    }


def table(cases: Sequence[Case]) -> str:
    """One Markdown row per case."""
    lines = ["| case | perfci | nsys stats: backward, ms | nsys-ai diff | nsys-ai, sides swapped | 7 % on one number |"]
    lines.append("| --- |" + " --- |" * 5)
    for case in cases:
        left, right = (side["phases"].get("backward") for side in case["nsys_stats"])
        stats = "–" if not left or right is None else f"{left / 1e6:.3f} → {right / 1e6:.3f} ({right / left - 1:+.1%})"
        number = case["one_number"]
        change = "" if number["change_ratio"] is None else f" ({number['change_ratio']:+.1%}, {number['source']})"
        cells = [case["case"], case["perfci"] or "–", stats, *map(_gate, case["nsys_ai"]), number["says"] + change]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _gate(answer: Case) -> str:
    change = "" if answer["step_pct"] is None else f" {answer['step_pct']:+.1f} %"
    return f"{answer['verdict'] or 'no answer'}{change}, exit {answer['exit_code']}"


def main() -> None:
    """Ask all rivals about all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--nsys-ai", type=Path, required=True)
    parser.add_argument("--nsys", type=Path, default=None)
    arguments = parser.parse_args()
    tool = find_nsys(arguments.nsys)
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if arguments.recordings.is_dir():
            for path in arguments.recordings.glob("*/*"):  # a copy: the tools write caches beside what they read
                (folder / path.parent.name).mkdir(exist_ok=True)
                (folder / path.parent.name / path.name).write_bytes(path.read_bytes())
        else:
            with tarfile.open(arguments.recordings, mode="r:xz") as archive:
                archive.extractall(folder, filter="data")
        whole = sorted(path.parent for path in folder.glob("*/baseline-1.sqlite"))
        whole = [path for path in whole if (path / "candidate-1.sqlite").is_file()]
        cases = [judged(path, tool.path, arguments.nsys_ai) for path in whole]
    document = {"nsys": tool.version, "threshold": THRESHOLD, "cases": cases}
    (arguments.out / "other_tools.json").write_text(json.dumps(document, indent=1) + "\n")
    (arguments.out / "other_tools.md").write_text(table(cases))
    print(table(cases))


if __name__ == "__main__":
    main()
