"""Real ``nsys stats`` as oracle, to the nanosecond, wherever its numbers are sound (docs/attribution.md)."""

import csv
import gzip
import io
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perfci.model.timeline import OperationKind
from perfci.trace.extract import extract_timeline, read_timeline
from perfci.trace.kernels import call_identity, kernel_identity

ROOT = Path(__file__).parents[2]
RECORDED = sorted((ROOT / "tests" / "traces").glob("h200_*.gz"))
REPORTS = {
    "kernels": ("cuda_gpu_kern_sum", "gpukernsum"),
    "memory": ("cuda_gpu_mem_time_sum", "gpumemtimesum"),
    "sizes": ("cuda_gpu_mem_size_sum", "gpumemsizesum"),
    "calls": ("cuda_api_sum", "cudaapisum"),
    "ranges": ("nvtx_pushpop_sum", "nvtxppsum"),
    "kernels by range": ("nvtx_kern_sum", "nvtxkernsum"),
}
"""Names of the reports since 2023 and before."""


def find_nsys() -> str | None:
    own = os.environ.get("PERFCI_NSYS") or shutil.which("nsys")
    places = [
        *ROOT.glob(".nsys/*/target-linux-x64/nsys"),
        *Path("/opt/nvidia/nsight-systems").glob("*/target-linux-x64/nsys"),
    ]
    return own or next((str(place) for place in places if place.exists()), None)


NSYS = find_nsys()
pytestmark = [
    pytest.mark.nsys,
    pytest.mark.skipif(NSYS is None, reason="nsys is not installed (scripts/install-nsys.sh)"),
]


def stats(report: str, database: Path) -> list[dict[str, str]]:
    """Rows of a report; the names of columns are cut at the first parenthesis."""
    for name in REPORTS[report]:
        command = [str(NSYS), "stats", "--report", name, "--format", "csv", "-q", str(database)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        rows = list(csv.DictReader(io.StringIO(done.stdout)))
        if done.returncode == 0 and "ERROR" not in done.stdout + done.stderr:
            return [{key.partition(" (")[0]: value for key, value in row.items() if key} for row in rows]
    raise AssertionError(f"nsys stats has no report {report}: {done.stdout}{done.stderr}")


@pytest.fixture(scope="module", params=RECORDED, ids=lambda path: path.name)
def recorded(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("nsys") / request.param.name.removesuffix(".gz")
    path.write_bytes(gzip.decompress(request.param.read_bytes()))
    return path


def sums(names, durations) -> dict[str, tuple[int, int]]:
    count, total = Counter(), Counter()
    for name, duration in zip(names, durations, strict=True):
        count[name] += 1
        total[name] += int(duration)
    return {name: (count[name], total[name]) for name in count}


def oracle(rows, name, instances) -> dict[str, tuple[int, int]]:
    count, total = Counter(), Counter()
    for row in rows:
        count[name(row)] += int(row[instances])
        total[name(row)] += int(row["Total Time"])
    return {key: (count[key], total[key]) for key in count}


def test_kernels_agree(recorded):
    table = (timeline := read_timeline([recorded])).operations
    hit = np.flatnonzero(table.kind == OperationKind.KERNEL)
    ours = sums([timeline.names[at] for at in table.name[hit]], (table.end_ns - table.start_ns)[hit])
    assert ours == oracle(stats("kernels", recorded), lambda row: kernel_identity(row["Name"]), "Instances")


def test_memory_operations_agree(recorded):
    table = read_timeline([recorded]).operations
    words = {
        OperationKind.H2D: "HtoD",
        OperationKind.D2H: "DtoH",
        OperationKind.D2D: "DtoD",
        OperationKind.MEMSET: "memset",
    }
    hit = np.isin(table.kind, [int(kind) for kind in words])
    names = [words[OperationKind(kind)] for kind in table.kind[hit]]
    ours = sums(names, (table.end_ns - table.start_ns)[hit])

    def short(row):
        return next(word for word in words.values() if word in row["Operation"].replace("Host-to-Device", "HtoD"))

    assert ours == oracle(stats("memory", recorded), short, "Count")


def test_calls_agree(recorded):
    timeline = read_timeline([recorded])
    table = timeline.api_calls
    ours = sums([timeline.names[at] for at in table.name], table.end_ns - table.start_ns)
    assert ours == oracle(stats("calls", recorded), lambda row: call_identity(row["Name"]), "Num Calls")


def test_ranges_agree(recorded):
    """Phases that have no part outside complete steps: their wall time is the sum of their ranges."""
    extraction = extract_timeline(read_timeline([recorded]))
    wanted = {row["Range"].lstrip(":"): int(row["Total Time"]) for row in stats("ranges", recorded)}
    whole = {"h2d", "forward", "backward", "optimizer", "log"}
    ours = {s.phase: sum(s.values) for s in extraction.series if s.metric == "wall_ns" and s.phase in whole}
    assert ours == {name: wanted[name] for name in whole}


def test_kernels_by_range_agree_where_the_training_thread_launches(recorded):
    """nsys charges kernels to ranges of the launching thread: right for all phases but backward."""
    extraction = extract_timeline(read_timeline([recorded]))
    ours = Counter()
    for kernel in extraction.kernels:
        ours[kernel.phase, kernel.name] += kernel.total_ns
    wanted, backward = Counter(), 0
    for row in stats("kernels by range", recorded):
        phase = row["NVTX Range"].lstrip(":")
        if phase in ("forward", "optimizer", "h2d", "log"):
            wanted[phase, kernel_identity(row["Kernel Name"])] += int(row["Total Time"])
        backward += int(row["Total Time"]) if phase == "backward" else 0
    assert sum(wanted.values()) > 0
    assert {key: time for key, time in ours.items() if key[0] not in ("backward", "background")} == dict(wanted)
    launched = sum(t for (phase, _), t in ours.items() if phase == "backward")
    assert launched > 5 * backward
