"""Asks whether GPU busy time agrees with CUDA events and with torch.profiler, phase by phase.

    python benchmarks/gpu/agree.py OUT [--preset gpu] [WORKLOAD …]

Two launches per workload: under nsys, with CUDA events at both ends of each range (phase_events.py), and under
torch.profiler. Both capture the same steps (no extra warm-up). Writes OUT/agree.json and OUT/agree.md.

The span between two events holds the idle time of the stream too, so it is an upper bound of busy time. How much of it
is idle is read from perfci's own trace as gpu_idle_ns of the ranges (the CPU's view of them: exact for the whole step,
rough for a phase whose work runs after its range has closed); a ratio is to be judged where that share is small.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from smoke import ROOT, git, make_repository, perfci

WORKLOADS = ("gpt", "resnet", "bert-finetune")
DROPPED = "perfci_dropped"
COLUMNS = ("busy_ns", "events_ns", "idle_share", "kernel_ns", "torch_kernel_ns", "events_ratio", "torch_ratio")
Row = dict[str, float | str | None]


def per_step(spans: Sequence[tuple[str, int]]) -> dict[str, list[int]]:
    """Nanoseconds per step of each phase, and of the step itself, from spans in the order in which they closed.

    A phase that came several times in a step is summed; what lies outside of steps, or in a dropped one, is left out.
    """
    steps: list[dict[str, int]] = []
    current: dict[str, int] = {}
    for name, elapsed_ns in spans:
        current[name] = current.get(name, 0) + elapsed_ns
        if name == "step":
            if DROPPED not in current:
                steps.append(current)
            current = {}
    names = dict.fromkeys(name for step in steps for name in step)
    return {name: [step.get(name, 0) for step in steps] for name in names}


def rows_of(nsys: Mapping[str, Any], torch: Mapping[str, Any], spans: Sequence[tuple[str, int]]) -> list[Row]:
    """One row per phase that has GPU work or events, medians over the steps. ``nsys`` and ``torch`` are the phases of
    two `perfci run -f json` documents. None: not measured, or nothing to divide by."""
    events = per_step(spans)
    rows: list[Row] = []
    for phase in ["step", *(name for name in nsys if name in events and name != "step")]:
        busy, kernel, idle = (_median(nsys, phase, metric) for metric in ("gpu_busy_ns", "kernel_ns", "gpu_idle_ns"))
        span = statistics.median(events[phase]) if phase in events else None
        other = _median(torch, phase, "kernel_ns")
        share = None if idle is None or busy is None or not idle + busy else idle / (idle + busy)
        rows.append(
            {"phase": phase, "busy_ns": busy, "events_ns": span, "idle_share": share, "kernel_ns": kernel}
            | {"torch_kernel_ns": other, "events_ratio": _ratio(span, busy), "torch_ratio": _ratio(other, kernel)}
        )
    return rows


def _median(phases: Mapping[str, Any], phase: str, metric: str) -> float | None:
    found = phases.get(phase, {}).get("metrics", {}).get(metric)
    return statistics.median(found["per_step"]) if found and found["per_step"] else None


def _ratio(value: float | None, reference: float | None) -> float | None:
    return value / reference if value is not None and reference else None


def table(workloads: Mapping[str, Sequence[Row]]) -> str:
    """Markdown: times in ms, shares and ratios in percent."""
    head = ["workload", "phase", "GPU busy, nsys, ms", "CUDA events, ms", "idle", "kernels, nsys, ms"]
    head += ["kernels, torch.profiler, ms", "events ÷ busy − 1", "torch ÷ nsys kernels − 1"]
    lines = [f"| {' | '.join(head)} |", "| --- | --- |" + " ---: |" * len(COLUMNS)]
    for workload, rows in workloads.items():
        for row in rows:
            cells = [workload, str(row["phase"]), *(_cell(name, row[name]) for name in COLUMNS)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(column: str, value: float | str | None) -> str:
    if value is None:
        return "–"
    number = float(value)
    if column.endswith("_ns"):
        return f"{number / 1e6:.3f}"
    return f"{number:.1%}" if column == "idle_share" else f"{number - 1:+.2%}"


def plant(folder: Path, preset: str) -> None:
    """On the branch `events` the workloads run through phase_events.py; everywhere the warm-up has a fixed length."""
    for path in folder.glob("workloads/*/workload.yaml"):
        document = yaml.safe_load(path.read_text())
        chosen = document.get("presets", {}).get(preset)
        if chosen is not None:
            chosen.setdefault("env", {})["PERFCI_WARMUP_CAP"] = chosen["warmup_steps"] = 30
            path.write_text(yaml.safe_dump(document, sort_keys=False))
    git(folder, "commit", "--quiet", "-am", "Fix the length of the warm-up")
    git(folder, "switch", "--quiet", "-c", "events")
    shutil.copy(ROOT / "benchmarks/gpu/phase_events.py", folder / "workloads")
    for path in folder.glob("workloads/*/workload.yaml"):
        document = yaml.safe_load(path.read_text())
        for holder in (document, *document.get("presets", {}).values()):
            if "command" in holder:
                holder["command"].insert(holder["command"].index("train.py"), "../phase_events.py")
        path.write_text(yaml.safe_dump(document, sort_keys=False))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "Time phases with CUDA events")
    git(folder, "switch", "--quiet", "-c", "torch", "main")
    config = folder / "perfci.yaml"
    config.write_text(config.read_text().replace("collector: nsys", "collector: torch"))
    git(folder, "commit", "--quiet", "-am", "Measure with torch.profiler")


def phases_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Phases of the one run of a `perfci run -f json`; RuntimeError with its log when there is none."""
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"perfci run: exit code {done.returncode}\n{done.stderr[-1500:]}")
    phases: dict[str, Any] = json.loads(done.stdout)["runs"][0]["phases"]
    return phases


def main() -> int:
    """Launch, compare, write; 1 when a workload could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("workloads", nargs="*")
    arguments = parser.parse_intermixed_args()
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Row]] = {}
    clocks: dict[str, str] = {}
    names = arguments.workloads or WORKLOADS
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_repository(folder)
        plant(folder, arguments.preset)
        for name in names:
            sides: dict[str, dict[str, Any]] = {}
            try:
                for branch in ("events", "torch"):
                    git(folder, "switch", "--quiet", branch)
                    sides[branch] = phases_of(
                        perfci(folder, "run", "-w", name, "--preset", arguments.preset, "-f", "json")
                    )
                timed = json.loads(max((folder / ".perfci/launches").glob("*/*/events.json")).read_text())
            except (RuntimeError, ValueError) as error:
                print(f"{name}: {error}", flush=True)
                continue
            found[name], clocks[name] = rows_of(sides["events"], sides["torch"], timed["spans"]), timed["clock"]
            (out / "agree.json").write_text(json.dumps({"clocks": clocks, "rows": found}, indent=1) + "\n")
            (out / "agree.md").write_text(table(found))
            print(table({name: found[name]}), flush=True)
    return 0 if len(found) == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
