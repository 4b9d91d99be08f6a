"""Writes traces as Kineto does: the same fields, the same order, the same lack of escaping
(libkineto/src/output_json.cpp and CuptiActivity.cpp in https://github.com/pytorch/kineto)."""

# ruff: noqa: PLR0917  (the arguments of an event are its columns)

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

BASE_NS = 1790857026000000000
HEAD = {"schemaVersion": 1, "perfci_torch_version": "2.13.0+cu128", "displayTimeUnit": "ms"}
GPU = {"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150110011392, "computeMajor": 9, "computeMinor": 0}
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device"}
MAIN, AUTOGRAD = 7, 107


def micro(ns: int) -> str:
    """Microseconds with three digits, as Kineto prints them."""
    return f"{ns // 1000}.{ns % 1000:03}"


@dataclass
class KinetoTrace:
    """Events of one process. Times are nanoseconds after BASE_NS."""

    pid: int = 7
    facts: dict[str, object] = field(default_factory=lambda: dict(HEAD) | {"baseTimeNanoseconds": BASE_NS})
    devices: tuple[dict[str, object], ...] = (GPU,)
    events: list[str] = field(default_factory=list)
    _correlation: int = 100

    def event(self, cat: str, name: str, pid: object, tid: object, start: int, end: int, **args: object) -> None:
        values = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in args.items())
        where = f'"cat": "{cat}", "name": "{name}", "pid": {json.dumps(pid)}, "tid": {json.dumps(tid)}'
        times = f'"ts": {micro(start)}, "dur": {micro(end - start)}'
        self.events.append(f'{{\n    "ph": "X", {where},\n    {times},\n    "args": {{\n      {values}\n    }}\n  }}')

    def name_thread(self, tid: int, name: str) -> None:
        self.events.append(
            json.dumps({"name": "thread_name", "ph": "M", "ts": 1.5, "pid": self.pid, "tid": tid}
                       | {"args": {"name": f"thread {tid} ({name})"}})
        )  # fmt: skip

    def mark(self, name: str, start: int, end: int, tid: int = MAIN, *, prefix: str = "perfci:") -> None:
        self.event("user_annotation", prefix + name, self.pid, tid, start, end, **{"External id": 1})

    def operator(self, name: str, start: int, end: int, tid: int = MAIN) -> None:
        self.event("cpu_op", name, self.pid, tid, start, end, **{"External id": 2, "Ev Idx": 3})

    def call(self, name: str, start: int, end: int, tid: int = MAIN, *, correlation: int | None = None) -> int:
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        cat = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
        self.event(cat, name, self.pid, tid, start, end, cbid=211, correlation=correlation)
        return correlation

    def kernel(self, name: str, start: int, end: int, correlation: int, *, device: int = 0, stream: int = 7) -> None:
        where = {"device": device, "context": 1, "stream": stream, "correlation": correlation}
        self.event("kernel", name, device, stream, start, end, queued=0, **where, grid=[1, 1, 1], block=[32, 1, 1])

    def copy(self, kind: int, src: int, dst: int, start: int, end: int, correlation: int, size: int, stream=7) -> None:
        name = f"Memcpy {COPIES[kind]} ({MEMORY[src]} -> {MEMORY[dst]})"
        where = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, "bytes": size}
        self.event("gpu_memcpy", name, 0, stream, start, end, **where)

    def memset(self, start: int, end: int, correlation: int, size: int, stream: int = 7) -> None:
        where = {"device": 0, "context": 1, "stream": stream, "correlation": correlation, "bytes": size}
        self.event("gpu_memset", "Memset (Device)", 0, stream, start, end, **where)

    def launch(self, name: str, at: int, start: int, end: int, tid: int = MAIN, **kernel: int) -> None:
        self.kernel(name, start, end, self.call("cudaLaunchKernel", at, at + 1, tid), **kernel)

    def text(self) -> str:
        facts = [f"    {json.dumps(key)}: {json.dumps(value)},\n" for key, value in self.facts.items()]
        events = ",\n  ".join(self.events)
        return (
            f'{{\n    "deviceProperties": {json.dumps(self.devices)},\n{"".join(facts)}'
            f'    "traceEvents": [\n  {events}\n  ],\n    "traceName": "trace.json"\n}}'
        )

    def write(self, path: Path) -> Path:
        path.write_text(self.text(), encoding="utf-8")
        return path


