"""``perfci doctor``: the machine's checks, for the database that is configured here."""

from pathlib import Path

from perfci.capture.checks import Check
from perfci.capture.doctor import Wanted, run_checks
from perfci.capture.measurable import WantedGate
from perfci.config.load import Project
from perfci.errors import UsageError
from perfci.pipeline.judging import with_gates
from perfci.pipeline.workspace import open_workspace

_SQLITE = "sqlite:///"


def examine(start: Path, *, config: Path | None, database_url: str | None) -> tuple[Check, ...]:
    """All checks for measuring in ``start``. Raises UsageError for a broken configuration: that is mended first."""
    workspace = open_workspace(start, config=config, database_url=database_url)
    url = workspace.project.database_url
    if url.startswith("sqlite") and not url.startswith(_SQLITE):
        raise UsageError(f"database {url!r} is not a SQLite URL", wanted="sqlite:///path")
    database = Path(url.removeprefix(_SQLITE)) if url.startswith(_SQLITE) else None
    return run_checks(start, database=database, wanted=wanted_of(workspace.project))


def wanted_of(project: Project) -> Wanted:
    """What the configuration asks of a machine: the collector, and the gates that the user wrote."""
    workloads = project.select() if project.sections else ()
    gates = []
    for gate in with_gates(project.judge, workloads).gates:
        covered = [w for w in workloads if gate.covers(workload=w.spec.name, phase=gate.phase, metric=gate.metric)]
        if gate.required and covered:
            gates.append(WantedGate(gate=gate, unprofiled_steps=any(w.measure.wall_steps > 0 for w in covered)))
    return Wanted(collector=project.general.measure.collector, gates=tuple(gates))
