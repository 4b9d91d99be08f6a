"""What ``perfci extract`` prints: one extraction as JSON or as text."""

import json
import statistics
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfci.model.metrics import METRICS, PSEUDO_PHASES
from perfci.model.run import KernelStat, Note, Series
from perfci.model.samples import sample_of
from perfci.model.trace import Extraction, TraceInfo
from perfci.report.drawing import drawn
from perfci.report.names import PROSE_LIMIT, clean
from perfci.report.quantities import MISSING, value_text

SCHEMA_VERSION = 1
MAX_KERNELS = 15
"""Rows of the kernel table in text; JSON holds all."""

_PHASE_WIDTH = 20
_COLUMNS = (
    ("wall", "wall_ns"),
    ("GPU busy", "gpu_busy_ns"),
    ("GPU idle", "gpu_idle_ns"),
    ("kernels", "kernel_count"),
    ("graphs", "graph_launch_count"),
    ("waits", "sync_count"),
    ("wait time", "sync_ns"),
    ("H2D", "h2d_bytes"),
    ("D2H", "d2h_bytes"),
    ("exposed copies", "copy_exposed_ns"),
    ("exposed NCCL", "nccl_exposed_ns"),
)
"""What the table shows, as far as it is measured and not 0 everywhere."""


def extraction_document(extraction: Extraction) -> dict[str, Any]:
    """The extraction as plain data, as ``render_json`` writes it."""
    trace = extraction.trace
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "trace": {
            "collector": trace.collector,
            "collector_version": trace.collector_version,
            "gpu_models": list(trace.gpu_models),
            "driver": trace.driver,
            "cuda": trace.cuda,
            "rank_count": trace.rank_count,
            "started_at_utc_ns": trace.started_at_utc_ns,
        },
        "steps": extraction.step_count,
        "dropped_steps": extraction.dropped_step_count,
        "phases": _phases(extraction.series),
        "kernels": [
            {"phase": k.phase, "name": k.name, "count": k.count, "total_ns": k.total_ns} for k in extraction.kernels
        ],
        "api_calls": [
            {"phase": c.phase, "name": c.name, "count": c.count, "total_ns": c.total_ns} for c in extraction.api_calls
        ],
        "notes": [{"code": n.code, "text": n.text, "spoils": n.spoils} for n in extraction.notes],
    }
    if extraction.rank_series:
        document["ranks"] = {str(rank): {"phases": _phases(series)} for rank, series in extraction.rank_series}
    return document


def render_json(extraction: Extraction) -> str:
    """JSON with ``schema_version``, ending in a newline. ``median`` is the median of ``per_step``, ``sample`` the
    declared statistic (docs/metrics.md): the number that comparisons use."""
    return json.dumps(extraction_document(extraction), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_text(extraction: Extraction, *, width: int = 120, color: bool = False) -> str:
    """Phases, kernels and notes for people. Numbers are per step, by the declared statistic of each metric."""
    parts: list[RenderableType] = [Text(_headline(extraction), style="bold"), _phase_table(extraction, width)]
    if extraction.kernels:
        parts.append(_kernel_table(extraction))
    parts += [_note_text(note) for note in extraction.notes]
    return drawn(Group(*parts), width=width, color=color)


def _headline(extraction: Extraction) -> str:
    trace = extraction.trace
    facts = [f"{extraction.step_count} steps"]
    if extraction.dropped_step_count:
        facts.append(f"{extraction.dropped_step_count} incomplete left out")
    if trace.rank_count > 1:
        facts.append(f"{trace.rank_count} ranks")
    return ", ".join(facts) + " · " + " · ".join(_machine(trace))


def _machine(trace: TraceInfo) -> list[str]:
    facts = [f"{trace.collector} {trace.collector_version}"]
    facts += [clean(model) for model in dict.fromkeys(trace.gpu_models)]
    facts += [f"driver {trace.driver}"] if trace.driver else []
    facts += [f"CUDA {trace.cuda}"] if trace.cuda else []
    return [clean(fact) for fact in facts]


def _phase_table(extraction: Extraction, width: int) -> Table:
    samples = {(one.phase, one.metric): sample_of(one).value for one in extraction.series}
    present = list(dict.fromkeys(one.phase for one in extraction.series))
    phases = [name for name in present if name not in PSEUDO_PHASES]
    phases += [name for name in PSEUDO_PHASES[::-1] if name in present and _matters(name, samples)]
    columns = {
        title: [_cell(samples.get((phase, metric)), metric) for phase in phases]
        for title, metric in _COLUMNS
        if any(samples.get((phase, metric)) for phase in phases)
    }
    shown, left = _fitting(columns, width - _PHASE_WIDTH)
    caption = "per step" + (f"; no room for {', '.join(left)}" if left else "")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("phase", overflow="fold", max_width=_PHASE_WIDTH - 2)
    for title in shown:
        table.add_column(title, justify="right", no_wrap=True)
    for at, phase in enumerate(phases):
        table.add_row(Text(clean(phase)), *(columns[title][at] for title in shown))
    return table


def _cell(value: float | None, metric: str) -> str:
    return MISSING if value is None else value_text(value, METRICS[metric].unit)


def _fitting(columns: dict[str, list[str]], width: int) -> tuple[list[str], list[str]]:
    """Titles of the columns that fit, the first ones first, and of those that do not. The first is always there."""
    shown: list[str] = []
    for title, cells in columns.items():
        width -= max(map(len, [title, *cells])) + 3
        if shown and width < 0:
            break
        shown.append(title)
    return shown, [title for title in columns if title not in shown]


def _matters(phase: str, samples: dict[tuple[str, str], float]) -> bool:
    """Pseudo phases without any work are left out of the text."""
    return any(value for (name, _), value in samples.items() if name == phase)


def _kernel_table(extraction: Extraction) -> Table:
    most = sorted(extraction.kernels, key=lambda kernel: (-kernel.total_ns, kernel.phase, kernel.name))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("phase", overflow="fold")
    table.add_column("kernel", overflow="fold", ratio=1)
    table.add_column("launches", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    for kernel in most[:MAX_KERNELS]:
        table.add_row(Text(clean(kernel.phase)), Text(clean(kernel.name)), *_per_step(kernel, extraction.step_count))
    left = most[MAX_KERNELS:]
    if left:
        time = value_text(sum(kernel.total_ns for kernel in left) / extraction.step_count, METRICS["kernel_ns"].unit)
        table.caption, table.caption_justify = f"and {len(left)} more with {time} per step", "left"
    return table


def _per_step(kernel: KernelStat, steps: int) -> tuple[str, str]:
    count = value_text(kernel.count / steps, METRICS["kernel_count"].unit)
    return count, value_text(kernel.total_ns / steps, METRICS["kernel_ns"].unit)


def _note_text(note: Note) -> Text:
    kind = "This trace must not be judged" if note.spoils else "Note"
    return Text(f"{kind} ({note.code}): {clean(note.text, limit=PROSE_LIMIT)}", style="bold red" if note.spoils else "")


def _phases(series: Sequence[Series]) -> dict[str, Any]:
    phases: dict[str, Any] = {}
    for one in series:
        metrics = phases.setdefault(one.phase, {"metrics": {}})["metrics"]
        metrics[one.metric] = {
            "unit": str(METRICS[one.metric].unit),
            "per_step": list(one.values),
            "median": statistics.median(one.values),
            "sample": sample_of(one).value,
        }
    return phases
