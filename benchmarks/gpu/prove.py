"""Compares planted faults and equal code on a GPU, with `perfci compare` as a user would, and keeps what it said.

    python benchmarks/gpu/prove.py OUT --minutes 9 CASE …

A CASE is WORKLOAD:FAULT[:LAUNCHES], for example `gpt:item-each-step:4`; the fault `none` compares equal code (A/A).
Cases run in the given order while time is left. Writes OUT/<n>-<workload>-<fault>.json (the whole comparison) and
OUT/summary.json: verdict, what regressed, rules that fired, launches and seconds of each case. With `--recordings` also
OUT/recordings.tar.xz, the recordings of the first two pairs of each case (recordings.py), exported after all cases:
leave it a minute.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from recordings import pack, put_aside
from smoke import ROOT, git, make_repository


def plant(folder: Path) -> None:
    """Every workload runs through faults.py, which reads the fault's name from a file of the revision."""
    for path in folder.glob("workloads/*/workload.yaml"):
        document = yaml.safe_load(path.read_text())
        commands = [document, *document.get("presets", {}).values()]
        for holder in commands:
            if "command" in holder:
                at = holder["command"].index("train.py")
                holder["command"][at:at] = ["../faults.py", "@../fault.txt"]
        path.write_text(yaml.safe_dump(document, sort_keys=False))
    (folder / "workloads" / "fault.txt").write_text("none\n")
    git(folder, "commit", "--quiet", "-am", "Run the workloads through the fault switch", "--allow-empty")
    git(folder, "add", "workloads/fault.txt")
    git(folder, "commit", "--quiet", "-m", "Plant nothing")


def branch_for(folder: Path, fault: str, number: int) -> str:
    """A branch whose only difference to main is the planted fault; for `none` another commit of equal code."""
    name = f"case-{number}-{fault}"
    git(folder, "switch", "--quiet", "-c", name, "main")
    (folder / "workloads" / "fault.txt").write_text(f"{fault}\n")
    git(folder, "add", "workloads/fault.txt")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", f"Plant {fault}")
    git(folder, "switch", "--quiet", "main")
    return name


def summary_of(case: str, document: dict[str, Any], code: int, seconds: float) -> dict[str, Any]:
    """What a reader of the table needs."""
    (workload,) = document["workloads"]
    rows = workload["rows"]
    bad = [f"{row['phase']}/{row['metric']}" for row in rows if row["verdict"] == "REGRESSION"]
    undecided = [f"{row['phase']}/{row['metric']}" for row in rows if row["verdict"] == "INCONCLUSIVE"]
    wanted = {("step", "unprofiled_wall_ns"), ("step", "gpu_busy_ns"), ("step", "kernel_count"), ("step", "sync_count")}
    effects = {
        f"{row['phase']}/{row['metric']}": row["effect"] for row in rows if (row["phase"], row["metric"]) in wanted
    }
    return {
        "case": case,
        "verdict": document["verdict"],
        "exit_code": code,
        "regressed": bad,
        "inconclusive": undecided,
        "effects": effects,
        "samples": {
            f"{row['phase']}/{row['metric']}": [row["baseline"]["samples"], row["candidate"]["samples"]]
            for row in rows
            if row["verdict"] is not None and row["kind"] == "noisy"
        },
        "new_findings": [told(finding) for finding in workload["findings"] if finding["new"]],
        "worsened_findings": [told(finding) for finding in workload["findings"] if finding["worsened"]],
        "launches": [workload["baseline_launches"], workload["candidate_launches"]],
        "seconds": round(seconds, 1),
    }


def told(finding: dict[str, Any]) -> str:
    """A finding in one line, with its place in the code where one was found."""
    place = finding["location"]
    return f"{finding['rule']} in {finding['phase']}" + (f" at {place['path']}:{place['line']}" if place else "")


def condense(folder: Path) -> None:
    """Write summary.json from the comparisons that a run of this script left in ``folder``."""
    summaries = []
    for path in sorted(folder.glob("[0-9][0-9]-*.json")):
        document = json.loads(path.read_text())
        case = path.stem.split("-", 1)[1].replace(f"{document['workloads'][0]['workload']}-", "", 1)
        name = f"{document['workloads'][0]['workload']}:{case}"
        summaries.append(summary_of(name, document, document["exit_code"], float("nan")))
        del summaries[-1]["seconds"]
    (folder / "summary.json").write_text(json.dumps(summaries, indent=1) + "\n")


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--recordings", action="store_true", help="keep recordings for rivals.py")
    parser.add_argument("cases", nargs="+")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    summaries = []
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryDirectory() as kept:
        folder = Path(temporary)
        shelf = Path(kept)
        make_repository(folder)
        plant(folder)
        for number, case in enumerate(arguments.cases):
            workload, fault, *launches = case.split(":")
            left_s = arguments.minutes * 60 - (time.monotonic() - started)
            if left_s < 60:
                print(f"no time left for {case}")
                continue
            branch = branch_for(folder, fault, number)
            began = time.monotonic()
            command = ["compare", f"main..{branch}", "-w", workload, "--preset", arguments.preset, "--remeasure"]
            command += ["--max-launches", launches[0] if launches else "6", "--seed", str(number)]
            command += ["--no-report", "-f", "json"]
            done = subprocess.run(
                [sys.executable, "-m", "perfci", *command], cwd=folder, capture_output=True, text=True, check=False
            )
            seconds = time.monotonic() - began
            (out / f"{number:02d}-{workload}-{fault}.log").write_text(done.stderr)
            sessions = sorted((folder / ".perfci" / "launches").glob("*"))
            if arguments.recordings and sessions:
                put_aside(sessions[-1], done.stderr, shelf / f"{number:02d}-{workload}-{fault}")
            if done.stdout.startswith("{"):
                (out / f"{number:02d}-{workload}-{fault}.json").write_text(done.stdout)
                summaries.append(summary_of(case, json.loads(done.stdout), done.returncode, seconds))
                (out / "summary.json").write_text(json.dumps(summaries, indent=1) + "\n")
                print(json.dumps(summaries[-1]), flush=True)
            else:
                print(case, done.returncode, done.stderr[-1500:], flush=True)
        if arguments.recordings:
            print(pack(shelf, out, [folder, ROOT]), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
    if sys.argv[1:2] == ["--condense"]:
        condense(Path(sys.argv[2]))
    else:
        main()
