"""Write a large nsys export with the nesting and the two threads of a real training run.

    python benchmarks/trace/generate_export.py OUT.sqlite --kernels 5000000

Per step: ranges step > data, h2d, forward (with nested layer ranges), backward, optimizer. The autograd thread launches
half of the kernels. As in recorded traces a cuKernelGetName call precedes each launch and queries follow some: 2.6
calls per kernel. Table definitions are those of nsys 2025.3.
"""

import argparse
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np

KERNELS_PER_STEP = 2000
LAYERS = 12
PID = 4242
PROCESS = (1 << 48) | (PID << 24)
MAIN, AUTOGRAD = PROCESS | PID, PROCESS | (PID + 60)
STEPS_AT_ONCE = 50
BETWEEN_CALLS_NS = 2600

TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
 category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,
 uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL,
 jsonTextId INTEGER, jsonText TEXT, binaryData TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
 globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
 callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER,
 globalPid INTEGER,
 demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER,
 cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
 gridZ INTEGER NOT NULL,
 blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
 dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,
 gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
"""
KERNEL_NAMES = [
    f"void at::native::vectorized_elementwise_kernel<(int)4, Functor{at}>(int, T2, T3)" for at in range(120)
]
CALL_NAMES = [
    "cudaLaunchKernel_v7000",
    "cuKernelGetName",
    "cudaStreamIsCapturing_v10000",
    "cudaStreamSynchronize_v3020",
]
RANGES = ["step", "data", "h2d", "forward", "backward", "optimizer", *(f"layer {at}" for at in range(LAYERS))]


def step_rows(start: int, correlation: int, random: np.random.Generator) -> tuple[list, list, list, int, int]:
    """(ranges, calls, kernels, end of the step, next correlation)."""
    half = KERNELS_PER_STEP // 2
    launch_at = start + 100_000 + BETWEEN_CALLS_NS * 2 * np.arange(KERNELS_PER_STEP)
    end = int(launch_at[-1]) + 20_000
    durations = random.integers(800, 4000, KERNELS_PER_STEP)
    begin = np.maximum.accumulate(launch_at + 5000)
    finish = begin + durations
    begin[1:] = np.maximum(begin[1:], finish[:-1])
    finish = begin + durations
    thread = np.where(np.arange(KERNELS_PER_STEP) < half, MAIN, AUTOGRAD)
    ids = correlation + 3 * np.arange(KERNELS_PER_STEP)
    calls = []
    for at in range(KERNELS_PER_STEP):
        time, tid, number = int(launch_at[at]), int(thread[at]), int(ids[at])
        calls.append((time - 400, time - 200, 1, tid, number, 2, 0, None))
        calls.append((time, time + 2100, 0, tid, number + 1, 1, 0, None))
        if at % 5 < 3:
            calls.append((time + 2200, time + 2300, 0, tid, number + 2, 3, 0, None))
    name = random.integers(0, len(KERNEL_NAMES), KERNELS_PER_STEP) + 100
    kernels = [
        (
            b,
            e,
            0,
            1,
            None,
            7,
            c,
            PROCESS,
            n,
            n,
            n,
            1,
            0,
            32,
            2048,
            1,
            1,
            128,
            1,
            1,
            0,
            0,
            0,
            178_257_920,
            g,
            8192,
            None,
            0,
        )
        for b, e, c, n, g in zip(
            begin.tolist(), finish.tolist(), (ids + 1).tolist(), name.tolist(), range(correlation, end), strict=False
        )
    ]
    cut, last = int(launch_at[half]) - 500, int(launch_at[-200]) - 500
    spans = [
        ("step", start, end),
        ("data", start + 100, start + 40_000),
        ("h2d", start + 41_000, start + 90_000),
        ("forward", start + 95_000, cut - 1000),
        ("backward", cut - 900, last - 1000),
        ("optimizer", last - 900, end - 100),
    ]
    width = (cut - 2000 - (start + 96_000)) // LAYERS
    spans += [(f"layer {at}", start + 96_000 + at * width, start + 95_900 + (at + 1) * width) for at in range(LAYERS)]
    ranges = [
        (b, e, 59, None, None, None, name, MAIN, None, None, 0, *[None] * 9)
        for name, b, e in sorted(spans, key=lambda span: span[1])
    ]
    return ranges, calls, kernels, end + 3000, int(ids[-1]) + 3


def generate(path: Path, kernels: int, seed: int = 1) -> None:
    """Write the export. The number of kernels is rounded up to whole steps."""
    random = np.random.default_rng(seed)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + TABLES)
        strings = [*enumerate(CALL_NAMES, 1), *enumerate(KERNEL_NAMES, 100), (10, "python3"), (11, "pt_autograd_0")]
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", strings)
        database.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.3.2.0')")
        database.executemany("INSERT INTO ThreadNames VALUES (?, 20, ?)", [(10, MAIN), (11, AUTOGRAD)])
        for ranges, calls, rows in _batches(-(-kernels // KERNELS_PER_STEP), random):
            database.execute("BEGIN")
            for table, batch in (
                ("NVTX_EVENTS", ranges),
                ("CUPTI_ACTIVITY_KIND_RUNTIME", calls),
                ("CUPTI_ACTIVITY_KIND_KERNEL", rows),
            ):
                database.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(batch[0]))})", batch)
            database.execute("COMMIT")


def _batches(steps: int, random: np.random.Generator) -> Iterator[tuple[list, list, list]]:
    time, correlation = 1_000_000, 1
    for first in range(0, steps, STEPS_AT_ONCE):
        ranges, calls, kernels = [], [], []
        for _ in range(first, min(first + STEPS_AT_ONCE, steps)):
            more = step_rows(time, correlation, random)
            ranges += more[0]
            calls += more[1]
            kernels += more[2]
            time, correlation = more[3], more[4]
        yield ranges, calls, kernels


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a large nsys export.")
    parser.add_argument("path", type=Path)
    parser.add_argument("--kernels", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    generate(arguments.path, arguments.kernels, arguments.seed)
