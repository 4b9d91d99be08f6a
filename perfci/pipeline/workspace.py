"""The place a command works in: its configuration, its repository, its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.capture.repository import Repository
from perfci.capture.uncommitted import PRIVATE_DIRECTORY
from perfci.config.load import Project, Workload, default_project, find_config, load_project
from perfci.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Configuration and repository of a folder. ``repository`` is None outside git: imports still work there."""

    project: Project
    repository: Repository | None

    @property
    def private(self) -> Path:
        """Where perfci keeps its own files."""
        return self.project.root / PRIVATE_DIRECTORY

    def require_repository(self) -> Repository:
        """The repository, or UsageError when there is none."""
        if self.repository is None:
            raise UsageError(
                f"{self.project.root} is not inside a git repository",
                todo="run perfci in a clone; files of other origin can be stored with `perfci import`",
            )
        return self.repository


def chosen_workloads(
    workspace: Workspace, patterns: Sequence[str], *, preset: str | None, command: Sequence[str]
) -> tuple[Workload, ...]:
    """The workloads a command line names: those of the configuration, or the one ``command`` that stood after ``--``
    (then a single pattern is its name)."""
    if not command:
        return workspace.project.select(patterns, preset=preset)
    if len(patterns) > 1 or preset is not None:
        raise UsageError("-w and --preset choose configured workloads", todo="with a command, give at most one -w NAME")
    return (workspace.project.ad_hoc(command, name=patterns[0] if patterns else None),)


def open_workspace(start: Path, *, config: Path | None = None, database_url: str | None = None) -> Workspace:
    """Find perfci.yaml (``config``, or in ``start`` and above) and the repository. Neither must exist."""
    found = config or find_config(start.resolve())
    project = (
        load_project(found, database_url=database_url)
        if found is not None
        else default_project(start, database_url=database_url)
    )
    try:
        repository = Repository.discover(project.root)
    except UsageError as error:
        if "not in a git repository" not in error.seen:
            raise
        repository = None
    return Workspace(project=project, repository=repository)
