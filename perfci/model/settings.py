"""What the user asked for, checked: slices of the configuration as each layer needs them."""

from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase

from perfci.model.metrics import METRICS, Statistic


class Collector(StrEnum):
    """How a process is traced. AUTO takes nsys when it is there."""

    AUTO = "auto"
    NSYS = "nsys"
    TORCH = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """A check that can fail a comparison: a metric of the phases and workloads that match, with the largest
    harmless increase.

    ``workload`` and ``phase`` are glob patterns. ``budget_ratio`` 0.02 means: up to 2 % worse is not relevant. For
    exact metrics the
    budget is normally 0: one more is a finding.
    """

    metric: str
    phase: str = "step"
    workload: str = "*"
    budget_ratio: float = 0.0
    required: bool = False
    """True for a gate the user wrote: measured on neither side it is NOT_MEASURED. Built-in gates apply if they can."""

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"unknown metric {self.metric!r}")
        if not 0 <= self.budget_ratio < 1:
            raise ValueError(f"budget_ratio must lie in [0, 1), got {self.budget_ratio}")

    def covers(self, *, workload: str, phase: str, metric: str) -> bool:
        """True when this gate judges the given series. A gate of ``gpt`` judges it in every preset (``gpt@small``)."""
        names = (workload, workload.partition("@")[0])
        return (
            metric == self.metric
            and fnmatchcase(phase, self.phase)
            and any(fnmatchcase(name, self.workload) for name in names)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How one launch is made. Steps: ``warmup_steps`` (flagged, never judged), ``wall_steps`` unprofiled,
    ``capture_steps`` profiled."""

    warmup_steps: int = 10
    wall_steps: int = 50
    capture_steps: int = 30
    launch_timeout_s: float = 600.0
    collector: Collector = Collector.AUTO
    pin_cpus: bool = True
    lock_clocks: bool = False
    environment_allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.warmup_steps < 0 or self.wall_steps < 0 or self.capture_steps < 1:
            raise ValueError("warmup_steps and wall_steps must be at least 0, capture_steps at least 1")
        if self.launch_timeout_s <= 0:
            raise ValueError("launch_timeout_s must be positive")


MOST_LAUNCHES = 1000
"""Launches per side that a plan may ask for. Where a gate needs more, the answer is "not by more launches"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeSettings:
    """How runs are judged. ``error_rate`` is the chance of any false regression in one comparison of equal code."""

    gates: tuple[Gate, ...] = ()
    error_rate: float = 0.01
    min_launches: int = 3
    max_launches: int = 12
    max_minutes: float = 30.0
    power: float = 0.8
    statistics: tuple[tuple[str, Statistic], ...] = ()
    """Metrics whose sample is another statistic of the steps than the metric table says: declared, never picked after
    looking (`perfci calibrate` tells which is quieter)."""

    def __post_init__(self) -> None:
        if not 0 < self.error_rate < 1 or not 0 < self.power < 1:
            raise ValueError("error_rate and power must lie in (0, 1)")
        if not 1 <= self.min_launches <= self.max_launches:
            raise ValueError("wanted 1 <= min_launches <= max_launches")

    def gate_for(self, *, workload: str, phase: str, metric: str) -> Gate | None:
        """The last gate that covers the series (later lines of the configuration override earlier ones), or None:
        evidence only."""
        found = [g for g in self.gates if g.covers(workload=workload, phase=phase, metric=metric)]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A training program under measurement. ``command`` runs in ``directory`` (relative to the repository root of
    the revision)."""

    name: str
    command: tuple[str, ...]
    directory: str = "."
    environment: tuple[tuple[str, str], ...] = ()
    phases: tuple[str, ...] = ()
    """Ranges that count as phases besides the built-in ones. Empty: every range of the training thread inside a
    step."""
    prepare: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    golden_losses: tuple[float, ...] = ()
    """Losses that every launch must reproduce within ``loss_tolerance_ratio``; outside, it is not comparable."""
    loss_tolerance_ratio: float = 0.05
    autophase: bool = False
    """True for a script that marks nothing itself: `perfci.autophase` is injected into its processes."""
    definition_hash: str = ""
    """Hash of the workload's definition: part of the comparability key."""

    def __post_init__(self) -> None:
        if not self.name or not self.command:
            raise ValueError("a workload needs a name and a command")
