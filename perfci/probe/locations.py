"""The places that a launch under the probe noted: how such a launch is set up, and what it left."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import Any

from perfci.errors import MeasurementError

SCHEMA_VERSION = 1
COLLECTOR = "perfci.probe.collector:Probe"

_MAX_FILE_BYTES = 64 << 20
_MAX_SOURCE_BYTES = 4 << 20
_MAX_COUNT = 10**15


class LocationKind(StrEnum):
    """What happened at a place: the CPU waited for the GPU (without a GPU: would have), memory was copied between host
    and device from or to pageable or pinned memory, an operator ran."""

    SYNC = "sync"
    PAGEABLE_COPY = "pageable-copy"
    COPY = "copy"
    OPERATOR = "op"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """One kind of event at one place, per step of the probed window; several ranks are added up.

    ``name`` is an operator (``aten::nonzero``), a call of torch.cuda, or for copies ``host to device`` and ``device to
    host``. ``phases`` are the phases that were open, innermost first; none: outside of every phase. ``path`` is
    relative to the checkout and None when no line of the user's code was on the stack; ``text`` is that line without
    its indentation. ``steps_ratio`` is the share of the steps with such an event, of the rank that has most.
    """

    kind: LocationKind
    name: str
    phases: tuple[str, ...]
    path: str | None
    line: int
    function: str
    text: str
    count_per_step: float
    bytes_per_step: float
    steps_ratio: float


def environment(checkout: Path) -> dict[str, str]:
    """Variables for ``capture.launch.launch(extra_environment=…)`` with ``collector: torch``: the launch then runs
    under the probe, and its traces are files for `read_locations`. ``checkout`` is the folder of the user's code."""
    return {"PERFCI_CAPTURE": COLLECTOR, "PERFCI_PROBE_ROOT": str(checkout.resolve())}


def read_locations(files: Sequence[Path], checkout: Path) -> tuple[Location, ...]:
    """Places in the files of one launch (one per rank), most frequent first. Source lines are read from ``checkout``.

    The measured program wrote the files, so nothing in them is trusted: MeasurementError for what is not the format. A
    place whose file or line is not in the checkout becomes one without a path.
    """
    source = _Source(checkout.resolve())
    merged: dict[tuple[Any, ...], _Sum] = {}
    for file in files:
        try:
            steps, rows = _document(file)
            for row in rows:
                path, line, text = source.find(row.path, row.line)
                key = (row.kind, row.name, row.phases, path, line, row.function if path else "", text)
                merged.setdefault(key, _Sum()).add(row, steps)
        except (ValueError, RecursionError) as error:  # JSON nested beyond measure is no document either
            raise MeasurementError(f"{file} is no file of the probe: {error}", todo="measure again") from error
        except OSError as error:
            raise MeasurementError(f"{file} cannot be read: {error.strerror}") from error
    found = [
        Location(
            kind=kind,
            name=name,
            phases=phases,
            path=path,
            line=line,
            function=function,
            text=text,
            count_per_step=total.count_per_step,
            bytes_per_step=total.bytes_per_step,
            steps_ratio=total.steps_ratio,
        )
        for (kind, name, phases, path, line, function, text), total in merged.items()
    ]
    return tuple(sorted(found, key=lambda x: (-x.count_per_step, x.kind, x.name, x.phases, x.path or "", x.line)))


@dataclass(slots=True)
class _Sum:
    count_per_step: float = 0.0
    bytes_per_step: float = 0.0
    steps_ratio: float = 0.0

    def add(self, row: "_Row", steps: int) -> None:
        self.count_per_step += row.count / steps
        self.bytes_per_step += row.moved_bytes / steps
        self.steps_ratio = max(self.steps_ratio, row.steps / steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    kind: LocationKind
    name: str
    phases: tuple[str, ...]
    path: str | None
    line: int
    function: str
    count: int
    moved_bytes: int
    steps: int


def _document(file: Path) -> tuple[int, Iterator[_Row]]:
    if file.stat().st_size > _MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {_MAX_FILE_BYTES >> 20} MiB")
    content = json.loads(file.read_bytes())
    if not isinstance(content, dict) or not isinstance(content.get("locations"), list):
        raise ValueError("it has no list of locations")
    version = content.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise ValueError(f"its schema_version is {str(version)[:20]}, this perfci reads {SCHEMA_VERSION}")
    steps = _whole(content, "steps", low=1)
    return steps, (_row(entry, steps) for entry in content["locations"])


def _row(entry: Any, steps: int) -> _Row:
    if not isinstance(entry, dict):
        raise ValueError("a location is no object")
    phases = entry.get("phases")
    if not isinstance(phases, list) or not all(isinstance(phase, str) for phase in phases):
        raise ValueError("phases must be a list of strings")
    return _Row(
        kind=LocationKind(_text(entry, "kind")),
        name=_text(entry, "name"),
        phases=tuple(phases),
        path=None if entry.get("file") is None else _text(entry, "file"),
        line=_whole(entry, "line"),
        function=_text(entry, "function"),
        count=_whole(entry, "count", low=1),
        moved_bytes=_whole(entry, "bytes"),
        steps=_whole(entry, "steps", low=1, high=steps),
    )


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} must be a string")
    return value


def _whole(entry: Mapping[str, Any], key: str, *, low: int = 0, high: int = _MAX_COUNT) -> int:
    value = entry.get(key)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{key} must be a whole number from {low} to {high}")
    return value


@dataclass(slots=True)
class _Source:
    """Lines of the checkout's files."""

    root: Path
    files: dict[str, tuple[str, list[str]] | None] = field(default_factory=dict)

    def find(self, path: str | None, line: int) -> tuple[str | None, int, str]:
        """The place with its text, or no place."""
        if path is None:
            return None, 0, ""
        if path not in self.files:
            self.files[path] = self._read(path)
        found = self.files[path]
        if found is None or not 1 <= line <= len(found[1]):
            return None, 0, ""
        return found[0], line, found[1][line - 1].strip()

    def _read(self, path: str) -> tuple[str, list[str]] | None:
        try:
            real = (self.root / PurePosixPath(path)).resolve()
            if not real.is_relative_to(self.root) or not real.is_file() or real.stat().st_size > _MAX_SOURCE_BYTES:
                return None
            return real.relative_to(self.root).as_posix(), real.read_text(errors="replace").split("\n")
        except (OSError, ValueError):  # names that no file system takes
            return None
