"""Reading the sidecar, a file written by the measured program and so trusted in nothing, and what follows from it."""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.errors import MeasurementError
from perfci.model.metrics import METRICS, RUN, STEP, AcrossRanks
from perfci.model.run import LOSS_NOT_FINITE, Note, Series
from perfci.model.sidecar import Sidecar, SidecarStatus, StepTimes

SCHEMA_VERSION = 1
_MAX_BYTES = 64 << 20
_MAX_STEPS = 1_000_000
_MAX_NUMBER = 1 << 62
_MAX_TEXT = 1000

_VERSION_FIELDS = {"python": "python", "torch": "torch", "cuda": "cuda", "cudnn": "cudnn", "perfci": "perfci"}


class _DoubtError(ValueError):
    """A value of the file is not what the schema says."""


def _whole(value: Any, name: str, *, low: int = 0, high: int = _MAX_NUMBER) -> int:
    if type(value) is not int or not low <= value <= high:
        raise _DoubtError(f"{name} is {str(value)[:40]!r}, wanted a whole number from {low} to {high}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _DoubtError(f"{name} is {type(value).__name__}, wanted text")
    return "".join(c if c.isprintable() else " " for c in value[:_MAX_TEXT])


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _DoubtError(f"{name} is {type(value).__name__}, wanted an object")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_STEPS:
        raise _DoubtError(f"{name} is no list, or longer than {_MAX_STEPS}")
    return value


def _times(value: Any, name: str) -> StepTimes:
    window = _object(value, name)
    return StepTimes(
        clock=_text(window.get("clock"), f"{name}.clock"),
        step_wall_ns=tuple(
            _whole(ns, f"{name}.step_wall_ns") for ns in _list(window.get("step_wall_ns"), f"{name}.step_wall_ns")
        ),
        sample_count=_whole(window.get("samples"), f"{name}.samples"),
    )


def _loss(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not math.isfinite(value):
        raise _DoubtError(f"losses hold {str(value)[:40]!r}, wanted finite numbers or null")
    return float(value)


def _refuse_constant(text: str) -> float:
    raise _DoubtError(f"{text} is no JSON number")


def parse_sidecar(text: str) -> Sidecar:
    """The sidecar in ``text``. ValueError, with the reason, for anything that the schema does not allow."""
    content = _object(json.loads(text, parse_constant=_refuse_constant), "the file")
    version = content.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise _DoubtError(f"schema_version is {str(version)[:20]!r}, this perfci reads {SCHEMA_VERSION}")
    asked = _object(content.get("asked"), "asked")
    windows = _object(content.get("windows"), "windows")
    gpu = _object(content.get("gpu", {}), "gpu")
    versions = _object(content.get("versions"), "versions")

    def optional(name: str) -> int | None:
        return None if content.get(name) is None else _whole(content[name], name)

    if type(content.get("steady")) is not bool:
        raise _DoubtError("steady must be true or false")
    return Sidecar(
        status=SidecarStatus(_text(content.get("status"), "status")),
        reason=_text(content.get("reason"), "reason"),
        rank=_whole(content.get("rank"), "rank"),
        world_size=_whole(content.get("world_size"), "world_size", low=1, high=1 << 20),
        collector=_text(content.get("collector"), "collector"),
        marks=_text(content.get("marks"), "marks"),
        asked_warmup_steps=_whole(asked.get("warmup_steps"), "asked.warmup_steps"),
        asked_wall_steps=_whole(asked.get("wall_steps"), "asked.wall_steps"),
        asked_capture_steps=_whole(asked.get("capture_steps"), "asked.capture_steps"),
        steady=content["steady"],
        warmup=_times(windows.get("warmup"), "windows.warmup"),
        wall=_times(windows["wall"], "windows.wall") if "wall" in windows else None,
        capture=_times(windows["capture"], "windows.capture") if "capture" in windows else None,
        losses=tuple(_loss(value) for value in _list(content.get("losses"), "losses")),
        not_finite_losses=tuple(
            _whole(step, "not_finite_losses") for step in _list(content.get("not_finite_losses"), "not_finite_losses")
        ),
        versions=tuple(sorted((_text(k, "versions"), _text(v, f"versions.{k}")) for k, v in versions.items())),
        gpu_model=_text(gpu["model"], "gpu.model") if "model" in gpu else None,
        gpu_uuid=_text(gpu["uuid"], "gpu.uuid") if "uuid" in gpu else None,
        time_to_first_step_ns=optional("time_to_first_step_ns"),
        energy_uj=optional("energy_uj"),
        cpu_instructions=optional("cpu_instructions"),
        peak_allocated_bytes=optional("peak_allocated_bytes"),
        peak_reserved_bytes=optional("peak_reserved_bytes"),
    )


def read_sidecar(path: Path) -> Sidecar:
    """The sidecar at ``path``. MeasurementError when it cannot be read or holds what it must not."""
    wanted = f"a sidecar of schema {SCHEMA_VERSION} as perfci.phases writes it"
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _DoubtError(f"it is larger than {_MAX_BYTES} bytes")
        return parse_sidecar(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MeasurementError(f"the sidecar {path} cannot be read: {error.strerror}", wanted=wanted) from error
    except (ValueError, RecursionError) as error:  # ValueError: also of JSON, UTF-8 and the model
        raise MeasurementError(
            f"the sidecar {path} is not valid: {error}",
            wanted=wanted,
            todo="let no other program write this file, and use one perfci on both ends",
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarFacts:
    """What the sidecars of one launch (all ranks) add to its run: series of the sources SIDECAR and SAMPLER, entries of
    the environment table, losses of rank 0 from the first step, notes."""

    series: tuple[Series, ...]
    environment: tuple[tuple[str, str], ...]
    losses: tuple[float, ...]
    notes: tuple[Note, ...]


def _joined(metric: str, values: Sequence[float | None]) -> float | None:
    """One number for all ranks as the metric table declares; None when a rank does not know it."""
    known = [value for value in values if value is not None]
    if not known or len(known) < len(values):
        return None
    return sum(known) if METRICS[metric].across_ranks is AcrossRanks.SUM else max(known)


def _per_step(total: int | None, times: StepTimes | None) -> int | None:
    if total is None or times is None or not times.step_wall_ns:
        return None
    return round(total / len(times.step_wall_ns))


def _throughput(times: StepTimes | None) -> float | None:
    if times is None or not times.sample_count or not sum(times.step_wall_ns):
        return None
    return times.sample_count * 1e9 / sum(times.step_wall_ns)


def _overhead(sidecar: Sidecar) -> float | None:
    if not sidecar.wall or not sidecar.capture or not sidecar.wall.step_wall_ns or not sidecar.capture.step_wall_ns:
        return None
    wall = statistics.median(sidecar.wall.step_wall_ns)
    return statistics.median(sidecar.capture.step_wall_ns) / wall - 1 if wall > 0 else None


def _series(sidecars: Sequence[Sidecar]) -> tuple[Series, ...]:
    found = []
    walls = [s.wall.step_wall_ns for s in sidecars if s.wall is not None and s.wall.step_wall_ns]
    if walls and len(walls) == len(sidecars):
        slowest = tuple(max(step) for step in zip(*walls, strict=False))  # a step ends when its last rank has ended it
        found.append(Series(phase=STEP, metric="unprofiled_wall_ns", values=slowest))
    singles: dict[str, list[float | None]] = {
        "peak_allocated_bytes": [s.peak_allocated_bytes for s in sidecars],
        "peak_reserved_bytes": [s.peak_reserved_bytes for s in sidecars],
        "time_to_first_step_ns": [s.time_to_first_step_ns for s in sidecars],
        "throughput_per_s": [_throughput(s.wall) for s in sidecars],
        "energy_per_step_uj": [_per_step(s.energy_uj, s.wall) for s in sidecars],
        "cpu_instructions_per_step": [_per_step(s.cpu_instructions, s.wall) for s in sidecars],
        "profiling_overhead_ratio": [_overhead(s) for s in sidecars],
    }
    for metric, values in singles.items():
        value = _joined(metric, values)
        if value is not None:
            found.append(Series(phase=RUN, metric=metric, values=(value,)))
    return tuple(found)


def _notes(sidecars: Sequence[Sidecar]) -> tuple[Note, ...]:
    notes = []
    restless = [s for s in sidecars if not s.steady and s.asked_warmup_steps > 0 and len(s.warmup.step_wall_ns) > 0]
    if restless:
        steps = max(len(s.warmup.step_wall_ns) for s in restless)
        text = f"step times were not yet steady after {steps} warm-up steps"
        notes.append(Note(code="warmup-not-steady", text=text))
    strange = sorted({step for s in sidecars for step in s.not_finite_losses})
    if strange:
        text = f"the loss was not finite in {len(strange)} steps, first in step {strange[0]}"
        notes.append(Note(code=LOSS_NOT_FINITE, text=text))
    if len({s.versions for s in sidecars}) > 1:
        notes.append(Note(code="ranks-differ", text="the ranks ran different versions; those of rank 0 are shown"))
    return tuple(notes)


def facts_of(sidecars: Sequence[Sidecar]) -> SidecarFacts:
    """Join the sidecars of all ranks of one launch.

    Values that one rank does not know are absent for the run, never zero. Losses end before the first step that told
    none. ValueError when there is no sidecar, or a rank twice.
    """
    ordered = sorted(sidecars, key=lambda s: s.rank)
    if not ordered or len({s.rank for s in ordered}) != len(ordered):
        raise ValueError("wanted at least one sidecar, and each rank once")
    first = ordered[0]
    environment = {_VERSION_FIELDS[name]: version for name, version in first.versions if name in _VERSION_FIELDS}
    environment["world_size"] = str(first.world_size)
    models = sorted({s.gpu_model for s in ordered if s.gpu_model})
    if models:
        environment["gpu_model"] = ", ".join(models)
    losses = []
    for loss in first.losses:
        if loss is None:
            break
        losses.append(loss)
    return SidecarFacts(
        series=_series(ordered),
        environment=tuple(sorted((name, value) for name, value in environment.items() if value)),
        losses=tuple(losses),
        notes=_notes(ordered),
    )
