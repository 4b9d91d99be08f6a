"""Two sides prepared for the pair rules: what each launch counted and how long its kernels took, per step."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from perfci.model.run import KernelStat, Series

Values = tuple[int | float, ...]
"""One value per step, or one for the run."""


class Measured(Protocol):
    """What a pair rule reads of one process launch: stored runs have it, and extractions of a trace."""

    @property
    def step_count(self) -> int: ...

    @property
    def series(self) -> tuple[Series, ...]: ...

    @property
    def kernels(self) -> tuple[KernelStat, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """Launches and time of some kernels of one side, per step: one number for each process launch."""

    launches: tuple[Fraction, ...]
    time_ns: tuple[Fraction, ...]

    @property
    def launches_mean(self) -> Fraction:
        """Mean over the process launches."""
        return sum(self.launches, Fraction(0)) / len(self.launches)

    @property
    def time_mean_ns(self) -> Fraction:
        """Mean over the process launches."""
        return sum(self.time_ns, Fraction(0)) / len(self.time_ns)


class SideView:
    """The process launches of one side. A launch without a measured step says nothing and is left out."""

    def __init__(self, launches: Sequence[Measured]) -> None:
        self.launches = tuple(launch for launch in launches if launch.step_count > 0)

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """Phases in which any launch ran kernels, sorted."""
        return tuple(sorted(self._kernels))

    @cached_property
    def _kernels(self) -> dict[str, list[tuple[int, KernelStat]]]:
        """Kernels by phase, each with the index of its launch."""
        found: dict[str, list[tuple[int, KernelStat]]] = defaultdict(list)
        for index, launch in enumerate(self.launches):
            for kernel in launch.kernels:
                found[kernel.phase].append((index, kernel))
        return dict(found)

    @cached_property
    def _series(self) -> dict[tuple[str, str], list[Values]]:
        """Values by phase and metric, in the order of the launches."""
        found: dict[tuple[str, str], list[Values]] = defaultdict(list)
        for launch in self.launches:
            for series in launch.series:
                found[series.phase, series.metric].append(series.values)
        return dict(found)

    def amounts(self, phase: str, group_of: Callable[[str], str | None]) -> dict[str, Amount]:
        """Launches and time of the phase's kernels by group; kernels of the group None are left out. A group that a
        launch lacks is zero there."""
        counts: dict[str, list[int]] = defaultdict(lambda: [0] * len(self.launches))
        times_ns: dict[str, list[int]] = defaultdict(lambda: [0] * len(self.launches))
        for index, kernel in self._kernels.get(phase, ()):
            group = group_of(kernel.name)
            if group is not None:
                counts[group][index] += kernel.count
                times_ns[group][index] += kernel.total_ns
        steps = [launch.step_count for launch in self.launches]
        return {
            group: Amount(
                launches=tuple(map(Fraction, counts[group], steps)),
                time_ns=tuple(map(Fraction, times_ns[group], steps)),
            )
            for group in counts
        }

    def amount(self, phase: str, belongs: Callable[[str], bool] = lambda _name: True) -> Amount:
        """Launches and time of the phase's kernels whose name belongs (default: all); zeros where there is none."""
        zeros = (Fraction(0),) * len(self.launches)
        found = self.amounts(phase, lambda name: "all" if belongs(name) else None)
        return found.get("all", Amount(launches=zeros, time_ns=zeros))

    @cached_property
    def kernel_time_ns(self) -> Fraction:
        """Kernel time of all phases per step, mean of the launches."""
        return sum((self.amount(phase).time_mean_ns for phase in self.phases), Fraction(0))

    def values(self, phase: str, metric: str) -> tuple[Values, ...]:
        """The values of a metric in every launch that measured it."""
        return tuple(self._series.get((phase, metric), ()))

    def measured_phases(self, metric: str) -> tuple[str, ...]:
        """Phases in which any launch measured the metric, in the order of their first series."""
        return tuple(phase for phase, measured in self._series if measured == metric)

    def means(self, phase: str, metric: str) -> tuple[float, ...]:
        """Mean over the steps of each launch that measured the metric."""
        return tuple(sum(values) / len(values) for values in self.values(phase, metric))


class PairView:
    """Both sides. Rules may rely on at least one launch on each (pair_rules.find_between)."""

    def __init__(self, baseline: Sequence[Measured], candidate: Sequence[Measured]) -> None:
        self.baseline = SideView(baseline)
        self.candidate = SideView(candidate)

    @cached_property
    def phases(self) -> tuple[str, ...]:
        """Phases with kernels on either side, sorted."""
        return tuple(sorted({*self.baseline.phases, *self.candidate.phases}))

    @cached_property
    def window_ratio(self) -> Fraction:
        """Steps of the longest captured window over those of the shortest: by so much may what comes every few steps
        differ per step between windows of equal code."""
        steps = [launch.step_count for side in (self.baseline, self.candidate) for launch in side.launches]
        return Fraction(max(steps), min(steps))

    def amounts(self, phase: str, belongs: Callable[[str], bool] = lambda _name: True) -> tuple[Amount, Amount]:
        """Launches and time of some kernels (default: all) of a phase, baseline and candidate."""
        return self.baseline.amount(phase, belongs), self.candidate.amount(phase, belongs)

    def grown(self, phase: str, metric: str) -> float:
        """Candidate minus baseline of a metric per step, means over steps and launches; a side without it is zero, as
        a phase that only the other side has."""
        before, after = self.baseline.means(phase, metric) or (0.0,), self.candidate.means(phase, metric) or (0.0,)
        return sum(after) / len(after) - sum(before) / len(before)
