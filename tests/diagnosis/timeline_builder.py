"""Builds small timelines by hand for tests: times in microseconds, phases and steps found by time."""

from dataclasses import dataclass, field

import numpy as np

from perfci.model.metrics import BACKGROUND, UNMARKED
from perfci.model.timeline import (
    NO_STEP,
    ApiCalls,
    OperationKind,
    Operations,
    PhaseRanges,
    Steps,
    SyncKind,
    Timeline,
)
from perfci.model.trace import TraceInfo

US = 1000
MAIN = "main"
AUTOGRAD = "pt_autograd_0"
LAUNCH = "cudaLaunchKernel_v7000"
COPY = "cudaMemcpyAsync_v3020"


@dataclass
class TimelineBuilder:
    """Rows are added in any order; ``build`` sorts them and links operations to their calls."""

    steps: list[tuple[int, int, int]] = field(default_factory=list)
    ranges: list[tuple[int, int, str, int]] = field(default_factory=list)
    calls: list[tuple[int, int, str, str, SyncKind, int]] = field(default_factory=list)
    operations: list[dict] = field(default_factory=list)

    def step(self, start: float, end: float, *, rank: int = 0) -> None:
        self.steps.append((round(start * US), round(end * US), rank))

    def phase(self, name: str, start: float, end: float, *, rank: int = 0) -> None:
        self.ranges.append((round(start * US), round(end * US), name, rank))

    def call(
        self, name: str, start: float, end: float, *, thread: str = MAIN, sync: SyncKind = SyncKind.NONE, rank: int = 0
    ) -> int:
        self.calls.append((round(start * US), round(end * US), name, thread, sync, rank))
        return len(self.calls) - 1

    def operation(
        self, kind: OperationKind, start: float, end: float, *, launch: int, name: str = "gemm", stream: int = 7,
        moved_bytes: int = 0, pageable: bool = False, nccl: bool = False, device: int | None = None,
    ) -> None:  # fmt: skip
        rank = self.calls[launch][5]
        self.operations.append(
            {"start_ns": round(start * US), "end_ns": round(end * US), "kind": kind, "name": name, "stream": stream,
             "moved_bytes": moved_bytes, "pageable": pageable, "nccl": nccl, "launch": launch, "rank": rank,
             "device": rank if device is None else device}
        )  # fmt: skip

    def kernel(self, asked: float, start: float, end: float, *, thread: str = MAIN, rank: int = 0, **more) -> None:
        """A kernel from ``start`` to ``end`` whose launch call began at ``asked`` and took 5 µs."""
        launch = self.call(LAUNCH, asked, asked + 5, thread=thread, rank=rank)
        self.operation(OperationKind.KERNEL, start, end, launch=launch, **more)

    def copy(
        self, kind: OperationKind, asked: float, returned: float, start: float, end: float, *, moved_bytes: int,
        pageable: bool = False, thread: str = MAIN, sync: SyncKind = SyncKind.NONE, **more,
    ) -> None:  # fmt: skip
        launch = self.call(COPY, asked, returned, thread=thread, sync=sync)
        self.operation(kind, start, end, launch=launch, name="copy", moved_bytes=moved_bytes, pageable=pageable, **more)

    def build(self) -> Timeline:
        steps = sorted(self.steps, key=lambda step: (step[0], step[2]))
        seen: dict[int, int] = {}
        index = []
        for _, _, rank in steps:
            index.append(seen.get(rank, 0))
            seen[rank] = index[-1] + 1
        phases = [BACKGROUND, UNMARKED, *dict.fromkeys(name for _, _, name, _ in sorted(self.ranges))]
        order = sorted(range(len(self.calls)), key=lambda i: (self.calls[i][0], i))
        place = {old: new for new, old in enumerate(order)}
        calls = [self.calls[i] for i in order]
        operations = sorted(self.operations, key=lambda o: o["start_ns"])
        names = list(dict.fromkeys([*(c[2] for c in calls), *(o["name"] for o in operations)]))
        threads = list(dict.fromkeys(c[3] for c in calls))

        def step_at(at: int, rank: int) -> int:
            return next((i for i, s in enumerate(steps) if s[2] == rank and s[0] <= at < s[1]), NO_STEP)

        def phase_at(at: int, rank: int, thread: str) -> int:
            if thread != MAIN and not thread.startswith("pt_autograd"):
                return phases.index(BACKGROUND)
            inside = [r for r in self.ranges if r[3] == rank and r[0] <= at < r[1]]
            return phases.index(max(inside)[2] if inside else UNMARKED)

        call_step = [step_at(c[0], c[5]) for c in calls]
        call_phase = [phase_at(c[0], c[5], c[3]) for c in calls]
        ranges = sorted(r for r in self.ranges if step_at(r[0], r[3]) != NO_STEP)
        launch = [place[o["launch"]] for o in operations]
        return Timeline(
            info=TraceInfo(collector="test", collector_version="1", rank_count=max(len(seen), 1)),
            names=tuple(names),
            phases=tuple(phases),
            threads=tuple(threads),
            operations=Operations(
                start_ns=_i64(o["start_ns"] for o in operations),
                end_ns=_i64(o["end_ns"] for o in operations),
                device=_i32(o["device"] for o in operations),
                stream=_i64(o["stream"] for o in operations),
                kind=np.array([int(o["kind"]) for o in operations], dtype=np.uint8),
                name=_i32(names.index(o["name"]) for o in operations),
                moved_bytes=_i64(o["moved_bytes"] for o in operations),
                pageable=np.array([o["pageable"] for o in operations], dtype=np.bool_),
                nccl=np.array([o["nccl"] for o in operations], dtype=np.bool_),
                phase=_i32(call_phase[i] for i in launch),
                step=_i32(call_step[i] for i in launch),
                rank=_i32(o["rank"] for o in operations),
                launch=_i64(launch),
            ),
            api_calls=ApiCalls(
                start_ns=_i64(c[0] for c in calls),
                end_ns=_i64(c[1] for c in calls),
                name=_i32(names.index(c[2]) for c in calls),
                thread=_i32(threads.index(c[3]) for c in calls),
                sync=np.array([int(c[4]) for c in calls], dtype=np.uint8),
                phase=_i32(call_phase),
                step=_i32(call_step),
                rank=_i32(c[5] for c in calls),
            ),
            ranges=PhaseRanges(
                start_ns=_i64(r[0] for r in ranges),
                end_ns=_i64(r[1] for r in ranges),
                phase=_i32(phases.index(r[2]) for r in ranges),
                step=_i32(step_at(r[0], r[3]) for r in ranges),
                rank=_i32(r[3] for r in ranges),
            ),
            steps=Steps(
                start_ns=_i64(s[0] for s in steps),
                end_ns=_i64(s[1] for s in steps),
                index=_i32(index),
                rank=_i32(s[2] for s in steps),
            ),
        )


def _i64(values) -> np.ndarray:
    return np.array(list(values), dtype=np.int64)


def _i32(values) -> np.ndarray:
    return np.array(list(values), dtype=np.int32)


def healthy(
    count: int = 10, *, wall: float = 1000, rank: int = 0, builder: TimelineBuilder | None = None
) -> TimelineBuilder:
    """Steps of a GPU-bound training without any known pattern: five long kernels a phase, launched well ahead."""
    made = builder or TimelineBuilder()
    for number in range(count):
        at = number * wall
        made.step(at, at + wall, rank=rank)
        made.phase("data", at, at + 10, rank=rank)
        for name, begin, end, thread in (
            ("forward", 20, 320, MAIN),
            ("backward", 320, 820, AUTOGRAD),
            ("optimizer", 820, 980, MAIN),
        ):
            made.phase(name, at + begin, at + end, rank=rank)
            width = (end - begin) / 5
            for kernel in range(5):
                start = at + begin + kernel * width + 5
                made.kernel(
                    max(at + begin, start - 30), start, start + width, thread=thread, rank=rank, name=f"{name}_gemm"
                )
    return made
