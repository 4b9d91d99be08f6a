"""The slow and obvious reading of an export: plain SQL, plain loops, nothing shared with perfci.trace.

Written from docs/attribution.md and docs/metrics.md. Names of calls and kernels are not looked at beyond what the
definitions need."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

DEFAULT_PROCESS_MASK = ~0xFFFFFF
COPY = {1: "h2d", 3: "h2d", 2: "d2h", 4: "d2h", 5: "d2d", 6: "d2d", 7: "d2d", 8: "d2d", 10: "d2d"}


def rows_of(database, table):
    names = [name for (name,) in database.execute("SELECT name FROM sqlite_master")]
    if table not in names:
        return []
    cursor = database.execute(f'SELECT * FROM "{table}"')
    columns = [column[0] for column in cursor.description]
    return [dict(zip(columns, row, strict=True)) for row in cursor]


def length(intervals):
    """Length of a union of intervals."""
    total, reached = 0, None
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


def merged(intervals):
    out = []
    for start, end in sorted(i for i in intervals if i[1] > i[0]):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def without(intervals, others):
    """Length of the union of intervals outside the union of others: all - (all ∩ others) by pairs."""
    total = 0
    near = merged(intervals)
    if near:
        others = merged(i for i in others if i[1] > near[0][0] and i[0] < near[-1][1])
    for start, end in near:
        total += end - start
        total -= sum(max(0, min(end, high) - max(start, low)) for low, high in others)
    return total


def innermost(ranges, time):
    """The open range that started last, of these the one that ends first, of these the last."""
    found = None
    for candidate in ranges:
        if candidate["start"] <= time < candidate["end"] and (
            found is None
            or candidate["start"] > found["start"]
            or (candidate["start"] == found["start"] and candidate["end"] <= found["end"])
        ):
            found = candidate
    return found


class Reference:
    """Series of one export: ``series[rank][phase, metric]`` is a list with a value per complete step."""

    def __init__(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            self.strings = {row["id"]: row["value"] for row in rows_of(database, "StringIds")}
            self.marks = self._marks(database)
            self.calls = rows_of(database, "CUPTI_ACTIVITY_KIND_RUNTIME")
            self.overheads = rows_of(database, "PROFILER_OVERHEAD")
            self.threads = {row["globalTid"]: self.strings[row["nameId"]] for row in rows_of(database, "ThreadNames")}
            self.operations = self._operations(database)
        for call in self.calls:
            call["name"] = re.sub(r"(_v\d+)?(_pt[sd][sz])?$", "", self.strings[call["nameId"]])
        self.traced = bool(self.calls or self.operations)
        self.series = []
        for process in sorted({m["thread"] & DEFAULT_PROCESS_MASK for m in self.marks if m["name"] == "step"}):
            self.series.append(self._rank(process))

    def _marks(self, database):
        found = []
        for row in rows_of(database, "NVTX_EVENTS"):
            if row["eventType"] in (59, 60) and row["domainId"] in (0, None):
                name = row["text"] if row["text"] is not None else self.strings[row["textId"]]
                found.append({"name": name, "start": row["start"], "end": row["end"], "thread": row["globalTid"]})
        return found

    def _operations(self, database):
        found = []
        for table, kind in (("KERNEL", "kernel"), ("MEMCPY", "copy"), ("MEMSET", "memset"), ("GRAPH_TRACE", "graph")):
            for row in rows_of(database, f"CUPTI_ACTIVITY_KIND_{table}"):
                row["kind"] = COPY.get(row["copyKind"], "other") if kind == "copy" else kind
                row["bytes"] = row.get("bytes") or 0
                row["nccl"] = kind == "kernel" and self.strings[row["demangledName"]].startswith("nccl")
                row["pageable"] = (row["kind"] == "h2d" and row["srcKind"] == 0) or (
                    row["kind"] == "d2h" and row["dstKind"] == 0
                )
                row["process"] = row["globalPid"]
                found.append(row)
        return found

    def _rank(self, process):
        marks = [m for m in self.marks if m["thread"] & DEFAULT_PROCESS_MASK == process]
        counts = {}
        for mark in marks:
            if mark["name"] == "step":
                counts[mark["thread"]] = counts.get(mark["thread"], 0) + 1
        main = min(counts, key=lambda thread: (-counts[thread], thread))
        steps = []
        for mark in sorted(marks, key=lambda m: (m["start"], -(m["end"] or 0))):
            step = mark["thread"] == main and mark["name"] == "step" and mark["end"] is not None
            if step and (not steps or mark["end"] > steps[-1]["end"]):
                steps.append(mark)
        phases = {}
        for mark in marks:
            end = mark["end"]
            if end is None:
                inside = innermost(steps, mark["start"])
                end = inside["end"] if inside else mark["start"]
            encloses = any(
                mark["start"] <= s["start"] and s["end"] <= end and (mark["start"], end) != (s["start"], s["end"])
                for s in steps
            )
            if mark["name"] != "step" and not encloses:
                phases.setdefault(mark["thread"], []).append({**mark, "end": end})
        named = any(thread & DEFAULT_PROCESS_MASK == process for thread in self.threads)

        def phase_of(call):
            thread, time = call["globalTid"], call["start"]
            own = innermost(phases.get(thread, []), time)
            if thread != main and own:
                return own["name"]
            if thread == main or not named or re.fullmatch(r"pt_autograd_\d+", self.threads.get(thread, "")):
                training = innermost(phases.get(main, []), time)
                return training["name"] if training else "unmarked"
            return "background"

        calls = [c for c in self.calls if c["globalTid"] & DEFAULT_PROCESS_MASK == process]
        by_correlation = {}
        for call in calls:
            call["phase"] = phase_of(call)
            call["step"] = self._step_at(steps, call["start"])
            by_correlation[call["correlationId"]] = call
        operations = [o for o in self.operations if o["process"] == process]
        for operation in operations:
            call = by_correlation.get(operation["correlationId"])
            operation["phase"] = call["phase"] if call else "background"
            operation["step"] = self._step_at(steps, call["start"] if call else operation["start"])
            operation["call"] = call
        self._classify_waits(calls, operations)
        complete = self._complete(steps, phases.get(main, []), operations, main)
        return self._measure(steps, complete, phases.get(main, []), calls, operations)

    @staticmethod
    def _step_at(steps, time):
        step = innermost(steps, time)
        return steps.index(step) if step else None

    def _complete(self, steps, ranges, operations, main):
        """Indexes of complete steps."""
        seen = [{r["name"] for r in ranges if max(r["start"], s["start"]) < min(r["end"], s["end"])} for s in steps]
        busy = [sum(o["step"] == at for o in operations) for at in range(len(steps))]
        keep = list(range(len(steps)))
        for edge in {0, len(steps) - 1}:
            others = range(1, len(steps) - 1) or [at for at in range(len(steps)) if at != edge]
            stopped = any(
                "cudaProfilerSt" in self.strings[o["nameId"]]
                and o["globalTid"] == main
                and self._step_at(steps, o["start"]) == edge
                for o in self.overheads
            )
            lacks = others and set.intersection(*(seen[at] for at in others)) - seen[edge]
            idle = others and self.traced and busy[edge] == 0 and all(busy[at] for at in others)
            if stopped or lacks or idle:
                keep.remove(edge)
        return keep

    @staticmethod
    def _classify_waits(calls, operations):
        kinds = {
            "DeviceSynchronize": "device",
            "CtxSynchronize": "device",
            "StreamSynchronize": "stream",
            "EventSynchronize": "event",
        }
        for call in calls:
            bare = re.sub(r"^cu(da)?", "", call["name"])
            call["wait"] = kinds.get(bare)
            if bare.startswith("Memcpy") and "Async" not in bare:
                call["wait"] = "copy"
        for operation in operations:
            if operation["kind"] == "d2h" and operation["pageable"] and operation["call"]:
                operation["call"]["wait"] = operation["call"]["wait"] or "copy"
        waiting = [c for c in calls if c["wait"]]
        for at, call in enumerate(waiting):
            for other_at, other in enumerate(waiting):
                holds = other["start"] <= call["start"] and call["end"] <= other["end"]
                same = (other["start"], other["end"]) == (call["start"], call["end"])
                if other["globalTid"] == call["globalTid"] and holds and (not same or other_at < at):
                    call["nested"] = True
        for call in waiting:
            if call.get("nested"):
                call["wait"] = None

    def _measure(self, steps, complete, ranges, calls, operations):
        names = list(dict.fromkeys(["step", "background", "unmarked", *(r["name"] for r in ranges)]))
        names += [o["phase"] for o in calls + operations if o["phase"] not in names]
        out = {}
        compute = [(o["start"], o["end"]) for o in operations if o["kind"] in ("kernel", "graph") and not o["nccl"]]
        everything = [(o["start"], o["end"]) for o in operations]
        gaps = self._gaps(operations)
        for phase in dict.fromkeys(names):
            for at in complete:
                low, high = steps[at]["start"], steps[at]["end"]
                inside = [
                    (max(r["start"], low), min(r["end"], high), r["name"])
                    for r in ranges
                    if min(r["end"], high) > max(r["start"], low)
                ]
                own = [(a, b) for a, b, name in inside if name == phase]
                if phase == "step":
                    own = [(low, high)]
                mine = [o for o in operations if o["step"] == at and phase in ("step", o["phase"])]
                asked = [c for c in calls if c["step"] == at and phase in ("step", c["phase"])]
                values = self._cell(mine, asked, compute)
                if phase == "unmarked":
                    values["wall_ns"] = without([(low, high)], [(a, b) for a, b, _ in inside])
                    everywhere = everything + [(a, b) for a, b, _ in inside]
                    values["gpu_idle_ns"] = without([(low, high)], everywhere)
                else:
                    values["wall_ns"] = length(own)
                    values["gpu_idle_ns"] = without(own, everything)
                values["launch_gap_ns"] = sum(
                    gap
                    for gap, before, after in gaps
                    if before["step"] == after["step"] == at
                    and (phase == "step" or before["phase"] == after["phase"] == phase)
                )
                for metric, value in values.items():
                    out.setdefault((phase, metric), []).append(value)
        return out

    @staticmethod
    def _gaps(operations):
        found, last = [], None
        for operation in sorted((o for o in operations if o["end"] > o["start"]), key=lambda o: o["start"]):
            if last and operation["start"] > last["end"]:
                found.append((operation["start"] - last["end"], last, operation))
            if last is None or operation["end"] >= last["end"]:
                last = operation
        return found

    @staticmethod
    def _cell(mine, asked, compute):
        def spans(test):
            return [(o["start"], o["end"]) for o in mine if test(o)]

        values = {"gpu_busy_ns": length(spans(lambda o: True))}
        tests = {
            "kernel": lambda o: o["kind"] == "kernel",
            "memset": lambda o: o["kind"] == "memset",
            "nccl": lambda o: o["nccl"],
            "h2d": lambda o: o["kind"] == "h2d",
            "d2h": lambda o: o["kind"] == "d2h",
            "d2d": lambda o: o["kind"] == "d2d",
            "h2d_pageable": lambda o: o["kind"] == "h2d" and o["pageable"],
            "d2h_pageable": lambda o: o["kind"] == "d2h" and o["pageable"],
            "pageable_copy": lambda o: o["pageable"],
        }
        for name, test in tests.items():
            values[f"{name}_count"] = len(spans(test))
            values[f"{name}_ns"] = sum(b - a for a, b in spans(test))
            values[f"{name}_bytes"] = sum(o["bytes"] for o in mine if test(o))
        copies = spans(lambda o: o["kind"] in ("h2d", "d2h", "d2d", "other"))
        values["copy_exposed_ns"] = without(copies, compute)
        values["nccl_exposed_ns"] = without(spans(tests["nccl"]), compute)
        waits = [c for c in asked if c["wait"]]
        values["sync_count"] = len(waits)
        values["sync_ns"] = sum(c["end"] - c["start"] for c in waits)
        for kind in ("device", "stream", "event", "copy"):
            values[f"{kind}_sync_count"] = sum(c["wait"] == kind for c in waits)
        values["api_call_count"] = sum(not re.search(r"(Event|Stream)Query$", c["name"]) for c in asked)
        values["alloc_count"] = sum(
            bool(re.match(r"cuda(Malloc|Free|Host)|cuMem(Alloc|Free)", c["name"])) for c in asked
        )
        values["graph_launch_count"] = sum("GraphLaunch" in c["name"] for c in asked)
        return values
