"""Record the same tiny training with both collectors on a GPU machine, and compare what they counted.

    python benchmarks/trace/record_kineto_fixture.py OUT_FOLDER [--steps 4] [--workload workloads/tiny]

Needs nsys, a CUDA build of torch and a GPU. Leaves in OUT_FOLDER a pair of fixtures, ``pair_nsys.sqlite.gz`` and
``pair_torch.json.gz`` (without host name, paths and the events that perfci does not read), and prints a table. Exit
code 1 when a count differs that must not. Read the export with scripts/scrub_trace.py before it is committed.
"""

import argparse
import gzip
import json
import shutil
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from perfci.capture.launch import launch
from perfci.capture.nsys import find_nsys
from perfci.model.metrics import METRICS, Kind
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec
from perfci.model.trace import Extraction
from perfci.trace.extract import extract

ROOT = Path(__file__).parents[2]
NOT_THE_SAME = {"api_call_count": "Kineto leaves out frequent calls, nsys adds driver calls that libraries make"}
"""Exact metrics that need not agree, and why (docs/collectors.md)."""
READ = ("user_annotation", "cuda_runtime", "cuda_driver", "kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of one phase under both collectors, per step; None: not measured. ``must_agree``: a count that is the
    same whoever counts."""

    phase: str
    metric: str
    nsys: Fraction | None
    torch: Fraction | None
    must_agree: bool

    @property
    def wrong(self) -> bool:
        """True when the collectors contradict each other."""
        return self.must_agree and self.nsys != self.torch


def compare_collectors(nsys: Extraction, torch: Extraction) -> list[Row]:
    """All series of two extractions of the same program side by side: exact counts first, then times (which only show
    the size of the collectors' own influence). In both, times are medians and counts are means over the steps."""
    sides = [_samples(extraction) for extraction in (nsys, torch)]
    rows = [
        Row(
            phase=phase,
            metric=metric,
            nsys=sides[0].get((phase, metric)),
            torch=sides[1].get((phase, metric)),
            must_agree=METRICS[metric].kind is Kind.EXACT and metric not in NOT_THE_SAME,
        )
        for phase, metric in dict.fromkeys((*sides[0], *sides[1]))
    ]
    return sorted(rows, key=lambda row: (METRICS[row.metric].kind is not Kind.EXACT, not row.wrong))


def _samples(extraction: Extraction) -> dict[tuple[str, str], Fraction]:
    found = {}
    for series in extraction.series:
        values = sorted(Fraction(value) for value in series.values)
        exact = METRICS[series.metric].kind is Kind.EXACT
        sample = sum(values, Fraction(0)) / len(values) if exact else values[len(values) // 2]
        found[series.phase, series.metric] = sample
    return found


def table(rows: Iterable[Row]) -> str:
    """Rows in which anything was counted or measured."""
    lines = [f"{'phase':12}{'metric':24}{'nsys':>16}{'torch':>16}  "]
    for row in rows:
        if row.nsys or row.torch or row.wrong:
            cells = ("absent" if value is None else f"{float(value):.6g}" for value in (row.nsys, row.torch))
            verdict = (
                "DIFFERS" if row.wrong else ("equal" if row.nsys == row.torch else NOT_THE_SAME.get(row.metric, ""))
            )
            lines.append(f"{row.phase:12}{row.metric:24}{next(cells):>16}{next(cells):>16}  {verdict}".rstrip())
    return "\n".join(lines)


def slim(trace: Path, out: Path) -> None:
    """The trace without host name, path and events that perfci does not read; what is kept is as Kineto wrote it, but
    for white space."""
    document = json.loads(trace.read_text(encoding="utf-8"), parse_float=_verbatim)
    document.pop("host_name", None)
    document["traceName"] = "trace.json"
    document["traceEvents"] = [event for event in document["traceEvents"] if _is_read(event)]
    text = json.dumps(document, separators=(",", ":"))
    text = text.replace('"\\u0000', "").replace('\\u0000"', "")
    out.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def _verbatim(number: str) -> str:
    """Keeps the digits of a number: marked text here, its quotes taken off again when it is written."""
    return f"\x00{number}\x00"


def _is_read(event: dict[str, object]) -> bool:
    backward = event.get("cat") == "cpu_op" and str(event["name"]).startswith("autograd::engine::evaluate_function")
    return event.get("ph") == "M" or event.get("cat") in READ or backward


def record(collector: Collector, *, workload: str, steps: int, folder: Path) -> tuple[Path, Extraction]:
    """Launch once; the trace file and what it says."""
    settings = MeasureSettings(warmup_steps=10, wall_steps=0, capture_steps=steps, collector=collector)
    launched = launch(
        WorkloadSpec(name=Path(workload).name, command=("python", "train.py"), directory=workload),
        settings,
        checkout=ROOT,
        out_dir=folder / collector.value,
        tool=find_nsys() if collector is Collector.NSYS else None,
        has_cuda=True,
    )
    return launched.trace_paths[0], extract(launched.trace_paths)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--steps", type=int, default=4)
    options.add_argument("--workload", default="workloads/tiny")
    chosen = options.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        of_nsys, of_torch = (
            record(collector, workload=chosen.workload, steps=chosen.steps, folder=Path(name))
            for collector in (Collector.NSYS, Collector.TORCH)
        )
        with of_nsys[0].open("rb") as source, gzip.open(chosen.out / "pair_nsys.sqlite.gz", "wb", 9) as target:
            shutil.copyfileobj(source, target)
        slim(of_torch[0], chosen.out / "pair_torch.json.gz")
    rows = compare_collectors(of_nsys[1], of_torch[1])
    print(table(rows))
    for extraction in (of_nsys[1], of_torch[1]):
        print(extraction.trace, *(note.text for note in extraction.notes), sep="\n  ")
    slimmed = extract([chosen.out / "pair_torch.json.gz"])
    assert slimmed.series == of_torch[1].series, "the fixture lost something"
    return int(any(row.wrong for row in rows))


if __name__ == "__main__":
    sys.exit(main())
