"""The metric table: each quantity perfci measures, declared once."""

from dataclasses import dataclass
from enum import StrEnum

STEP = "step"
"""Pseudo phase: the whole training step, all phases and the time between them."""
RUN = "run"
"""Pseudo phase: one number for the whole process launch."""
BACKGROUND = "background"
"""Pseudo phase: work of helper threads (pin-memory, prefetcher, watchdog), counted in the step but charged to no
phase."""
UNMARKED = "unmarked"
"""Pseudo phase: work of the training thread inside a step but outside any phase."""
PSEUDO_PHASES = (STEP, RUN, BACKGROUND, UNMARKED)


class Unit(StrEnum):
    """Unit of the stored number. All but RATIO and PER_SECOND are integers."""

    NS = "ns"
    BYTES = "bytes"
    COUNT = "count"
    MICROJOULES = "uJ"
    RATIO = "ratio"
    PER_SECOND = "1/s"


class Direction(StrEnum):
    """Which way is worse. NEUTRAL metrics are evidence: a change of them is neither a regression nor an improvement."""

    LOWER_IS_BETTER = "lower"
    HIGHER_IS_BETTER = "higher"
    NEUTRAL = "neutral"


class Kind(StrEnum):
    """EXACT: every launch of one side reproduces it to the unit. NOISY: needs statistics."""

    EXACT = "exact"
    NOISY = "noisy"


class Statistic(StrEnum):
    """How the values of the measured steps become the one number (sample) of a run.

    MEAN is the total over the window divided by its steps (counts: a log every 20 steps must not hide in a median).
    """

    MEDIAN = "median"
    P10 = "p10"
    MEAN = "mean"
    SINGLE = "single"


class AcrossRanks(StrEnum):
    """How the ranks of one run join into one number per step: the slowest rank (MAX), all ranks together (SUM) or
    their MEAN."""

    MAX = "max"
    SUM = "sum"
    MEAN = "mean"


class Source(StrEnum):
    """Where the number comes from: the profiled window, the unprofiled window of the sidecar, or a sampler beside
    the process."""

    TRACE = "trace"
    SIDECAR = "sidecar"
    SAMPLER = "sampler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the metric table."""

    name: str
    unit: Unit
    direction: Direction
    kind: Kind
    statistic: Statistic
    across_ranks: AcrossRanks
    source: Source
    meaning: str

    def may_be(self, statistic: Statistic) -> bool:
        """True when the steps of a launch may become one sample by ``statistic``: only those of a median have a choice,
        a low quantile."""
        low_quantile = self.statistic is Statistic.MEDIAN and statistic is Statistic.P10
        return statistic is self.statistic or low_quantile


def _time(name: str, meaning: str, *, direction: Direction = Direction.LOWER_IS_BETTER) -> Metric:
    return Metric(
        name=name,
        unit=Unit.NS,
        direction=direction,
        kind=Kind.NOISY,
        statistic=Statistic.MEDIAN,
        across_ranks=AcrossRanks.MAX,
        source=Source.TRACE,
        meaning=meaning,
    )


def _count(
    name: str,
    meaning: str,
    *,
    unit: Unit = Unit.COUNT,
    kind: Kind = Kind.EXACT,
    direction: Direction = Direction.LOWER_IS_BETTER,
) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        direction=direction,
        kind=kind,
        statistic=Statistic.MEAN,
        across_ranks=AcrossRanks.SUM,
        source=Source.TRACE,
        meaning=meaning,
    )


def _ratio(name: str, meaning: str, *, direction: Direction = Direction.NEUTRAL) -> Metric:
    return Metric(
        name=name,
        unit=Unit.RATIO,
        direction=direction,
        kind=Kind.NOISY,
        statistic=Statistic.MEDIAN,
        across_ranks=AcrossRanks.MEAN,
        source=Source.TRACE,
        meaning=meaning,
    )


def _single(
    name: str,
    unit: Unit,
    meaning: str,
    *,
    direction: Direction = Direction.LOWER_IS_BETTER,
    source: Source = Source.SIDECAR,
    across_ranks: AcrossRanks = AcrossRanks.MAX,
) -> Metric:
    return Metric(
        name=name,
        unit=unit,
        direction=direction,
        kind=Kind.NOISY,
        statistic=Statistic.SINGLE,
        across_ranks=across_ranks,
        source=source,
        meaning=meaning,
    )


