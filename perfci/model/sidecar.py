"""What the measured process itself reported about its launch (docs/sidecar.md)."""

from dataclasses import dataclass
from enum import StrEnum


class SidecarStatus(StrEnum):
    """How the loop ended. COMPLETE: every asked step was measured. SHORT: the data or the loop ended before.
    ABORTED: an exception, or a process that ended without a word."""

    COMPLETE = "complete"
    SHORT = "short"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Wall times of consecutive steps of one part of the launch. ``clock`` says how they were taken: ``host`` or
    ``cuda-events``; ``sample_count`` is the number of training samples (or tokens) in all of them, 0 when not told."""

    clock: str
    step_wall_ns: tuple[int, ...]
    sample_count: int = 0

    def __post_init__(self) -> None:
        if self.sample_count < 0 or any(value < 0 for value in self.step_wall_ns):
            raise ValueError("step times and sample counts must not be negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sidecar:
    """The report of one rank. Values that the process could not know are None."""

    status: SidecarStatus
    reason: str
    rank: int
    world_size: int
    collector: str
    marks: str
    asked_warmup_steps: int
    asked_wall_steps: int
    asked_capture_steps: int
    steady: bool
    warmup: StepTimes
    wall: StepTimes | None
    capture: StepTimes | None
    losses: tuple[float | None, ...]
    """One per step from the first of the launch; None where none was told or it was not finite."""
    not_finite_losses: tuple[int, ...]
    versions: tuple[tuple[str, str], ...]
    gpu_model: str | None = None
    gpu_uuid: str | None = None
    time_to_first_step_ns: int | None = None
    energy_uj: int | None = None
    cpu_instructions: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"wanted 0 <= rank < world_size, got {self.rank} and {self.world_size}")
        for name in ("time_to_first_step_ns", "energy_uj", "cpu_instructions", "peak_allocated_bytes"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"{name} is negative")
