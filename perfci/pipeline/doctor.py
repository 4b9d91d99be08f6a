"""``perfci doctor``: the machine's checks, for the database that is configured here."""

from pathlib import Path

from perfci.capture.checks import Check
from perfci.capture.doctor import run_checks
from perfci.errors import UsageError
from perfci.pipeline.workspace import open_workspace

_SQLITE = "sqlite:///"


def examine(start: Path, *, config: Path | None, database_url: str | None) -> tuple[Check, ...]:
    """All checks for measuring in ``start``. Raises UsageError for a broken configuration: that is mended first."""
    workspace = open_workspace(start, config=config, database_url=database_url)
    url = workspace.project.database_url
    if url.startswith("sqlite") and not url.startswith(_SQLITE):
        raise UsageError(f"database {url!r} is not a SQLite URL", wanted="sqlite:///path")
    return run_checks(start, database=Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None)
