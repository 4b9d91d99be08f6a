"""What ``perfci history`` prints: the levels of one series and the changes between them."""

import json
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfci.model.changepoint import ChangePoint, ChangeReport, HistoryEntry
from perfci.model.comparison import Effect
from perfci.model.metrics import METRICS
from perfci.report.drawing import drawn
from perfci.report.names import clean
from perfci.report.quantities import NOT_COMPUTABLE, change_text, interval_text, value_text
from perfci.report.terminal import PLAIN_WIDTH
from perfci.report.wording import plural

SCHEMA_VERSION = 1
_SHORT = 10


def history_text(
    title: str, metric: str, entries: Sequence[HistoryEntry], report: ChangeReport, *, width: int = PLAIN_WIDTH
) -> str:
    """One line per level with the commits it spans, and between two levels the range in which the change lies."""
    return drawn(Group(*_parts(title, metric, entries, report)), width=width, color=False)


def _parts(title: str, metric: str, entries: Sequence[HistoryEntry], report: ChangeReport) -> Iterable[RenderableType]:
    measured = sum(bool(entry.values) for entry in entries)
    yield Text(f"{clean(title)}: {plural(measured, 'measured commit')} of {len(entries)}")
    unit = METRICS[metric].unit
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for column in ("commits", "measured", "level", "change", "interval", "change lies in"):
        table.add_column(column, overflow="fold")
    changes: list[ChangePoint | None] = [None, *report.changes]
    for level, change in zip(report.levels, changes, strict=True):
        span = f"{entries[level.first].revision[:_SHORT]} … {entries[level.last].revision[:_SHORT]}"
        row = [span, str(level.count), value_text(level.value, unit)]
        if change is None:
            table.add_row(*row, "", "", "")
            continue
        good, bad = entries[change.last_good].revision, entries[change.first_bad].revision
        effect = change.effect
        table.add_row(
            *row,
            change_text(effect) if effect else NOT_COMPUTABLE,
            interval_text(effect) if effect else "",
            f"{good[:_SHORT]}..{bad[:_SHORT]}",
        )
    yield table
    if not report.changes:
        yield Text("no change of level")


def history_document(
    *, workload: str, phase: str, metric: str, key_hash: str, entries: Sequence[HistoryEntry], report: ChangeReport
) -> dict[str, Any]:
    """The same as plain data: medians per commit, levels, changes. Numbers in the metric's unit; no NaN."""
    return {
        "workload": workload,
        "phase": phase,
        "metric": metric,
        "unit": METRICS[metric].unit.value,
        "key": key_hash,
        "entries": [
            {
                "revision": entry.revision,
                "launches": len(entry.values),
                "median": statistics.median(entry.values) if entry.values else None,
            }
            for entry in entries
        ],
        "levels": [
            {
                "first": entries[level.first].revision,
                "last": entries[level.last].revision,
                "measured": level.count,
                "value": level.value,
            }
            for level in report.levels
        ],
        "changes": [
            {
                "last_good": entries[change.last_good].revision,
                "first_bad": entries[change.first_bad].revision,
                "likeliest": entries[change.index].revision,
                "effect": _effect(change.effect),
                "standing": _effect(change.standing),
                "difference": change.difference,
                "p_value": change.p_value,
            }
            for change in report.changes
        ],
    }


def history_json(documents: Sequence[dict[str, Any]]) -> str:
    """JSON with ``schema_version``, ending in a newline."""
    return (
        json.dumps({"schema_version": SCHEMA_VERSION, "histories": list(documents)}, indent=2, allow_nan=False) + "\n"
    )


def _effect(effect: Effect | None) -> dict[str, float] | None:
    if effect is None:
        return None
    return {"value_ratio": effect.value_ratio, "low_ratio": effect.low_ratio, "high_ratio": effect.high_ratio}
