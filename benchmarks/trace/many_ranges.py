"""Ten million NVTX ranges in one export: how the time and the memory of extraction grow with them.

    python benchmarks/trace/many_ranges.py [--ranges 1000000 10000000]

Three kinds: operators with names of their own (what `--pytorch=autograd-shapes-nvtx` writes), few names one after the
other, and ranges that are all open at once and cross each other. Each export is read in a process of its own. Printed
are processor seconds and the greatest resident memory; the numbers in docs/decisions/0011 come from here.
"""

import argparse
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from generate_export import CALL_NAMES, MAIN, PROCESS, TABLES

STEPS, PUSH_POP, START_END, LAUNCHES = 20, 59, 60, 2000
SPACING_NS = 500


def operators(start_ns: int, _end_ns: int, at: int) -> tuple[int, int, int, str]:
    begin = start_ns + SPACING_NS * at
    return begin, begin + 400, PUSH_POP, f"aten::linear, seq = {at}, op_id = {begin}"


def few_names(start_ns: int, _end_ns: int, at: int) -> tuple[int, int, int, str]:
    begin = start_ns + SPACING_NS * at
    return begin, begin + 400, PUSH_POP, f"block {at % 40}"


def all_open(start_ns: int, end_ns: int, at: int) -> tuple[int, int, int, str]:
    return start_ns + at, end_ns - at % 7, START_END, f"request {at % 40}"


SHAPES: dict[str, Callable[[int, int, int], tuple[int, int, int, str]]] = {
    "operators": operators,
    "few names": few_names,
    "all open": all_open,
}


def rows(shape: str, count: int) -> Iterator[tuple[int, int, int, str]]:
    each = count // STEPS
    length = SPACING_NS * each + 10_000
    for step in range(STEPS):
        begin, end = step * length, (step + 1) * length
        yield begin, end, PUSH_POP, "step"
        yield begin + 100, end - 100, PUSH_POP, "forward"
        for at in range(each):
            yield SHAPES[shape](begin + 1000, end - 1000, at)


def write(path: Path, shape: str, count: int) -> None:
    length = STEPS * (SPACING_NS * (count // STEPS) + 10_000) // LAUNCHES
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + TABLES)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [*enumerate(CALL_NAMES, 1), (100, "gemm")])
        database.executemany(
            "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid, domainId) "
            f"VALUES (?, ?, ?, ?, {MAIN}, 0)",
            rows(shape, count),
        )
        launches = [(at * length + 2000, at * length + 2010, at) for at in range(LAUNCHES)]
        database.executemany(
            f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, {MAIN}, ?, 1, 0, NULL)", launches
        )
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, correlationId, globalPid, deviceId, contextId, "
            "streamId, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, blockX, blockY, blockZ, "
            "staticSharedMemory, dynamicSharedMemory, localMemoryPerThread, localMemoryTotal, gridId) "
            f"VALUES (?, ?, ?, {PROCESS}, 0, 1, 7, 100, 100, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0)",
            launches,
        )
        database.commit()


def read_here(path: Path) -> None:
    from perfci.trace.extract import extract  # noqa: PLC0415  (its cost is not that of this process)

    started = time.process_time()
    extraction = extract([path])
    spent = time.process_time() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    launched = sum(sum(s.values) for s in extraction.series if (s.phase, s.metric) == ("step", "kernel_count"))
    assert launched == LAUNCHES
    print(f"{spent:6.1f} s of processor time, {memory:5} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure extraction of exports full of ranges.")
    parser.add_argument("--ranges", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--only", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        read_here(arguments.only)
        return
    for shape in SHAPES:
        for count in arguments.ranges:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "export.sqlite"
                write(path, shape, count)
                done = subprocess.run(
                    [sys.executable, __file__, "--only", path], capture_output=True, text=True, check=True
                )
                print(f"{shape:10} {count:>12,} ranges, {path.stat().st_size >> 20:4} MiB: {done.stdout.strip()}")


if __name__ == "__main__":
    main()
