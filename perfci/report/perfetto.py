"""The timeline of a median step as Chrome trace event JSON, which ui.perfetto.dev and chrome://tracing open.

Format: "Trace Event Format" (Google, public document), JSON object form: complete events (``X``), metadata (``M``),
flow events (``s``, ``f``); ``ts`` and ``dur`` in microseconds. Described for users in docs/timeline.md.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from perfci.errors import UsageError
from perfci.model.timeline import Bool, Int64, OperationKind, SyncKind, Timeline
from perfci.report.names import clean

NAME_LIMIT = 200
MAX_EVENTS = 100_000
"""Slices per side; beyond it the shortest are left out. About 20 MB of JSON a side, which browsers still draw."""
NEIGHBOURS = 1
"""Steps drawn before and after the median step."""
_RANKS_PER_SIDE = 10_000
"""Process ids: side × this + rank + 1."""

Json = dict[str, Any]

_KINDS = {
    OperationKind.KERNEL: "kernel",
    OperationKind.H2D: "copy host to device",
    OperationKind.D2H: "copy device to host",
    OperationKind.D2D: "copy device to device",
    OperationKind.OTHER_COPY: "copy",
    OperationKind.MEMSET: "memset",
    OperationKind.GRAPH: "graph",
}
_WAITS = {
    SyncKind.DEVICE: "waits for the device",
    SyncKind.STREAM: "waits for a stream",
    SyncKind.EVENT: "waits for an event",
    SyncKind.COPY: "waits for a copy",
}


def timeline_json(baseline: Timeline, candidate: Timeline | None = None) -> bytes:
    """UTF-8 (ASCII) JSON of the median step and its neighbours: one process per side and rank, the median steps of
    both sides aligned at their start.

    The median step is the step index whose wall time (slowest rank) is nearest to the median, the earlier one of two.
    Only whole steps of the measured window are drawn. Events are sorted by time; equal input gives equal bytes.
    UsageError when a side has no measured step.
    """
    sides = [_Side.of(0, "baseline" if candidate is not None else "trace", baseline)]
    if candidate is not None:
        sides.append(_Side.of(1, "candidate", candidate))
    zero_ns = max(side.align_ns - side.begin_ns for side in sides)
    drawings = {side.title: side.draw(zero_ns) for side in sides}
    events = [event for drawing in drawings.values() for event in drawing.events]
    metadata = [event for event in events if event["ph"] == "M"]
    timed = sorted(
        (event for event in events if event["ph"] != "M"), key=lambda event: (event["ts"], -event.get("dur", 0))
    )
    document = {
        "traceEvents": metadata + timed,
        "displayTimeUnit": "ns",
        "otherData": {title: drawing.summary for title, drawing in drawings.items()},
    }
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


def write_timeline(path: Path, baseline: Timeline, candidate: Timeline | None = None) -> None:
    """Writes ``timeline_json`` to ``path``, compressed when the name ends in ``.gz``. UsageError when it cannot be
    written."""
    content = timeline_json(baseline, candidate)
    if path.suffix == ".gz":
        content = gzip.compress(content, mtime=0)  # equal input, equal file
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UsageError(f"cannot write the timeline {path}: {error.strerror}") from error


def median_step(timeline: Timeline) -> int:
    """The step index nearest to the median wall time; of equally near ones the first. UsageError without steps."""
    steps = timeline.steps
    if not len(steps.start_ns):
        raise UsageError("the trace has no measured step to draw", todo="see perfci extract for what it holds")
    indices = np.unique(steps.index)
    wall_ns = steps.end_ns - steps.start_ns
    slowest_ns = np.array([wall_ns[steps.index == index].max() for index in indices], dtype=np.int64)
    return int(indices[np.abs(slowest_ns - np.median(slowest_ns)).argmin()])


@dataclass(slots=True, kw_only=True)
class _Lanes:
    """Places slices on as few rows as they fit without a partial overlap, which the format forbids on one thread."""

    nest: bool
    ends_ns: list[list[int]] = field(default_factory=list)

    def place(self, start_ns: int, end_ns: int) -> int:
        """The lane for the next slice; slices come sorted by start, the longer one first."""
        for lane, stack in enumerate(self.ends_ns):
            while stack and stack[-1] <= start_ns:
                stack.pop()
            if not stack or (self.nest and end_ns <= stack[-1]):
                stack.append(end_ns)
                return lane
        self.ends_ns.append([end_ns])
        return len(self.ends_ns) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Slice:
    """One bar of the timeline before it has a row."""

    track: str
    """Text that names the row."""
    order: tuple[int, int, int]
    """Where the row stands: steps, phases, waits, threads, streams."""
    nest: bool
    start_ns: int
    end_ns: int
    name: str
    category: str
    args: Json
    call: int = -1
    """The API call that this bar is, or (for GPU work) was launched by."""
    launched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Drawing:
    """One side as events, and what a reader of the file should know about it."""

    events: list[Json]
    summary: Json


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Side:
    """One side: its timeline and the window to draw."""

    number: int
    title: str
    timeline: Timeline
    step: int
    rows: Int64
    """Rows of ``timeline.steps`` in the window."""
    align_ns: int
    begin_ns: int
    end_ns: int

    @classmethod
    def of(cls, number: int, title: str, timeline: Timeline) -> "_Side":
        step = median_step(timeline)
        steps = timeline.steps
        rows = np.flatnonzero(np.abs(steps.index - step) <= NEIGHBOURS).astype(np.int64)
        return cls(
            number=number,
            title=title,
            timeline=timeline,
            step=step,
            rows=rows,
            align_ns=int(steps.start_ns[steps.index == step].min()),
            begin_ns=int(steps.start_ns[rows].min()),
            end_ns=int(steps.end_ns[rows].max()),
        )

    def draw(self, zero_ns: int) -> _Drawing:
        """This side with its median step at ``zero_ns`` of the file. The bars of a rank beyond its part of MAX_EVENTS
        are left out, the shortest first; steps and phases stay."""
        ranks = sorted({int(rank) for rank in self.timeline.steps.rank[self.rows]})
        room = MAX_EVENTS // len(ranks)
        events: list[Json] = []
        left_out = 0
        for rank in ranks:
            pid = self.number * _RANKS_PER_SIDE + rank + 1
            name = self.title if len(ranks) == 1 else f"{self.title} rank {rank}"
            events.append(_metadata("process_name", pid, 0, {"name": name}))
            events.append(_metadata("process_sort_index", pid, 0, {"sort_index": pid}))
            bars = sorted(self._slices(rank), key=lambda bar: (bar.order[0] > 1, bar.start_ns - bar.end_ns))
            left_out += max(len(bars) - room, 0)
            events += self._rank_events(sorted(bars[:room], key=lambda bar: (bar.start_ns, -bar.end_ns)), pid, zero_ns)
        return _Drawing(events=events, summary=self._summary(left_out))

    def _summary(self, left_out: int) -> Json:
        info = self.timeline.info
        return {
            "median_step": self.step,
            "steps_drawn": sorted({int(index) for index in self.timeline.steps.index[self.rows]}),
            "collector": clean(f"{info.collector} {info.collector_version}"),
            "gpus": [clean(gpu) for gpu in info.gpu_models],
            "left_out_slices": left_out,
        }

    def _rank_events(self, slices: list[_Slice], pid: int, zero_ns: int) -> Iterator[Json]:
        lanes: dict[tuple[int, int, int], _Lanes] = {}
        placed = []
        titles = {}
        for bar in slices:
            lane = lanes.setdefault(bar.order, _Lanes(nest=bar.nest)).place(bar.start_ns, bar.end_ns)
            placed.append((*bar.order, lane))
            titles[placed[-1]] = bar.track if lane == 0 else f"{bar.track} ({lane + 1})"
        tids = {key: tid for tid, key in enumerate(sorted(titles), start=1)}
        for key, tid in tids.items():
            yield _metadata("thread_name", pid, tid, {"name": titles[key]})
            yield _metadata("thread_sort_index", pid, tid, {"sort_index": tid})

        def ts(at_ns: int) -> float:
            return (at_ns - self.align_ns + zero_ns) / 1000

        launches = {
            bar.call: (ts(bar.start_ns), tids[key])
            for bar, key in zip(slices, placed, strict=True)
            if bar.call >= 0 and not bar.launched and bar.category == "api"
        }
        for bar, key in zip(slices, placed, strict=True):
            at, tid = ts(bar.start_ns), tids[key]
            dur = (bar.end_ns - bar.start_ns) / 1000
            slot = {"pid": pid, "tid": tid, "ts": at}
            yield {"ph": "X", "name": bar.name, "cat": bar.category, **slot, "dur": dur, "args": bar.args}
            if bar.launched and bar.call in launches and launches[bar.call][0] <= at:
                flow = {"name": "launch", "cat": "launch", "id": f"{pid}.{bar.call}.{tid}.{bar.start_ns}"}
                yield {"ph": "s", **flow, "pid": pid, "tid": launches[bar.call][1], "ts": launches[bar.call][0]}
                yield {"ph": "f", "bp": "e", **flow, **slot}

    def _slices(self, rank: int) -> Iterator[_Slice]:
        yield from self._step_slices(rank)
        yield from self._phase_slices(rank)
        yield from self._call_slices(rank)
        yield from self._operation_slices(rank)

    def _step_slices(self, rank: int) -> Iterator[_Slice]:
        steps = self.timeline.steps
        for row in self.rows[steps.rank[self.rows] == rank]:
            index = int(steps.index[row])
            yield _Slice(
                track="steps",
                order=(0, 0, 0),
                nest=True,
                start_ns=int(steps.start_ns[row]),
                end_ns=int(steps.end_ns[row]),
                name=f"step {index}" + (" (median)" if index == self.step else ""),
                category="step",
                args={"step": index},
            )

    def _phase_slices(self, rank: int) -> Iterator[_Slice]:
        ranges = self.timeline.ranges
        for row in np.flatnonzero((ranges.rank == rank) & np.isin(ranges.step, self.rows)):
            yield _Slice(
                track="phases",
                order=(1, 0, 0),
                nest=True,
                start_ns=int(ranges.start_ns[row]),
                end_ns=int(ranges.end_ns[row]),
                name=self._phase(int(ranges.phase[row])),
                category="phase",
                args={},
            )

    def _call_slices(self, rank: int) -> Iterator[_Slice]:
        calls = self.timeline.api_calls
        mine = (calls.rank == rank) & self._in_window(calls.start_ns, calls.end_ns)
        for row in np.flatnonzero(mine):
            thread = int(calls.thread[row])
            name = clean(self.timeline.names[calls.name[row]], limit=NAME_LIMIT)
            start_ns, end_ns = int(calls.start_ns[row]), int(calls.end_ns[row])
            args = {"phase": self._phase(int(calls.phase[row]))}
            wait = _WAITS.get(SyncKind(int(calls.sync[row])))
            if wait is not None:
                args = {**args, "wait": wait}
                yield _Slice(
                    track="CPU waits for the GPU",
                    order=(2, 0, 0),
                    nest=False,
                    name=f"{wait}: {name}",
                    category="sync",
                    args=args,
                    start_ns=start_ns,
                    end_ns=end_ns,
                )
            yield _Slice(
                track=f"CUDA calls of {clean(self.timeline.threads[thread])}",
                order=(3, thread, 0),
                nest=True,
                name=name,
                category="api",
                args=args,
                call=int(row),
                start_ns=start_ns,
                end_ns=end_ns,
            )

    def _operation_slices(self, rank: int) -> Iterator[_Slice]:
        operations = self.timeline.operations
        mine = (operations.rank == rank) & self._in_window(operations.start_ns, operations.end_ns)
        for row in np.flatnonzero(mine):
            kind = OperationKind(int(operations.kind[row]))
            device, stream = int(operations.device[row]), int(operations.stream[row])
            args: Json = {"kind": _KINDS[kind], "phase": self._phase(int(operations.phase[row]))}
            if int(operations.moved_bytes[row]):
                memory = "pageable" if operations.pageable[row] else "pinned or device"
                args = {**args, "bytes": int(operations.moved_bytes[row]), "memory": memory}
            yield _Slice(
                track=f"GPU {device} stream {stream}",
                order=(4, device, stream),
                nest=False,
                start_ns=int(operations.start_ns[row]),
                end_ns=int(operations.end_ns[row]),
                name=clean(self.timeline.names[operations.name[row]], limit=NAME_LIMIT),
                category="nccl" if operations.nccl[row] else _KINDS[kind].split()[0],
                args=args,
                call=int(operations.launch[row]),
                launched=True,
            )

    def _in_window(self, start_ns: Int64, end_ns: Int64) -> Bool:
        """What starts inside the drawn steps; its end may lie behind them."""
        inside = (start_ns >= self.begin_ns) & (start_ns < self.end_ns) & (end_ns >= start_ns)
        return np.asarray(inside, dtype=np.bool_)

    def _phase(self, phase: int) -> str:
        return clean(self.timeline.phases[phase]) if phase >= 0 else ""


def _metadata(name: str, pid: int, tid: int, args: Json) -> Json:
    return {"ph": "M", "name": name, "pid": pid, "tid": tid, "args": args}
