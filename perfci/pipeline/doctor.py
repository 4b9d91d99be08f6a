"""``perfci doctor``: the machine's checks, for the database that is configured here."""

from pathlib import Path

from perfci.capture.checks import Check, Status
from perfci.capture.doctor import Wanted, run_checks
from perfci.capture.measurable import WantedGate
from perfci.config.load import Project
from perfci.errors import PerfciError, UsageError
from perfci.pipeline.judging import with_gates
from perfci.pipeline.workspace import open_workspace
from perfci.store.engine import missing_file
from perfci.store.schema import look_at

_SQLITE = "sqlite:///"
_DATABASE = "database"


def examine(start: Path, *, config: Path | None, database_url: str | None) -> tuple[Check, ...]:
    """All checks for measuring in ``start``. Raises UsageError for a broken configuration: that is mended first."""
    workspace = open_workspace(start, config=config, database_url=database_url)
    url = workspace.project.database_url
    if url.startswith("sqlite") and not url.startswith(_SQLITE):
        raise UsageError(f"database {url!r} is not a SQLite URL", wanted="sqlite:///path")
    database = Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None
    checks = run_checks(start, database=database, wanted=wanted_of(workspace.project))
    return _with_content(checks, url)


def _with_content(checks: tuple[Check, ...], url: str) -> tuple[Check, ...]:
    """The checks with what only opening the database tells: that it is one of this perfci, that the server answers. A
    place that failed already, and a file that is still to be made, stay as they were seen."""
    seen = next((check for check in checks if check.name == _DATABASE), None)
    if missing_file(url) is not None or (seen is not None and seen.status is Status.FAIL):
        return checks
    try:
        check = Check(name=_DATABASE, status=Status.OK, seen=look_at(url))
    except PerfciError as error:
        check = Check(name=_DATABASE, status=Status.FAIL, seen=error.seen, todo=error.todo)
    if seen is None:
        return (*checks, check)
    told = check if check.status is Status.FAIL else seen
    return tuple(told if other is seen else other for other in checks)


def wanted_of(project: Project) -> Wanted:
    """What the configuration asks of a machine: the collector, and the gates that the user wrote."""
    workloads = project.select() if project.sections else ()
    gates = []
    for gate in with_gates(project.judge, workloads).gates:
        covered = [w for w in workloads if gate.covers(workload=w.spec.name, phase=gate.phase, metric=gate.metric)]
        if gate.required and covered:
            gates.append(WantedGate(gate=gate, unprofiled_steps=any(w.measure.wall_steps > 0 for w in covered)))
    return Wanted(collector=project.general.measure.collector, gates=tuple(gates))
