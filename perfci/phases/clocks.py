"""Clocks for step times. On a GPU, CUDA events: no synchronisation inside the window; else the host's clock."""

from __future__ import annotations

import time
from typing import Any, Protocol

from perfci.phases.process import torch_if_loaded, uses_gpu


class Clock(Protocol):
    """``now`` marks an instant; ``elapsed_ns`` compares two of them, after a synchronisation."""

    kind: str

    def now(self) -> Any: ...

    def elapsed_ns(self, start: Any, end: Any) -> int: ...


class HostClock:
    """The host's monotonic clock."""

    kind = "host"

    def now(self) -> int:
        return time.perf_counter_ns()

    def elapsed_ns(self, start: int, end: int) -> int:
        return end - start


class CudaEventClock:
    """Events on the current stream. An event has happened when the GPU gets there, so two of them around a step
    measure the step as the GPU sees it: its work when the GPU is the bottleneck, the wait for launches when the CPU is.
    The host is never made to wait."""

    kind = "cuda-events"

    def __init__(self) -> None:
        self._event: Any = torch_if_loaded().cuda.Event

    def now(self) -> Any:
        event = self._event(enable_timing=True)
        event.record()
        return event

    def elapsed_ns(self, start: Any, end: Any) -> int:
        return round(float(start.elapsed_time(end)) * 1e6)


def window_clock() -> Clock:
    """The clock for a window of steps with no synchronisation inside."""
    return CudaEventClock() if uses_gpu() else HostClock()
