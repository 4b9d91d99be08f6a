"""Baseline files: reviewed YAML, one per workload and environment, small enough to read in a pull request."""

import math
import re
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from perfci.config.document import read_document
from perfci.errors import UsageError
from perfci.model.baseline import PinnedBaseline, PinnedLevel
from perfci.model.environment import Environment
from perfci.model.metrics import METRICS, Kind, Statistic
from perfci.model.run import Revision

SCHEMA_VERSION = 1
_TODO = "docs/baselines.md shows the format; `perfci baseline accept` writes such a file anew"
_DIGITS = 6
"""Significant digits of a written level: far below any noise, and short enough to read."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _fraction(value: Any) -> Any:
    """An exact level: an integer, or a fraction written ``total/steps``."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Fraction(value)
    if isinstance(value, str) and re.fullmatch(r"\d+/[1-9]\d*", value):
        return Fraction(value)
    raise ValueError("wanted a whole number, or total/steps")


class _Level(_Section):
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    exact: Annotated[Fraction, BeforeValidator(_fraction)] | None = None
    location: float | None = Field(None, ge=0)
    deviation: float | None = Field(None, ge=0)
    session_deviation: float | None = Field(None, ge=0)
    statistic: Literal["median", "p10"] | None = None
    launches: int = Field(ge=1)
    budget: float | None = Field(None, ge=0, lt=1)


class _Revision(_Section):
    label: str
    commit: str | None = None


class _Document(_Section):
    schema_version: Literal[1]
    workload: str
    reason: str = Field(min_length=1)
    accepted_on: date
    revision: _Revision
    step_count: int = Field(ge=1)
    environment: dict[str, str]
    levels: dict[str, dict[str, _Level]]


def read_baselines(folder: Path) -> tuple[tuple[Path, PinnedBaseline], ...]:
    """All baseline files of a folder, by name; none when the folder does not exist.

    Raises UsageError naming file and line for whatever a file may not hold, and for two files about the same workload
    and environment.
    """
    found: list[tuple[Path, PinnedBaseline]] = []
    seen: dict[tuple[str, tuple[tuple[str, str], ...]], Path] = {}
    for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else ():
        pinned = read_baseline(path)
        about = (pinned.workload, pinned.environment.key)
        if about in seen:
            raise UsageError(
                f"{path} and {seen[about]} are both about {pinned.workload} in the same environment",
                todo="delete the one that no longer counts",
            )
        seen[about] = path
        found.append((path, pinned))
    return tuple(found)


def read_baseline(path: Path) -> PinnedBaseline:
    """One baseline file."""
    document = read_document(path, _Document, todo=_TODO, missing=_TODO)
    levels = [_level(path, phase, *entry) for phase, metrics in document.levels.items() for entry in metrics.items()]
    try:
        return PinnedBaseline(
            workload=document.workload,
            revision=Revision(label=document.revision.label, commit=document.revision.commit),
            environment=Environment.of(document.environment),
            reason=document.reason,
            accepted_on=document.accepted_on.isoformat(),
            step_count=document.step_count,
            levels=tuple(levels),
        )
    except ValueError as error:
        raise UsageError(f"{path}: {error}", todo=_TODO) from error


def _level(path: Path, phase: str, metric: str, level: _Level) -> PinnedLevel:
    where = f"{path}: levels.{phase}.{metric}"
    if metric not in METRICS:
        raise UsageError(f"{where}: unknown metric", wanted="a name of docs/metrics.md", todo=_TODO)
    if (level.exact is None) == (level.location is None):
        raise UsageError(f"{where}: wanted either `exact` or `location`", todo=_TODO)
    try:
        return PinnedLevel(
            phase=phase,
            metric=metric,
            kind=Kind.NOISY if level.exact is None else Kind.EXACT,
            location=float(level.exact if level.exact is not None else level.location or 0.0),
            launches=level.launches,
            exact=level.exact,
            deviation=level.deviation,
            session_deviation=level.session_deviation,
            budget_ratio=level.budget,
            statistic=Statistic(level.statistic) if level.statistic is not None else None,
        )
    except ValueError as error:
        raise UsageError(f"{path}: {error}", todo=_TODO) from error


def write_baseline(folder: Path, pinned: PinnedBaseline) -> Path:
    """Write a baseline as the file of its workload and environment, replacing the one before. Returns its path."""
    levels: dict[str, dict[str, dict[str, Any]]] = {}
    for level in pinned.levels:
        entry: dict[str, Any] = {}
        if level.exact is not None:
            whole = level.exact.denominator == 1
            entry["exact"] = level.exact.numerator if whole else f"{level.exact.numerator}/{level.exact.denominator}"
        else:
            entry["location"] = _rounded(level.location)
        for name in ("deviation", "session_deviation"):
            value = getattr(level, name)
            if value is not None:
                entry[name] = _rounded(value)
        if level.statistic is not None:
            entry["statistic"] = level.statistic.value
        entry["launches"] = level.launches
        if level.budget_ratio is not None:
            entry["budget"] = level.budget_ratio
        levels.setdefault(level.phase, {})[level.metric] = entry
    document = {
        "schema_version": SCHEMA_VERSION,
        "workload": pinned.workload,
        "reason": pinned.reason,
        "accepted_on": date.fromisoformat(pinned.accepted_on),
        "revision": {
            "label": pinned.revision.label,
            **({"commit": pinned.revision.commit} if pinned.revision.commit else {}),
        },
        "step_count": pinned.step_count,
        "environment": dict(pinned.environment.entries),
        "levels": levels,
    }
    path = _file_of(folder, pinned)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "# A reviewed baseline of perfci: see docs/baselines.md. Written by `perfci baseline accept`.\n"
            + yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120, allow_unicode=True)
        )
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def _file_of(folder: Path, pinned: PinnedBaseline) -> Path:
    """The file that is about the same workload and environment already, else a new name."""
    for path, other in read_baselines(folder):
        if (other.workload, other.environment.key) == (pinned.workload, pinned.environment.key):
            return path
    model = pinned.environment.get("gpu_model") or pinned.environment.get("cpu_model") or "machine"
    stem = re.sub(r"[^A-Za-z0-9.]+", "-", f"{pinned.workload}--{model}").strip("-").lower()
    path = folder / f"{stem}.yaml"
    number = 2
    while path.exists():
        path = folder / f"{stem}-{number}.yaml"
        number += 1
    return path


def _rounded(value: float) -> float:
    if value == 0 or not math.isfinite(value):
        return 0.0
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and rounded < 1e15 else rounded
