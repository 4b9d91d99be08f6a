"""What ``perfci run`` prints: the runs of one revision, not compared with anything."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfci.model.metrics import METRICS
from perfci.model.run import Run
from perfci.model.samples import sample_of
from perfci.report.drawing import drawn
from perfci.report.json_document import finding_document
from perfci.report.names import PROSE_LIMIT, clean
from perfci.report.quantities import MISSING, pair_texts, value_text
from perfci.report.ranking import metric_order, phase_order
from perfci.report.terminal import PLAIN_WIDTH
from perfci.report.wording import plural

SCHEMA_VERSION = 1


def runs_text(runs: Sequence[Run], *, width: int = PLAIN_WIDTH) -> str:
    """One table per workload and revision: phase, metric, the median of the launches' samples and their range.

    Known patterns are named above it, one line each. Spoiled launches are named and left out of the numbers. Metrics
    that are zero in every launch are left out.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.workload, run.revision.identity), []).append(run)
    if not groups:
        return "no run\n"
    return drawn(Group(*(part for group in groups.values() for part in _group(group))), width=width, color=False)


def _group(runs: Sequence[Run]) -> Iterable[RenderableType]:
    good = [run for run in runs if not run.spoiled]
    revision = clean(runs[0].revision.label) + (" + uncommitted changes" if runs[0].revision.dirty else "")
    steps = sorted({run.step_count for run in good})
    profiled = f", {' or '.join(map(str, steps))} profiled steps each" if steps else ""
    yield Text(f"{clean(runs[0].workload)} at {revision}: {plural(len(runs), 'launch')}{profiled}")
    if len(good) < len(runs):
        yield Text(f"  {plural(len(runs) - len(good), 'launch')} spoiled and left out")
    for note in dict.fromkeys((note.text, note.spoils) for run in runs for note in run.notes):
        yield Text(f"  {'spoiled' if note[1] else 'note'}: {clean(note[0], limit=PROSE_LIMIT)}")
    yield from _patterns(good)
    samples: dict[tuple[str, str], list[float]] = {}
    for run in good:
        for series in run.series:
            samples.setdefault((series.phase, series.metric), []).append(sample_of(series).value)
    told = {key: values for key, values in samples.items() if any(values)}
    if told:
        yield _table(told)
    if len(told) < len(samples):
        yield Text(f"  {plural(len(samples) - len(told), 'metric')} zero in every launch; -f json lists them")
    yield Text()


def _patterns(runs: Sequence[Run]) -> Iterable[RenderableType]:
    """One line per pattern, in the words of the first launch that shows it: its numbers differ between launches."""
    found = {(f.rule, f.phase, f.subject): f for run in reversed(runs) for f in reversed(run.findings)}
    times = Counter(key for run in runs for key in {(f.rule, f.phase, f.subject) for f in run.findings})
    for key, finding in sorted(found.items()):
        often = f", in {times[key]} of {plural(len(runs), 'launch')}" if times[key] < len(runs) else ""
        yield Text(f"  known pattern: {clean(finding.title, limit=PROSE_LIMIT)} [{clean(finding.phase)}{often}]")


def _table(samples: dict[tuple[str, str], list[float]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("phase", overflow="fold", max_width=32)
    table.add_column("metric", overflow="fold")
    for title in ("per step", "lowest launch", "highest launch"):
        table.add_column(title, justify="right", no_wrap=True)
    phases = phase_order(phase for phase, _ in samples)
    for phase, metric in sorted(samples, key=lambda key: (phases[key[0]], metric_order(key[1]))):
        values = samples[phase, metric]
        unit = METRICS[metric].unit
        lowest, highest = pair_texts(min(values), max(values), unit) if len(values) > 1 else (MISSING, MISSING)
        middle = value_text(statistics.median(values), unit)
        table.add_row(Text(clean(phase)), Text(metric), Text(middle), Text(lowest), Text(highest))
    return table


def runs_json(runs: Sequence[Run]) -> str:
    """Raw numbers per step and the sample of each run, with units, and the known patterns found in its trace; strict
    JSON, ending in a newline."""
    document = {"schema_version": SCHEMA_VERSION, "runs": [_run(run) for run in runs]}
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _run(run: Run) -> dict[str, Any]:
    phases: dict[str, Any] = {}
    for series in run.series:
        metrics = phases.setdefault(series.phase, {"metrics": {}})["metrics"]
        metrics[series.metric] = {
            "unit": METRICS[series.metric].unit.value,
            "per_step": list(series.values),
            "sample": sample_of(series).value,
        }
    return {
        "workload": run.workload,
        "revision": {
            "label": run.revision.label,
            "commit": run.revision.commit,
            "dirty": run.revision.dirty,
            "identity": run.revision.identity,
        },
        "started_at": run.launch.started_at.isoformat(),
        "duration_ns": run.launch.duration_ns,
        "steps": run.step_count,
        "spoiled": run.spoiled,
        "environment": dict(run.environment.entries),
        "phases": phases,
        "findings": [finding_document(finding) for finding in run.findings],
        "notes": [{"code": note.code, "text": note.text, "spoils": note.spoils} for note in run.notes],
        "artifacts": list(run.artifacts),
    }
