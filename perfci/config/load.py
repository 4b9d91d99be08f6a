"""From perfci.yaml and workload.yaml to the settings each layer needs."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from perfci.config.document import read_document
from perfci.config.schema import GateSection, PresetSection, ProjectSection, StepsSection, WorkloadSection
from perfci.errors import UsageError
from perfci.model.metrics import Statistic
from perfci.model.settings import Gate, JudgeSettings, MeasureSettings, WorkloadSpec

CONFIG_NAME = "perfci.yaml"
WORKLOAD_NAME = "workload.yaml"

DEFAULT_GATES: tuple[Gate, ...] = (
    Gate(metric="unprofiled_wall_ns", budget_ratio=0.03),
    Gate(metric="gpu_busy_ns", budget_ratio=0.01),
    Gate(metric="kernel_count"),
    Gate(metric="graph_launch_count"),
    Gate(metric="sync_count"),
    Gate(metric="alloc_count"),
    Gate(metric="h2d_bytes"),
    Gate(metric="d2h_bytes"),
    Gate(metric="pageable_copy_count"),
    Gate(metric="peak_allocated_bytes", phase="run", budget_ratio=0.01),
)
"""Gates used when the configuration names none: each applies where its metric is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload ready to be measured: what to run, how, and the gates it adds."""

    spec: WorkloadSpec
    measure: MeasureSettings
    gates: tuple[Gate, ...]
    title: str = ""
    owner: str = ""
    preset: str | None = None
    definition_file: str | None = None
    """The workload.yaml, relative to the repository root, when there is one inside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A checked configuration. ``root`` is the folder of perfci.yaml; every relative path starts there."""

    root: Path
    database_url: str
    judge: JudgeSettings
    sections: tuple[tuple[WorkloadSection, str | None, str], ...]
    """Workloads as written, with the path of their workload.yaml and their default folder, relative to ``root``."""
    general: ProjectSection
    database_named: bool = False
    """True when the database was named outside of the configuration (--db, PERFCI_DATABASE_URL)."""

    @property
    def baselines(self) -> Path:
        """Folder of the reviewed baseline files."""
        return self.root / self.general.baselines

    def workload_names(self) -> tuple[str, ...]:
        """All workload names, in the order of the configuration."""
        return tuple(section.name for section, _, _ in self.sections)

    def definition_hashes(self) -> dict[str, str]:
        """Hash of the definition of each workload, and of its other presets (``NAME@PRESET``)."""
        return {
            spec.name: spec.definition_hash
            for section, definition, folder in self.sections
            for preset in (None, *section.presets)
            for spec in (_workload(section, definition, folder, self.general, preset=preset).spec,)
        }

    def doubts(self) -> tuple[str, ...]:
        """What is questionable about a configuration that can be read: it asks for less than it seems to."""
        if not self.sections:
            return ("no workloads are listed: there is nothing to run (docs/configuration.md)",)
        names = self.workload_names()
        return tuple(
            f"judge.gates: {gate.metric} ({gate.phase}) is gated for {gate.workload!r}, which is none of the "
            f"workloads {', '.join(names)}"
            for gate in self.judge.gates
            if not any(fnmatchcase(name, gate.workload) for name in (*names, *self.definition_hashes()))
        )

    def knows(self, pattern: str) -> bool:
        """True when a configured workload matches the glob, ``tag:NAME``, or ``GLOB@PRESET``."""
        return any(_asked(section, pattern) for section, _, _ in self.sections)

    def select(self, patterns: Sequence[str] = (), *, preset: str | None = None) -> tuple[Workload, ...]:
        """Workloads whose name or tag (written ``tag:NAME``) matches any of the globs; all without patterns. A pattern
        ``GLOB@PRESET``, as reports name a workload in another preset, chooses that preset; others take ``preset``.

        Raises UsageError for a pattern that matches nothing, or a preset that a selected workload does not have.
        """
        if not self.sections:
            raise UsageError(
                f"{self.root / CONFIG_NAME}: no workloads",
                todo="list at least one under `workloads:` (docs/configuration.md)",
            )
        for pattern in patterns:
            if not self.knows(pattern):
                raise UsageError(
                    f"no workload matches {pattern!r}",
                    wanted=f"one of: {', '.join(self.workload_names())}, or tag:NAME",
                )
        chosen = {
            workload.spec.name: workload
            for section, definition, folder in self.sections
            for pattern in patterns or ("*",)
            for asked in _asked(section, pattern)
            for workload in (_workload(section, definition, folder, self.general, preset=asked or preset),)
        }
        return tuple(chosen.values())

    def ad_hoc(self, command: Sequence[str], *, name: str | None = None) -> Workload:
        """A workload for a command line that no file describes: run at the top of the repository, phases marked by
        perfci. Its name is that of the script (or program) unless given. Raises UsageError for an impossible name."""
        script = next((Path(word).stem for word in command if word.endswith(".py")), Path(command[0]).name)
        try:
            section = WorkloadSection(name=name or script, command=list(command), autophase=True)
        except ValidationError as error:
            raise UsageError(
                f"{name or script!r} cannot be the name of a workload",
                wanted="letters, digits, `.`, `_` and `-`, at most 100",
                todo="give one with -w NAME",
            ) from error
        return _workload(section, None, ".", self.general, preset=None)


def find_config(start: Path) -> Path | None:
    """The nearest perfci.yaml in ``start`` or a folder above it."""
    for folder in (start, *start.parents):
        if (folder / CONFIG_NAME).exists():  # a folder of that name is an error to tell, not nothing
            return folder / CONFIG_NAME
    return None


def load_project(path: Path, *, database_url: str | None = None) -> Project:
    """Read and check perfci.yaml with all its workloads. Raises UsageError naming file and line."""
    general = read_document(path, ProjectSection)
    root = path.resolve().parent
    sections: list[tuple[WorkloadSection, str | None, str]] = []
    for entry in general.workloads:
        if isinstance(entry, WorkloadSection):
            sections.append((entry, None, "."))
            continue
        folders = sorted(root.glob(entry)) if not Path(entry).is_absolute() else [Path(entry)]
        files = [folder / WORKLOAD_NAME for folder in folders if (folder / WORKLOAD_NAME).is_file()]
        if not files:
            raise UsageError(f"{path}: workloads: {entry!r} matches no folder with a {WORKLOAD_NAME}")
        for file in files:
            folder = file.parent.resolve()
            if not folder.is_relative_to(root):
                raise UsageError(
                    f"{path}: workloads: {entry!r} lies outside the repository", wanted=f"a folder below {root}"
                )
            relative = folder.relative_to(root).as_posix()
            sections.append((read_document(file, WorkloadSection), f"{relative}/{WORKLOAD_NAME}", relative))
    names = [section.name for section, _, _ in sections]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"{path}: workload {name!r} is defined twice", wanted="one definition for each name")
    judge = general.judge
    # A default never contradicts what the user wrote.
    asked = "min_launches" in judge.model_fields_set
    min_launches = judge.min_launches if asked else min(judge.min_launches, judge.max_launches)
    if min_launches > judge.max_launches:
        raise UsageError(f"{path}: judge: min_launches {judge.min_launches} is above max_launches {judge.max_launches}")
    return Project(
        root=root,
        database_url=_absolute_sqlite(database_url or general.database, Path.cwd() if database_url else root),
        database_named=bool(database_url),
        judge=JudgeSettings(
            gates=DEFAULT_GATES if judge.gates is None else tuple(_gate(gate) for gate in judge.gates),
            error_rate=judge.error_rate,
            statistics=tuple(sorted((metric, Statistic(name)) for metric, name in judge.statistics.items())),
            power=judge.power,
            min_launches=min_launches,
            max_launches=judge.max_launches,
            max_minutes=judge.max_minutes,
        ),
        sections=tuple(sections),
        general=general,
    )


def default_project(root: Path, *, database_url: str | None = None) -> Project:
    """The configuration of a folder without perfci.yaml: built-in gates, no workloads, SQLite under ``.perfci/``."""
    general = ProjectSection()
    return Project(
        root=root.resolve(),
        database_url=_absolute_sqlite(database_url or general.database, Path.cwd() if database_url else root.resolve()),
        database_named=bool(database_url),
        judge=JudgeSettings(gates=DEFAULT_GATES),
        sections=(),
        general=general,
    )


def _absolute_sqlite(url: str, start: Path) -> str:
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith("sqlite:////") and url != "sqlite:///:memory:":
        return f"{prefix}{start / url.removeprefix(prefix)}"
    if "://" not in url:
        raise UsageError(
            f"database {url!r} is not a URL", wanted="for example sqlite:///perfci.db or postgresql+psycopg://host/db"
        )
    return url


def _gate(section: GateSection, *, workload: str | None = None) -> Gate:
    return Gate(
        metric=section.metric,
        phase=section.phase,
        workload=workload or section.workload,
        budget_ratio=section.budget,
        required=True,
    )


def _asked(section: WorkloadSection, pattern: str) -> tuple[str | None, ...]:
    """The preset in which a pattern asks for the workload (None: it names none); empty when it does not match."""
    name, at, preset = pattern.partition("@")
    if pattern.startswith("tag:"):
        found = any(fnmatchcase(tag, pattern.removeprefix("tag:")) for tag in section.tags)
        return (None,) if found else ()
    if not fnmatchcase(section.name, name):
        return ()
    if not at:
        return (None,)
    return (preset,) if preset in section.presets else ()


def _first(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _workload(
    section: WorkloadSection, definition: str | None, folder: str, general: ProjectSection, *, preset: str | None
) -> Workload:
    chosen = preset or section.default_preset
    if chosen is not None and chosen not in section.presets:
        raise UsageError(
            f"workload {section.name!r} has no preset {chosen!r}",
            wanted=f"one of: {', '.join(section.presets) or 'it has none'}",
        )
    size = section.presets[chosen] if chosen is not None else PresetSection()
    measure = general.measure

    def steps(name: str) -> int:
        levels: tuple[StepsSection, ...] = (size, section)
        return _first(*(getattr(level, name) for level in levels), getattr(measure, name))

    spec = WorkloadSpec(
        name=section.name if chosen in (None, section.default_preset) else f"{section.name}@{chosen}",
        command=tuple(size.command or section.command),
        directory=section.directory or folder,
        environment=tuple(sorted({**section.env, **size.env}.items())),
        phases=tuple(section.phases),
        prepare=tuple(section.prepare or ()),
        tags=tuple(section.tags),
        autophase=section.autophase,
        golden_losses=tuple(size.losses or ()),
        loss_tolerance_ratio=size.loss_tolerance,
    )
    settings = MeasureSettings(
        warmup_steps=steps("warmup_steps"),
        wall_steps=steps("wall_steps"),
        capture_steps=steps("capture_steps"),
        launch_timeout_s=section.timeout_s or measure.timeout_s,
        collector=measure.collector,
        pin_cpus=measure.pin_cpus,
        lock_clocks=measure.lock_clocks,
        environment_allow=tuple(general.environment.allow),
    )
    return Workload(
        spec=replace(spec, definition_hash=_definition_hash(spec, settings)),
        measure=settings,
        gates=tuple(_gate(gate, workload=spec.name) for gate in section.gates),
        title=section.title,
        owner=section.owner,
        preset=chosen,
        definition_file=definition,
    )


def _definition_hash(spec: WorkloadSpec, measure: MeasureSettings) -> str:
    """Hash of all that changes what is measured. Editing budgets, timeouts or prose keeps the history."""
    content: dict[str, Any] = {
        "name": spec.name,
        "command": spec.command,
        "directory": spec.directory,
        "environment": spec.environment,
        "phases": spec.phases,
        "autophase": spec.autophase,
        "steps": (measure.warmup_steps, measure.wall_steps, measure.capture_steps),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