_TABLE: tuple[Metric, ...] = (
    Metric(
        name="unprofiled_wall_ns",
        unit=Unit.NS,
        direction=Direction.LOWER_IS_BETTER,
        kind=Kind.NOISY,
        statistic=Statistic.MEDIAN,
        across_ranks=AcrossRanks.MAX,
        source=Source.SIDECAR,
        meaning="wall time of a step in the window before the profiler starts: the step time users feel",
    ),
    _time(
        "wall_ns",
        "wall time of the phase's ranges in the profiled window (a profiled step is slower than a true one)",
    ),
    _time("gpu_busy_ns", "time in which at least one GPU operation of the phase ran (union over streams)"),
    _time("kernel_ns", "sum of kernel durations"),
    _time("gpu_idle_ns", "time inside the phase's ranges in which the GPU ran nothing at all"),
    _time(
        "launch_gap_ns",
        "time in which the GPU ran nothing between two operations that follow each other and both belong to the phase",
    ),
    _count("kernel_count", "kernels launched"),
    _count("graph_launch_count", "CUDA graph launches"),
    _count("sync_count", "CPU calls that wait for the GPU"),
    _time("sync_ns", "time the CPU was blocked in calls that wait for the GPU"),
    _count("device_sync_count", "calls that wait for a whole device or context"),
    _count("stream_sync_count", "calls that wait for a stream"),
    _count("event_sync_count", "calls that wait for an event"),
    _count("copy_sync_count", "copy calls that return only when the copy is done"),
    _count("api_call_count", "CUDA runtime and driver calls, without polling (event and stream queries)"),
    _count(
        "alloc_count", "calls that take or give back device or pinned memory, pools included (cudaMalloc, cudaFree, …)"
    ),
    _count("h2d_count", "host to device copies"),
    _count("h2d_bytes", "bytes copied from host to device", unit=Unit.BYTES),
    _time("h2d_ns", "sum of host to device copy durations"),
    _count("h2d_pageable_count", "host to device copies from pageable memory"),
    _count("h2d_pageable_bytes", "bytes copied from pageable host memory to device", unit=Unit.BYTES),
    _time("h2d_pageable_ns", "sum of durations of host to device copies from pageable memory"),
    _count("d2h_count", "device to host copies"),
    _count("d2h_bytes", "bytes copied from device to host", unit=Unit.BYTES),
    _time("d2h_ns", "sum of device to host copy durations"),
    _count("d2h_pageable_count", "device to host copies to pageable memory"),
    _count("d2h_pageable_bytes", "bytes copied from device to pageable host memory", unit=Unit.BYTES),
    _time("d2h_pageable_ns", "sum of durations of device to host copies to pageable memory"),
    _count("d2d_count", "device to device copies"),
    _count("d2d_bytes", "bytes copied from device to device", unit=Unit.BYTES),
    _time("d2d_ns", "sum of device to device copy durations"),
    _count("pageable_copy_count", "copies between device and pageable host memory"),
    _count("pageable_copy_bytes", "bytes copied between device and pageable host memory", unit=Unit.BYTES),
    _count("memset_count", "memsets"),
    _time("memset_ns", "sum of memset durations"),
    _time("nccl_ns", "sum of NCCL kernel durations"),
    _count("nccl_count", "NCCL kernels launched"),
    _time("nccl_exposed_ns", "time in which NCCL kernels of the phase ran and no compute kernel"),
    _time("copy_exposed_ns", "time in which copies of the phase ran and no compute kernel"),
    _ratio("overlap_ratio", "share of the time of copies and NCCL kernels in which a compute kernel ran too"),
    _ratio(
        "gpu_utilization_ratio",
        "share of the time inside the phase's ranges in which the GPU ran anything",
        direction=Direction.HIGHER_IS_BETTER,
    ),
    _single("peak_allocated_bytes", Unit.BYTES, "peak of torch.cuda.max_memory_allocated"),
    _single("peak_reserved_bytes", Unit.BYTES, "peak of torch.cuda.max_memory_reserved"),
    _single("time_to_first_step_ns", Unit.NS, "process start to the end of the first step"),
    _single(
        "throughput_per_s",
        Unit.PER_SECOND,
        "samples (or tokens) per second over the unprofiled window",
        direction=Direction.HIGHER_IS_BETTER,
        across_ranks=AcrossRanks.SUM,
    ),
    _single(
        "energy_per_step_uj",
        Unit.MICROJOULES,
        "GPU energy per step over the unprofiled window (NVML)",
        source=Source.SAMPLER,
        across_ranks=AcrossRanks.SUM,
    ),
    _single(
        "cpu_instructions_per_step",
        Unit.COUNT,
        "user-space CPU instructions per step over the unprofiled window (perf_event_open)",
        source=Source.SAMPLER,
        across_ranks=AcrossRanks.SUM,
    ),
    _single(
        "profiling_overhead_ratio",
        Unit.RATIO,
        "median profiled step over median unprofiled step, minus 1",
        direction=Direction.NEUTRAL,
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _TABLE}
"""All metrics by name, in the order in which reports list them."""
