"""Builds small exports in the form of nsys' own, with any table, column or row order missing or changed."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

PUSH_POP, START_END, DOMAIN = 59, 60, 75
VERSION = "2025.3.2.0"

COLUMNS = {
    "NVTX_EVENTS": "start end eventType text globalTid textId domainId",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId returnValue",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId streamId correlationId globalPid demangledName shortName",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start end deviceId streamId correlationId globalPid bytes copyKind srcKind dstKind",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId streamId correlationId globalPid bytes",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "start end deviceId streamId correlationId globalPid graphId",
    "PROFILER_OVERHEAD": "start end globalTid nameId",
    "ThreadNames": "nameId priority globalTid",
    "PROCESSES": "globalPid pid name",
    "META_DATA_EXPORT": "name value",
    "TARGET_INFO_GPU": "id name",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs",
    "DIAGNOSTIC_EVENT": "text",
}


def process_id(pid: int) -> int:
    """globalPid of a process."""
    return (1 << 48) | (pid << 24)


@dataclass
class Export:
    """Rows of an export to be. Threads are (pid, tid) pairs; names become registered strings."""

    rows: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    strings: dict[str, int] = field(default_factory=dict)
    _correlation: int = 100

    def __post_init__(self) -> None:
        self.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=VERSION)

    def add(self, table: str, **row: object) -> None:
        self.rows.setdefault(table, []).append(row)

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    @staticmethod
    def tid(thread: tuple[int, int]) -> int:
        pid, tid = thread
        return process_id(pid) | tid

    def mark(
        self, name: str, start: int, end: int | None, thread=(7, 7), *, kind=PUSH_POP, domain=0, registered=False
    ) -> None:
        text = {"textId": self.string(name)} if registered else {"text": name}
        self.add(
            "NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=self.tid(thread), domainId=domain, **text
        )

    def call(self, name: str, start: int, end: int, thread=(7, 7), *, correlation: int | None = None) -> int:
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            eventClass=0,
            globalTid=self.tid(thread),
            correlationId=correlation,
            nameId=self.string(name),
            returnValue=0,
        )
        return correlation

    def kernel(self, name: str, start: int, end: int, correlation: int, pid=7, *, stream=7, device=0) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start,
            end=end,
            deviceId=device,
            streamId=stream,
            correlationId=correlation,
            globalPid=process_id(pid),
            demangledName=self.string(name),
            shortName=self.string(name),
        )

    def copy(self, kind: int, start: int, end: int, correlation: int, pid=7, *, size=64, pageable=False) -> None:
        host = 0 if pageable else 1
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=start,
            end=end,
            deviceId=0,
            streamId=9,
            correlationId=correlation,
            globalPid=process_id(pid),
            bytes=size,
            copyKind=kind,
            srcKind=host if kind == 1 else 2,
            dstKind=host if kind == 2 else 2,
        )

    def memset(self, start: int, end: int, correlation: int, pid=7) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMSET",
            start=start,
            end=end,
            deviceId=0,
            streamId=7,
            correlationId=correlation,
            globalPid=process_id(pid),
            bytes=4,
        )

    def graph(self, start: int, end: int, correlation: int, pid=7) -> None:
        self.add(
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
            start=start,
            end=end,
            deviceId=0,
            streamId=7,
            correlationId=correlation,
            globalPid=process_id(pid),
            graphId=1,
        )

    def launch(self, name: str, at: int, start: int, end: int, thread=(7, 7), **kernel: object) -> None:
        """A kernel launched by a call of one nanosecond."""
        correlation = self.call("cudaLaunchKernel_v7000", at, at + 1, thread)
        self.kernel(name, start, end, correlation, thread[0], **kernel)

    def name_thread(self, thread: tuple[int, int], name: str) -> None:
        self.add("ThreadNames", nameId=self.string(name), priority=20, globalTid=self.tid(thread))

    def overhead(self, name: str, start: int, end: int, thread=(7, 7)) -> None:
        self.add("PROFILER_OVERHEAD", start=start, end=end, globalTid=self.tid(thread), nameId=self.string(name))

    def write(
        self,
        path: Path,
        *,
        suffix: str = "",
        without: Sequence[str] = (),
        shuffle_seed: int | None = None,
        empty_tables: bool = False,
    ) -> Path:
        """Write the file. ``suffix`` goes on the names of event tables; ``without`` names columns (``TABLE.column``) or
        tables to leave out; ``shuffle_seed`` mixes the rows; ``empty_tables``: also tables without rows are made."""
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("PRAGMA journal_mode = OFF")
            if "StringIds" not in without:
                database.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
                database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(at, s) for s, at in self.strings.items()])
            for table, text in COLUMNS.items():
                rows = list(self.rows.get(table, ()))
                if table in without or not (rows or empty_tables):
                    continue
                columns = [c for c in text.split() if f"{table}.{c}" not in without]
                name = table + (suffix if table.startswith(("CUPTI", "NVTX")) else "")
                declared = ", ".join(
                    f'"{c}" {"TEXT" if c in ("text", "name", "value") else "INTEGER"}' for c in columns
                )
                database.execute(f'CREATE TABLE "{name}" ({declared})')
                if shuffle_seed is not None:
                    random.Random(shuffle_seed).shuffle(rows)
                database.executemany(
                    f'INSERT INTO "{name}" VALUES ({", ".join("?" * len(columns))})',
                    [[row.get(c) for c in columns] for row in rows],
                )
            database.commit()
        return path


def training(steps: int = 3, *, pid: int = 7, base: int = 1000, autograd: bool = True, named: bool = True) -> Export:
    """A plain training run: per step of 1000 ns data, h2d (a pinned copy), forward (two kernels), backward (two kernels
    of the autograd thread), optimizer (one kernel) and a stream synchronisation."""
    export = Export()
    add_training(export, steps, pid=pid, base=base, autograd=autograd)
    if named:
        export.name_thread((pid, pid), "python3")
        export.name_thread((pid, pid + 100), "pt_autograd_0")
    return export


def add_training(export: Export, steps: int, *, pid: int = 7, base: int = 1000, autograd: bool = True) -> None:
    main, helper = (pid, pid), (pid, pid + 100 if autograd else pid)
    for step in range(steps):
        t = base + 1000 * step
        export.mark("step", t, t + 1000, main)
        export.mark("data", t + 10, t + 100, main)
        export.mark("h2d", t + 100, t + 150, main)
        export.copy(1, t + 120, t + 160, export.call("cudaMemcpyAsync_v3020", t + 110, t + 115, main), pid)
        export.mark("forward", t + 200, t + 400, main)
        export.launch("gemm", t + 210, t + 220, t + 300, main)
        export.launch("relu", t + 230, t + 300, t + 320, main)
        export.mark("backward", t + 400, t + 600, main)
        export.launch("gemm", t + 410, t + 420, t + 520, helper)
        export.launch("relu_backward", t + 430, t + 520, t + 560, helper)
        export.mark("optimizer", t + 600, t + 900, main)
        export.launch("adam", t + 610, t + 620, t + 700, main)
        export.call("cudaStreamSynchronize_v3020", t + 640, t + 700, main)
