"""The answer of ``perfci diagnose FILE [FILE2]`` as text and as JSON: what the rules found, which kernels changed."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfci.model.comparison import KernelChange
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import Unit
from perfci.model.run import Note
from perfci.report.drawing import drawn
from perfci.report.json_document import finding_document
from perfci.report.names import PROSE_LIMIT, clean
from perfci.report.quantities import delta_text, pair_texts, ratio_text, value_text
from perfci.report.wording import KERNEL_CHANGE_TEXTS, plural

SCHEMA_VERSION = 1
MAX_KERNELS = 20
"""Rows of the kernel table in text; JSON holds all."""
MIN_SHARE = 0.005
"""Rows with a smaller share of the change are counted, not shown: they would print as 0 %."""

Json = dict[str, Any]

_UNITS = {unit.value: unit for unit in Unit}
_STYLES = {Confidence.HIGH: "bold red", Confidence.MEDIUM: "yellow", Confidence.LOW: "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosedTrace:
    """One trace that was diagnosed: how the user calls it, and what must be known to read the findings."""

    name: str
    step_count: int
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What ``perfci diagnose`` says. With one trace there is no baseline, no kernel change and nothing gone.

    ``findings`` are the candidate's (the only trace's), in the order to show; ``gone`` those of the baseline only;
    ``kernel_changes`` per step, largest share first.
    """

    candidate: DiagnosedTrace
    baseline: DiagnosedTrace | None = None
    findings: tuple[Finding, ...] = ()
    gone: tuple[Finding, ...] = ()
    kernel_changes: tuple[KernelChange, ...] = ()


def render_json(diagnosis: Diagnosis) -> str:
    """One JSON object and a newline; times in ns, names as measured. No NaN, no Infinity."""
    document = {
        "schema_version": SCHEMA_VERSION,
        "baseline": None if diagnosis.baseline is None else _trace(diagnosis.baseline),
        "candidate": _trace(diagnosis.candidate),
        "findings": [finding_document(finding) for finding in diagnosis.findings],
        "gone": [finding_document(finding) for finding in diagnosis.gone],
        "kernel_change_ns": _phase_sums(diagnosis.kernel_changes),
        "kernel_changes": [_kernel_json(change) for change in diagnosis.kernel_changes],
    }
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def render_text(diagnosis: Diagnosis, *, width: int = 100, color: bool = False) -> str:
    """Text of ``width`` columns; escape sequences only with ``color``. All foreign names are made harmless."""
    return drawn(Group(*_report(diagnosis)), width=width, color=color)


def _report(diagnosis: Diagnosis) -> Iterable[RenderableType]:
    traces = [trace for trace in (diagnosis.baseline, diagnosis.candidate) if trace is not None]
    yield Text(" → ".join(f"{clean(t.name)} ({plural(t.step_count, 'step')})" for t in traces), style="bold")
    for trace in traces:
        yield from (Text(f"note: {clean(n.text, limit=PROSE_LIMIT)}", style="yellow") for n in trace.notes)
    yield Text()
    paired = diagnosis.baseline is not None
    shared = [finding for finding in diagnosis.findings if paired and not (finding.new or finding.worsened)]
    if diagnosis.findings:
        yield Text(plural(len(diagnosis.findings), "known pattern"), style="bold")
        for finding in diagnosis.findings:
            if finding not in shared:
                yield _finding(finding, state=("new" if finding.new else "worse") if paired else "")
        yield from (_head(finding, state="on both sides") for finding in shared)
    else:
        yield Text("no known pattern found; this does not mean that the step is as fast as it can be")
    if diagnosis.gone:
        yield Text()
        yield Text("gone since the baseline", style="bold")
        yield from (_finding(finding, state="gone", advise=False) for finding in diagnosis.gone)
    if shared:
        yield Text()
        yield Text(
            "patterns on both sides are told in full by `perfci diagnose` of one file, and by -f json", style="dim"
        )
    if paired:
        yield from _kernels(diagnosis.kernel_changes)


