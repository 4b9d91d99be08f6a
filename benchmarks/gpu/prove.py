"""Compares planted faults and equal code on a GPU, with `perfci compare` as a user would, and keeps what it said.

    python benchmarks/gpu/prove.py OUT --minutes 9 CASE …

A CASE is WORKLOAD:FAULT[:LAUNCHES], for example `gpt:item-each-step:4`; the fault `none` compares equal code (A/A).
`gpt:calibrate:8` calibrates instead (OUT/<n>-gpt-calibrate.json) and accepts the levels as a baseline (OUT/baselines/);
`gpt:accept` accepts those of the comparisons made so far.
Cases run in the given order while time is left. With --folder the repository and its database stay for a next run.
Writes OUT/<n>-<workload>-<fault>.json (the whole comparison) and OUT/summary.json: verdict, what regressed, rules that
fired, launches and seconds of each case. With --recordings also OUT/recordings.tar.xz, the recordings of the first two
pairs of each case (recordings.py), exported after all cases: leave it a minute.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recordings import pack, put_aside
from smoke import ROOT, git, make_repository, perfci

WRAPPER = """\
import pathlib, runpy, sys
here = pathlib.Path(__file__).resolve().parent
sys.argv = [str(here.parent / "faults.py"), f"@{here.parent / 'fault.txt'}", str(here / "script.py")]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def plant(folder: Path) -> None:
    """Every workload runs through faults.py, which reads the fault's name from a file of the revision. The definitions
    of the workloads stay as they are: noise floors and baselines measured here are those of the real workloads."""
    for path in folder.glob("workloads/*/train.py"):
        path.rename(path.with_name("script.py"))
        path.write_text(WRAPPER)
    (folder / "workloads" / "fault.txt").write_text("none\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Run the workloads through the fault switch, plant nothing")


def branch_for(folder: Path, fault: str, number: int) -> str:
    """A branch whose only difference to main is the planted fault; for `none` another commit of equal code."""
    name = f"case-{number}-{fault}"
    git(folder, "switch", "--quiet", "-C", name, "main")
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


def calibrate(folder: Path, out: Path, name: str, arguments: argparse.Namespace, launches: int) -> None:
    """Noise floors from equal launches, kept in the database of ``folder``, and the baseline that they make."""
    workload = name.split("-", 1)[1].removesuffix("-calibrate")
    command = ["calibrate", "main", "-w", workload, "--preset", arguments.preset, "-n", str(launches), "-f", "json"]
    done = perfci(folder, *command)
    (out / f"{name}.log").write_text(done.stderr)
    (out / f"{name}.json").write_text(done.stdout)
    print(name, done.returncode, done.stderr[-300:], flush=True)
    accept(folder, out, workload, f"{launches} launches of equal code on a quiet machine (docs/evidence)")


def accept(folder: Path, out: Path, workload: str, reason: str) -> None:
    """The levels of main as a baseline file in OUT/baselines/."""
    done = perfci(folder, "baseline", "accept", "main", "-w", workload, "--reason", reason)
    print(done.stdout, done.stderr[-300:], flush=True)
    for path in (folder / "baselines").glob("*.yaml"):
        (out / "baselines").mkdir(exist_ok=True)
        shutil.copyfile(path, out / "baselines" / path.name)
        path.unlink()  # the comparisons of this proof are judged against their parents alone


def compare(folder: Path, out: Path, name: str, arguments: argparse.Namespace, launches: str) -> dict[str, Any] | None:
    """One comparison of main with a branch that differs in the planted fault; its summary."""
    number, case = name.split("-", 1)
    workload, fault = case.split(":")
    branch = branch_for(folder, fault, int(number))
    began = time.monotonic()
    done = perfci(
        folder, "compare", f"main..{branch}", "-w", workload, "--preset", arguments.preset, "--remeasure",
        "--max-launches", launches, "--seed", number, "--no-report", "-f", "json",
    )  # fmt: skip
    seconds = time.monotonic() - began
    name = name.replace(":", "-")
    (out / f"{name}.log").write_text(done.stderr)
    sessions = sorted((folder / ".perfci" / "launches").glob("*"))
    if arguments.recordings and sessions:
        put_aside(sessions[-1], done.stderr, folder / ".perfci" / "shelf" / name)
    if not done.stdout.startswith("{"):
        print(case, done.returncode, done.stderr[-1500:], flush=True)
        return None
    (out / f"{name}.json").write_text(done.stdout)
    summary = summary_of(case, json.loads(done.stdout), done.returncode, seconds)
    print(json.dumps(summary), flush=True)
    return summary


def run(folder: Path, out: Path, arguments: argparse.Namespace) -> None:
    """Run the cases in ``folder`` while time is left."""
    started = time.monotonic()
    if not (folder / "perfci.yaml").is_file():
        make_repository(folder)
        plant(folder)
    summaries = []
    for number, case in enumerate(arguments.cases, arguments.first):
        workload, fault, launches = [*case.split(":"), "6"][:3]
        if fault == "accept":
            accept(folder, out, workload, "launches of main in comparisons on a quiet machine (docs/evidence)")
        elif arguments.minutes * 60 - (time.monotonic() - started) < 60:
            print(f"no time left for {case}")
        elif fault == "calibrate":
            calibrate(folder, out, f"{number:02d}-{workload}-calibrate", arguments, int(launches))
        elif (summary := compare(folder, out, f"{number:02d}-{workload}:{fault}", arguments, launches)) is not None:
            summaries.append(summary)
            (out / "summary.json").write_text(json.dumps(summaries, indent=1) + "\n")
    if arguments.recordings:
        shelf = folder / ".perfci" / "shelf"
        print(pack(shelf, out, [folder, ROOT]), flush=True)
        shutil.rmtree(shelf)


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--recordings", action="store_true", help="keep recordings for other_tools.py")
    parser.add_argument("--folder", type=Path, help="where the repository is made, or is from an earlier run")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("cases", nargs="+")
    arguments = parser.parse_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (arguments.folder or Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        run(folder, out, arguments)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "benchmarks" / "gpu"))
    if sys.argv[1:2] == ["--condense"]:
        condense(Path(sys.argv[2]))
    else:
        main()
