"""The keys of perfci.yaml and workload.yaml."""

import math
import shlex
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, field_validator, model_validator

from perfci.model.metrics import METRICS, RUN, STEP, Source, Statistic
from perfci.model.settings import MOST_LAUNCHES, Collector


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _split_command(value: Any) -> Any:
    """A command may be written as one string (split as a shell would, without running one) or as a list."""
    return shlex.split(value) if isinstance(value, str) else value


def _ratio(value: Any) -> Any:
    """Accept ``2%`` beside ``0.02``: budgets are read aloud in per cent."""
    if isinstance(value, str) and value.strip().endswith("%"):
        try:
            number = float(value.strip()[:-1]) / 100
        except ValueError:
            return value
        return number if math.isfinite(number) else value
    return value


Command = Annotated[list[str], BeforeValidator(_split_command), Field(min_length=1)]
Budget = Annotated[float, BeforeValidator(_ratio), Field(ge=0, lt=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]
Stringy = Annotated[
    str, BeforeValidator(lambda v: str(v) if isinstance(v, int | float) and not isinstance(v, bool) else v)
]


KeyValue = Annotated[Stringy, Field(min_length=1, max_length=200)]


class GateSection(_Section):
    """A check that can fail a comparison."""

    metric: str = Field(description="name of a metric (docs/metrics.md)")
    phase: str = Field("step", description="phase name or glob; `step` is the whole step, `run` the whole launch")
    workload: str = Field("*", description="workload name or glob")
    budget: Budget = Field(0.0, description="largest harmless worsening, as 0.02 or 2%; exact counts normally 0")

    @field_validator("metric")
    @classmethod
    def _known_metric(cls, value: str) -> str:
        if value not in METRICS:
            raise ValueError(f"unknown metric; known: {', '.join(METRICS)}")
        return value

    @model_validator(mode="after")
    def _in_a_phase_that_has_it(self) -> "GateSection":
        metric = METRICS[self.metric]
        only = RUN if metric.statistic is Statistic.SINGLE else STEP if metric.source is Source.SIDECAR else None
        if only is not None and not fnmatchcase(only, self.phase):
            raise ValueError(f"{self.metric} belongs to no phase; write `phase: {only}`")
        if only is None and self.phase == RUN:
            raise ValueError(f"{self.metric} is measured per step; write `phase: step`, or the name of a phase")
        return self


class StepsSection(_Section):
    """Steps of one launch; a preset or workload may override the general ones."""

    warmup_steps: int | None = Field(None, ge=0, description="steps flagged as warm-up and never judged")
    wall_steps: int | None = Field(None, ge=0, description="steps timed with no profiler attached")
    capture_steps: int | None = Field(None, ge=1, description="steps profiled")


class PresetSection(StepsSection):
    """A named size of a workload."""

    command: Command | None = Field(None, description="another command for this size")
    env: dict[str, Stringy] = Field(default_factory=dict, description="environment variables of the process")
    losses: list[float] | None = Field(None, description="golden losses: the launch must reproduce them")
    loss_tolerance: float = Field(0.05, gt=0, lt=1, description="allowed relative distance from the golden losses")


class WorkloadSection(StepsSection):
    """One training program: a `workload.yaml`, or inline in perfci.yaml."""

    name: Name
    title: str = Field("", description="what it stands for, in one line")
    owner: str = Field("", description="who answers for it")
    tags: list[str] = Field(default_factory=list)
    command: Command = Field(description="the training command; runs in the workload's folder of the measured revision")
    directory: str | None = Field(None, description="folder to run in, relative to the repository root")
    phases: list[str] = Field(
        default_factory=list, description="your own phase names; empty: every range inside a step"
    )
    env: dict[str, Stringy] = Field(default_factory=dict, description="environment variables of the process")
    prepare: Command | None = Field(None, description="command run once per revision before measuring, e.g. a build")
    presets: dict[Name, PresetSection] = Field(default_factory=dict)
    default_preset: Name | None = None
    gates: list[GateSection] = Field(default_factory=list, description="gates of this workload, after the general ones")
    timeout_s: float | None = Field(None, gt=0, description="longest time of one launch")
    autophase: bool = Field(False, description="mark the phases of a script that does not mark them itself")

    @field_validator("directory")
    @classmethod
    def _inside(cls, value: str | None) -> str | None:
        if value is not None and (value.startswith("/") or ".." in value.split("/")):
            raise ValueError("must be a path inside the repository, without `..`")
        return value


class MeasureSection(_Section):
    """How one launch is made."""

    warmup_steps: int = Field(10, ge=0, description="steps flagged as warm-up and never judged")
    wall_steps: int = Field(50, ge=0, description="steps timed with no profiler attached")
    capture_steps: int = Field(30, ge=1, description="steps profiled")
    timeout_s: float = Field(600.0, gt=0, description="longest time of one launch, seconds")
    collector: Collector = Field(Collector.AUTO, description="nsys, torch, or auto: nsys when it is installed")
    pin_cpus: bool = Field(True, description="pin launches to cores when the machine has enough")
    lock_clocks: bool = Field(False, description="lock the GPU clocks while measuring, and restore them")


class JudgeSection(_Section):
    """How runs are judged."""

    error_rate: Budget = Field(0.01, gt=0, lt=0.5, description="chance of any false regression in one comparison")
    power: float = Field(
        0.8, gt=0, lt=1, description="chance with which the printed smallest detectable effect is seen"
    )
    min_launches: int = Field(3, ge=1, le=MOST_LAUNCHES, description="launches per side before the first decision")
    max_launches: int = Field(12, ge=1, le=MOST_LAUNCHES, description="launches per side at most")
    max_minutes: float = Field(30.0, gt=0, le=10_000, description="measuring time of one comparison at most")
    statistics: dict[str, Literal["median", "p10"]] = Field(
        default_factory=dict, description="metric: statistic of the steps that makes its sample, where not the default"
    )
    gates: list[GateSection] | None = Field(None, description="checks that can fail; replaces the default gates")

    @field_validator("statistics")
    @classmethod
    def _per_step_times(cls, value: dict[str, str]) -> dict[str, str]:
        for metric in value:
            if metric not in METRICS or not METRICS[metric].may_be(Statistic.P10):
                raise ValueError(f"{metric!r} is no per-step metric with a median")
        return value


class EnvironmentSection(_Section):
    """What the measured process may see of the runner's environment, and what must be equal for runs to be compared."""

    allow: list[str] = Field(
        default_factory=list, description="names of variables to pass on, beyond the built-in list"
    )
    key: dict[Name, KeyValue] = Field(
        default_factory=dict, description="additions to the comparability key, name: value"
    )


def _kind_of_entry(value: Any) -> str | None:
    """Which of the two an entry of `workloads:` is, so that its faults are told once, not for each kind it might be."""
    if isinstance(value, str):
        return "<folder>"
    return "<workload>" if isinstance(value, dict | WorkloadSection) else None


WorkloadEntry = Annotated[
    Annotated[str, Tag("<folder>")] | Annotated[WorkloadSection, Tag("<workload>")],
    Discriminator(
        _kind_of_entry,
        custom_error_type="workload_entry",
        custom_error_message="must be a folder with a workload.yaml, or a workload written out with its keys",
    ),
]


class ProjectSection(_Section):
    """The whole of perfci.yaml."""

    version: Literal[1] = 1
    database: str = Field(
        "sqlite:///.perfci/perfci.db", description="SQLAlchemy URL; a relative SQLite path starts at this file"
    )
    workloads: list[WorkloadEntry] = Field(
        default_factory=list, description="folders with a workload.yaml (globs allowed), or workloads written out here"
    )
    measure: MeasureSection = Field(default_factory=MeasureSection)
    judge: JudgeSection = Field(default_factory=JudgeSection)
    environment: EnvironmentSection = Field(default_factory=EnvironmentSection)
    baselines: str = Field("baselines", description="folder of reviewed baseline files")
    reference: str | None = Field(None, description="pinned reference revision against which small changes add up")
    stand_in_distance: int = Field(20, ge=0, description="commits between the baseline and a measured ancestor at most")