def training(
    steps: int = 3, *, base: int = 1000, named: bool = True, backward: bool = False, pid: int = 7
) -> KinetoTrace:
    """The same run as ``nsys_builder.training``. ``named``: threads have names; ``backward``: the autograd thread is
    known by its operators."""
    trace = KinetoTrace(pid=pid)
    if named:
        trace.name_thread(MAIN, "python3")
        trace.name_thread(AUTOGRAD, "pt_autograd_0")
    for step in range(steps):
        t = base + 1000 * step
        trace.mark("step", t, t + 1000)
        trace.mark("data", t + 10, t + 100)
        trace.mark("h2d", t + 100, t + 150)
        trace.copy(1, 1, 2, t + 120, t + 160, trace.call("cudaMemcpyAsync", t + 110, t + 115), 64)
        trace.mark("forward", t + 200, t + 400)
        trace.launch("gemm", t + 210, t + 220, t + 300)
        trace.launch("relu", t + 230, t + 300, t + 320)
        trace.mark("backward", t + 400, t + 600)
        if backward:
            trace.operator("autograd::engine::evaluate_function: MmBackward0", t + 405, t + 440, AUTOGRAD)
        trace.launch("gemm", t + 410, t + 420, t + 520, AUTOGRAD)
        trace.launch("relu_backward", t + 430, t + 520, t + 560, AUTOGRAD)
        trace.mark("optimizer", t + 600, t + 900)
        trace.launch("adam", t + 610, t + 620, t + 700)
        trace.call("cudaStreamSynchronize", t + 640, t + 700)
    return trace


def from_nsys(export: Path) -> KinetoTrace:
    """What Kineto would have written of the run that an export of nsys holds (one process, no graphs as a whole)."""
    with closing(sqlite3.connect(export)) as database:
        database.row_factory = sqlite3.Row

        def rows(table: str) -> list[sqlite3.Row]:
            known = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone()
            return database.execute(f'SELECT * FROM "{table}"').fetchall() if known else []

        text = {row["id"]: row["value"] for row in rows("StringIds")}
        started = rows("TARGET_INFO_SESSION_START_TIME")[0]["utcEpochNs"]
        marks = [row for row in rows("NVTX_EVENTS") if row["eventType"] in (59, 60) and (row["domainId"] or 0) == 0]
        trace = KinetoTrace(pid=(marks[0]["globalTid"] >> 24) & 0xFFFFFF)
        trace.facts["baseTimeNanoseconds"] = started
        for row in rows("ThreadNames"):
            trace.name_thread(row["globalTid"] & 0xFFFFFF, text[row["nameId"]])
        for row in marks:
            name = row["text"] if row["text"] is not None else text[row["textId"]]
            trace.mark(name, row["start"], row["end"], row["globalTid"] & 0xFFFFFF)
        for row in rows("CUPTI_ACTIVITY_KIND_RUNTIME"):
            tid = row["globalTid"] & 0xFFFFFF
            trace.call(text[row["nameId"]], row["start"], row["end"], tid, correlation=row["correlationId"])
        for row in rows("CUPTI_ACTIVITY_KIND_KERNEL"):
            where = {"device": row["deviceId"], "stream": row["streamId"]}
            trace.kernel(text[row["demangledName"]], row["start"], row["end"], row["correlationId"], **where)
        for row in rows("CUPTI_ACTIVITY_KIND_MEMCPY"):
            kinds = (row["copyKind"], row["srcKind"], row["dstKind"])
            trace.copy(*kinds, row["start"], row["end"], row["correlationId"], row["bytes"], row["streamId"])
        for row in rows("CUPTI_ACTIVITY_KIND_MEMSET"):
            trace.memset(row["start"], row["end"], row["correlationId"], row["bytes"], row["streamId"])
    return trace
