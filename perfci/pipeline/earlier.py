"""What an earlier session of the same two revisions found, where the newest one found less."""

from collections.abc import Sequence
from dataclasses import replace

from perfci.model.comparison import WorkloadComparison
from perfci.model.run import Note, Run
from perfci.model.verdict import Verdict
from perfci.report.quantities import change_text
from perfci.store.store import Store

_MOST_NAMED = 3


def with_earlier_regression(
    store: Store, judged: WorkloadComparison, runs: Sequence[Run], *, baseline: str, candidate: str
) -> WorkloadComparison:
    """The newest session alone is judged. A regression that an earlier one claimed (stored before any of the judged
    ``runs`` started) is told beside an answer that is none. ``baseline`` and ``candidate`` are revision identities.

    The number of the session is not asked: a runner that starts with an empty database counts each as the first.
    """
    if not runs or judged.tally.worst is Verdict.REGRESSION:
        return judged
    began = min(run.launch.started_at for run in runs)
    for stored in store.comparisons(baseline=baseline, candidate=candidate):  # newest first
        rows = [
            row
            for workload in stored.comparison.workloads
            if workload.workload == judged.workload
            for row in workload.rows
            if row.verdict is Verdict.REGRESSION
        ]
        if stored.stored_at < began and rows:
            named = ", ".join(
                f"{row.phase}/{row.metric}" + (f" {change_text(row.effect)}" if row.effect is not None else "")
                for row in rows[:_MOST_NAMED]
            )
            more = f" and {len(rows) - _MOST_NAMED} more" if len(rows) > _MOST_NAMED else ""
            text = (
                f"an earlier session of these revisions, told on {stored.stored_at:%Y-%m-%d}, found a regression: "
                f"{named}{more}; this answer is that of the newest session alone"
            )
            return replace(judged, notes=(*judged.notes, Note(code="earlier-regression", text=text)))
    return judged
