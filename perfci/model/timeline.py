"""An attributed trace as columns: every GPU operation and CUDA call with the step and phase it belongs to.

Produced by ``trace`` from any collector, consumed by ``diagnosis`` and by the timeline report. Columns are NumPy
arrays of equal length
within one table; times are integer nanoseconds on the trace's own clock; intervals are half-open ``[start, end)``.
"""

from dataclasses import dataclass, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from perfci.model.run import Note
from perfci.model.trace import TraceInfo

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]

NO_STEP = -1
"""Value of a ``step`` column: not in a measured step."""


class OperationKind(IntEnum):
    """What the GPU did."""

    KERNEL = 0
    H2D = 1
    D2H = 2
    D2D = 3
    OTHER_COPY = 4
    MEMSET = 5
    GRAPH = 6


class SyncKind(IntEnum):
    """How a CUDA call waits for the GPU; NONE: it does not."""

    NONE = 0
    DEVICE = 1
    STREAM = 2
    EVENT = 3
    COPY = 4
    """A copy call that returns only when the copy is done (pageable memory, or a synchronous cudaMemcpy)."""


def _check_equal_lengths(table: object) -> None:
    lengths = {f.name: len(getattr(table, f.name)) for f in fields(table)}  # type: ignore[arg-type]
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns of {type(table).__name__} differ in length: {lengths}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operations:
    """GPU operations, sorted by start. ``name`` indexes Timeline.names, ``phase`` Timeline.phases, ``step``
    Timeline.steps (or NO_STEP);
    ``launch`` indexes Timeline.api_calls (the call that launched it) or is -1; ``moved_bytes`` is 0 for kernels and
    graphs."""

    start_ns: Int64
    end_ns: Int64
    device: Int32
    stream: Int64
    kind: UInt8
    name: Int32
    moved_bytes: Int64
    pageable: Bool
    nccl: Bool
    phase: Int32
    step: Int32
    rank: Int32
    launch: Int64

    def __post_init__(self) -> None:
        _check_equal_lengths(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ApiCalls:
    """CUDA runtime and driver calls, sorted by start. ``thread`` indexes Timeline.threads; ``sync`` holds SyncKind
    values."""

    start_ns: Int64
    end_ns: Int64
    name: Int32
    thread: Int32
    sync: UInt8
    phase: Int32
    step: Int32
    rank: Int32

    def __post_init__(self) -> None:
        _check_equal_lengths(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseRanges:
    """Marked ranges of the training threads inside measured steps, sorted by start; may nest."""

    start_ns: Int64
    end_ns: Int64
    phase: Int32
    step: Int32
    rank: Int32

    def __post_init__(self) -> None:
        _check_equal_lengths(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps:
    """The measured (complete) steps. With several ranks each rank has its own rows; ``index`` is the step's number
    within its rank, from 0."""

    start_ns: Int64
    end_ns: Int64
    index: Int32
    rank: Int32

    def __post_init__(self) -> None:
        _check_equal_lengths(self)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """One attributed trace. ``phases`` starts with the pseudo phases of ``model.metrics`` that occur; ``threads``
    are display names."""

    info: TraceInfo
    names: tuple[str, ...]
    phases: tuple[str, ...]
    threads: tuple[str, ...]
    operations: Operations
    api_calls: ApiCalls
    ranges: PhaseRanges
    steps: Steps
    notes: tuple[Note, ...] = ()
    dropped_step_count: int = 0
    """Incomplete steps at the borders of the capture that were recognised and left out."""
    traced_gpu: bool = True
    """False when the trace holds no CUDA records at all: what the GPU did is then unknown, not nothing."""
