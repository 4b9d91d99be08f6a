"""The seam between readers and all behind them: what a profiler recorded, as columns, in no profiler's own terms.

A reader (``nsys_sqlite``, ``kineto``) fills a RawTrace; steps, attribution and metrics see nothing else. Times are
integer nanoseconds on one clock per trace, intervals are half-open, rows may come in any order.
"""

from dataclasses import dataclass

import numpy as np

from perfci.model.run import Note
from perfci.model.timeline import Bool, Int32, Int64, UInt8
from perfci.model.trace import TraceInfo

UNFINISHED = np.iinfo(np.int64).min
"""Value of ``Marks.end_ns`` for a range that was never closed."""
NO_CORRELATION = -1
"""Value of a ``correlation`` column: the profiler gave none."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Marks:
    """Ranges that the program marked itself, of the default domain only: ranges of libraries (NCCL) are left out by the
    reader. ``name`` indexes RawTrace.strings, ``thread`` RawTrace.threads."""

    start_ns: Int64
    end_ns: Int64
    thread: Int32
    name: Int32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """CUDA runtime and driver calls. ``correlation`` joins a call to the operations it launched, within its process."""

    start_ns: Int64
    end_ns: Int64
    thread: Int32
    name: Int32
    correlation: Int64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GpuOperations:
    """What GPUs did. ``kind`` holds model.timeline.OperationKind; ``name`` is the kernel's name, or -1 for other kinds;
    ``process`` is the index of the launching process; ``moved_bytes`` is 0 for kernels and graphs."""

    start_ns: Int64
    end_ns: Int64
    process: Int32
    device: Int32
    stream: Int64
    kind: UInt8
    name: Int32
    moved_bytes: Int64
    pageable: Bool
    correlation: Int64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Threads:
    """Threads that appear in marks, calls or overheads. ``name`` is -1 where the profiler does not know it; autograd
    threads bear the name that PyTorch gives them, ``pt_autograd_N``, also where the reader knows them otherwise."""

    process: Int32
    name: Int32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overheads:
    """Time that the profiler itself took from a thread."""

    start_ns: Int64
    end_ns: Int64
    thread: Int32
    name: Int32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RawTrace:
    """One trace file. ``traced_gpu`` is False when the trace holds no CUDA records at all: GPU metrics are then
    unknown, not 0. ``rank`` is the rank that the file or its name states, or None."""

    label: str
    info: TraceInfo
    traced_gpu: bool
    strings: tuple[str, ...]
    processes: tuple[str, ...]
    threads: Threads
    marks: Marks
    calls: Calls
    operations: GpuOperations
    overheads: Overheads
    notes: tuple[Note, ...] = ()
    rank: int | None = None
