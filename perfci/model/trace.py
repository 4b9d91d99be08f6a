"""What a trace says: the result of extraction, for every collector the same."""

from dataclasses import dataclass

from perfci.model.run import ApiCallStat, KernelStat, Note, Series


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInfo:
    """Facts about the trace itself."""

    collector: str
    collector_version: str
    gpu_models: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    rank_count: int = 1
    started_at_utc_ns: int | None = None
    """Start of the recording, nanoseconds since the epoch, where the trace says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """Phases and counts of all measured (complete) steps of one process launch, ranks joined as the metric table
    declares.

    ``rank_series`` holds, when there are several ranks, the same per rank: ``(rank, series)``.
    ``dropped_step_count`` counts incomplete
    first and last steps that were recognised and left out.
    """

    trace: TraceInfo
    step_count: int
    series: tuple[Series, ...]
    kernels: tuple[KernelStat, ...] = ()
    api_calls: tuple[ApiCallStat, ...] = ()
    notes: tuple[Note, ...] = ()
    dropped_step_count: int = 0
    rank_series: tuple[tuple[int, tuple[Series, ...]], ...] = ()