def _head(finding: Finding, *, state: str) -> Text:
    """What and where, on one line. ``state`` says how two traces differ in it; empty for one trace."""
    head = Text.assemble("• ", (clean(finding.title, limit=PROSE_LIMIT), _STYLES[finding.confidence]))
    facts = [clean(finding.phase), *([state] if state else []), f"{finding.confidence.value} confidence"]
    return head.append(f"  [{', '.join(facts)}]", style="dim")


def _finding(finding: Finding, *, state: str, advise: bool = True) -> RenderableType:
    """A finding with its evidence; without ``advise`` nothing is said about what to do."""
    lines = []
    if finding.location is not None:
        lines.append(Text(f"at {clean(finding.location.path, limit=PROSE_LIMIT)}:{finding.location.line}"))
    lines += [Text(f"{clean(q.name)}: {_quantity(q.value, q.unit)}") for q in finding.evidence]
    if advise:
        lines.append(Text(f"→ {clean(finding.advice, limit=2000)}"))
    if finding.docs:
        lines.append(Text(f"see {clean(finding.docs, limit=PROSE_LIMIT)}", style="dim"))
    return Group(_head(finding, state=state), Padding(Group(*lines), (0, 0, 0, 4)))


def _quantity(value: float, unit: str) -> str:
    if unit == Unit.RATIO:
        return ratio_text(value)
    if unit in _UNITS:
        return value_text(value, _UNITS[unit])
    return f"{value_text(value, Unit.COUNT)} {clean(unit)}"


def _kernels(changes: Sequence[KernelChange]) -> Iterable[RenderableType]:
    yield Text()
    if not changes:
        yield Text("no kernel changed in launches or time")
        return
    sums = ", ".join(f"{clean(phase)} {delta_text(0, ns, Unit.NS)}" for phase, ns in _phase_sums(changes).items())
    yield Text("kernels that changed, per step", style="bold")
    yield Text(f"kernel time: {sums}", style="dim")
    total_ns = math.fsum(abs(change.delta_ns) for change in changes)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("phase", overflow="fold")
    table.add_column("kernel", overflow="fold")
    table.add_column("change")
    table.add_column("launches", justify="right")
    table.add_column("time", justify="right")
    table.add_column("share", justify="right")
    shares = [abs(change.delta_ns) / total_ns if total_ns else 1.0 for change in changes]
    shown = sum(share >= MIN_SHARE for share in shares[:MAX_KERNELS])  # largest first
    for change, share in zip(changes[:shown], shares, strict=False):
        table.add_row(*(Text(cell) for cell in _kernel_row(change)), Text(f"{100 * share:.0f}%"))
    yield table
    rest = changes[shown:]
    if rest:
        delta = delta_text(0, math.fsum(change.delta_ns for change in rest), Unit.NS)
        yield Text(f"  and {plural(len(rest), 'further row')}: {delta} together; -f json lists them", style="dim")


def _kernel_row(change: KernelChange) -> tuple[str, str, str, str, str]:
    before, after = pair_texts(change.baseline_count, change.candidate_count, Unit.COUNT)
    launches = before if before == after else f"{before} → {after}"
    delta = delta_text(change.baseline_ns, change.candidate_ns, Unit.NS)
    return clean(change.phase), clean(change.name), KERNEL_CHANGE_TEXTS[change.kind], launches, delta


def _phase_sums(changes: Sequence[KernelChange]) -> dict[str, float]:
    deltas: dict[str, list[float]] = defaultdict(list)
    for change in changes:
        deltas[change.phase].append(change.delta_ns)
    return {phase: math.fsum(values) for phase, values in sorted(deltas.items())}


def _trace(trace: DiagnosedTrace) -> Json:
    notes = [{"code": note.code, "text": note.text, "spoils": note.spoils} for note in trace.notes]
    return {"name": trace.name, "steps": trace.step_count, "notes": notes}


def _kernel_json(change: KernelChange) -> Json:
    return {
        "phase": change.phase,
        "name": change.name,
        "kind": change.kind.value,
        "baseline_count": change.baseline_count,
        "candidate_count": change.candidate_count,
        "baseline_ns": change.baseline_ns,
        "candidate_ns": change.candidate_ns,
        "delta_ns": change.delta_ns,
    }
