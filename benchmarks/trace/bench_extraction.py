# ruff: noqa: PLC0415  (each candidate imports its own packages in its own process)
"""Extraction of a large export, side by side with the floor and with `nsys stats`, in one run.

    python benchmarks/trace/generate_export.py /tmp/large.sqlite --kernels 5000000
    python benchmarks/trace/bench_extraction.py /tmp/large.sqlite [--rounds 3] [--nsys PATH] [--engines]

The floor is SQLite itself, in C, stepping through all rows and taking the columns that perfci needs
(`SELECT sum(column), …`). Each candidate runs in a process of its own, in turns, so that a noisy neighbour meets all of
them. Printed are medians as ratios to the floor of wall time and of processor time (which neighbours disturb less), and
the greatest resident memory. `--engines` adds the other ways to
read the columns: those whose packages are not installed are left out.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

CALLS = "SELECT start, end, globalTid, nameId, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"
KERNELS = (
    "SELECT start, end, globalPid, deviceId, streamId, correlationId, demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL"
)


def floor(path: Path) -> None:
    import sqlite3

    connection = sqlite3.connect(path)
    for query in (CALLS, KERNELS):
        columns, table = query.removeprefix("SELECT ").split(" FROM ")
        # Sums of large numbers overflow integers: total() adds in floating point, at the same cost.
        connection.execute(f"SELECT {', '.join(f'total({c})' for c in columns.split(', '))} FROM {table}").fetchone()


def perfci_pages(path: Path) -> None:
    from perfci.trace.nsys_sqlite import read_nsys

    read_nsys(path)


def perfci(path: Path) -> None:
    from perfci.trace.extract import extract

    extract([path])


def sqlite3_module(path: Path) -> None:
    import sqlite3

    import numpy as np

    connection = sqlite3.connect(path)
    for query in (CALLS, KERNELS):
        cursor, blocks = connection.execute(query), []
        while rows := cursor.fetchmany(1 << 16):
            blocks.append(np.array(rows, dtype=np.int64))
        np.concatenate(blocks)


def connectorx(path: Path) -> None:
    import connectorx as cx

    for query in (CALLS, KERNELS):
        cx.read_sql(f"sqlite://{path}", query, return_type="arrow")


def polars(path: Path) -> None:
    import polars as pl

    for query in (CALLS, KERNELS):
        pl.read_database_uri(query, f"sqlite://{path}")


def adbc(path: Path) -> None:
    import adbc_driver_sqlite.dbapi as driver

    with driver.connect(str(path)) as connection, connection.cursor() as cursor:
        for query in (CALLS, KERNELS):
            cursor.execute(query)
            cursor.fetch_arrow_table()


MAIN: dict[str, Callable[[Path], None]] = {"floor": floor, "perfci reading": perfci_pages, "perfci extract": perfci}
ENGINES = {"sqlite3 module": sqlite3_module, "connectorx": connectorx, "polars": polars, "adbc": adbc}


def run_here(name: str, path: Path) -> None:
    started, started_cpu = time.perf_counter(), time.process_time()
    (MAIN | ENGINES)[name](path)
    wall, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps({"wall": wall, "cpu": cpu, "memory": memory}))


def run(name: str, path: Path, nsys: str | None, limit: float) -> dict[str, float] | None:
    if name == "nsys stats":
        command = [str(nsys), "stats", "--report", "nvtxkernsum", "--format", "csv", "-q", str(path)]
        started = time.perf_counter()
        try:
            subprocess.run(command, capture_output=True, check=False, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"wall": float("inf"), "cpu": 0.0, "memory": 0.0}
        return {"wall": time.perf_counter() - started, "cpu": 0.0, "memory": 0.0}
    done = subprocess.run(
        [sys.executable, __file__, str(path), "--only", name], capture_output=True, text=True, check=False
    )
    return json.loads(done.stdout) if done.returncode == 0 else None


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure extraction against the floor.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nsys", help="an nsys to run `nsys stats --report nvtxkernsum` with")
    parser.add_argument("--nsys-limit", type=float, default=60.0, help="seconds after which nsys is stopped")
    parser.add_argument("--engines", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        run_here(arguments.only, arguments.path)
        return
    names = [*MAIN, *(ENGINES if arguments.engines else ())]
    results: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(arguments.rounds):
        for name in names:
            result = run(name, arguments.path, None, 0)
            if result is not None:
                results[name].append(result)
    if arguments.nsys:
        stats = run("nsys stats", arguments.path, arguments.nsys, arguments.nsys_limit)
        results["nsys stats"] = [stats] if stats else []
    sys.stdout.write(f"{arguments.path.stat().st_size / 1e6:.0f} MB, {arguments.rounds} rounds in turns\n")
    sys.stdout.write(f"{'':16} {'wall':>6} {'(range)':>13} {'CPU':>6}  (medians, × floor)\n")
    base = {key: statistics.median(r[key] for r in results["floor"]) for key in ("wall", "cpu")}
    for name, found in results.items():
        if not found:
            sys.stdout.write(f"{name:16} not available\n")
            continue
        wall, cpu = (statistics.median(r[key] for r in found) for key in ("wall", "cpu"))
        ratios = sorted(r["wall"] / base["wall"] for r in found)
        spread = f"({ratios[0]:.2f}–{ratios[-1]:.2f})"
        memory = max(r["memory"] for r in found)
        ratio, work = wall / base["wall"], cpu / base["cpu"]
        sys.stdout.write(f"{name:16} {ratio:6.2f} {spread:>13} {work:6.2f}  {wall:.1f} s, {memory:.0f} MiB\n")


if __name__ == "__main__":
    main()
