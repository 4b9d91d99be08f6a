"""The history of one series along the main line, and where its level changed."""

from dataclasses import dataclass

from perfci.model.changepoint import ChangeReport, HistoryEntry
from perfci.pipeline.sides import refuse_unknown
from perfci.pipeline.workspace import Workspace
from perfci.stats.changepoint import entries_of, find_changes
from perfci.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """One series in one comparability key: an entry per commit, oldest first, and its changes of level."""

    workload: str
    phase: str
    metric: str
    key_hash: str
    entries: tuple[HistoryEntry, ...]
    report: ChangeReport


def history_of(
    workspace: Workspace, store: Store, *, workload: str, phase: str, metric: str, revision: str, limit: int
) -> tuple[History, ...]:
    """The newest ``limit`` commits of the main line that ends in ``revision``, per comparability key that has points
    there, the key measured last first. Empty when nothing on that line was measured. UsageError for an unknown
    revision or workload."""
    repository = workspace.require_repository()
    refuse_unknown(workspace, store, workload)
    line = repository.first_parents(repository.resolve(revision), limit=limit)[::-1]
    commits = set(line)
    points = [point for point in store.history(workload, phase, metric) if point.commit in commits]
    keys = dict.fromkeys(point.key_hash for point in reversed(points))
    found = []
    for key in keys:
        entries = entries_of([point for point in points if point.key_hash == key], line)
        first = next(index for index, entry in enumerate(entries) if entry.values)
        kept = entries[first:]  # commits before the first measured one are no gap
        found.append(
            History(
                workload=workload,
                phase=phase,
                metric=metric,
                key_hash=key,
                entries=kept,
                report=find_changes(kept),
            )
        )
    return tuple(found)
