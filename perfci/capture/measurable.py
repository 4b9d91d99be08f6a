"""Which gates this machine can never measure, and why: told before the first launch rather than after the last."""

from collections.abc import Iterable
from dataclasses import dataclass

from perfci.capture.checks import Check, Status
from perfci.model.metrics import METRICS, Source
from perfci.model.settings import Gate

WITHOUT_GPU = frozenset(
    {
        "wall_ns",
        "unprofiled_wall_ns",
        "time_to_first_step_ns",
        "throughput_per_s",
        "cpu_instructions_per_step",
        "profiling_overhead_ratio",
    }
)
"""All other metrics are absent, not 0, when nothing runs on a GPU (docs/metrics.md)."""

FROM_UNPROFILED_STEPS = frozenset(
    {
        "unprofiled_wall_ns",
        "throughput_per_s",
        "energy_per_step_uj",
        "cpu_instructions_per_step",
        "profiling_overhead_ratio",
    }
)
_LISTED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What decides whether a metric can be measured here. ``collector_problem`` says why no profiler can be used,
    empty when one can."""

    gpu: bool
    collector_problem: str = ""
    counts_instructions: bool = True
    mig: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedGate:
    """A gate the user wrote, and whether any workload it covers has steps without a profiler."""

    gate: Gate
    unprofiled_steps: bool = True


def gate_checks(wanted: Iterable[WantedGate], abilities: Abilities) -> tuple[Check, ...]:
    """One warning per reason for which gates cannot be measured here; a single good line when all can.

    Only gates that the user wrote count: the built-in ones apply where their metric is measured. Empty without any.
    """
    problems: dict[tuple[str, str], list[str]] = {}
    count = 0
    for entry in wanted:
        count += 1
        problem = _problem(entry, abilities)
        if problem is not None:
            names = problems.setdefault(problem, [])
            if (name := _name(entry.gate)) not in names:
                names.append(name)
    if not problems:
        seen = f"{count} in the configuration; nothing here speaks against measuring them"
        return (Check(name="gates", status=Status.OK, seen=seen),) if count else ()
    return tuple(
        Check(name="gates", status=Status.WARN, seen=f"{_listed(names)}: cannot be measured here: {why}", todo=todo)
        for (why, todo), names in problems.items()
    )


def _problem(entry: WantedGate, abilities: Abilities) -> tuple[str, str] | None:
    """Why a gate cannot be measured and what to do, or None when nothing is known against it."""
    metric = METRICS[entry.gate.metric]
    if not abilities.gpu and metric.name not in WITHOUT_GPU:
        return (
            "it needs an NVIDIA GPU",
            "compare on a machine with one, or leave these gates out here: a gate that is not measured is never green",
        )
    if abilities.collector_problem and metric.source is Source.TRACE:
        return abilities.collector_problem, "install nsys, or write `collector: auto` under `measure:`"
    if not entry.unprofiled_steps and metric.name in FROM_UNPROFILED_STEPS:
        return "`wall_steps` is 0, so that no step runs without a profiler", "give `wall_steps` a number above 0"
    if abilities.mig and metric.name == "energy_per_step_uj":
        return "NVML tells no energy of a MIG slice", "measure on a whole GPU, or leave this gate out here"
    if not abilities.counts_instructions and metric.name == "cpu_instructions_per_step":
        return (
            "the kernel does not let this user count CPU instructions",
            "see `perf events`, or leave this gate out here",
        )
    return None


def _name(gate: Gate) -> str:
    where = "" if gate.workload == "*" else f" of {gate.workload}"
    return f"{gate.metric} ({gate.phase}){where}"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more
