"""The comparison as JSON for programs: raw numbers in the units of the metric table, ``null`` where there is none.

Described by ``comparison.schema.json`` beside this file. ``schema_version`` is raised when a reader of the previous
version could misread the new one; added members do not raise it.
"""

import json
import math
from typing import Any

from perfci.model.comparison import Comparison, Effect, KernelChange, Row, Side
from perfci.model.finding import Finding, SourceLocation
from perfci.model.metrics import METRICS, Unit
from perfci.model.run import Note, Revision
from perfci.model.verdict import Tally, Verdict, exit_code_of
from perfci.report.context import ReportContext
from perfci.report.quantities import NOT_COMPUTABLE
from perfci.report.view import view_of
from perfci.report.view_model import WorkloadView
from perfci.report.wording import status_of

SCHEMA_VERSION = 1

Json = dict[str, Any]


def render(comparison: Comparison, context: ReportContext) -> str:
    """One JSON object and a newline. Strings are as measured (not shortened), escaped to ASCII by JSON's own rules."""
    return json.dumps(document(comparison, context), indent=2, allow_nan=False) + "\n"


def document(comparison: Comparison, context: ReportContext) -> Json:
    """The JSON report as a dictionary. Numbers that are not finite are None."""
    view = view_of(comparison, context)
    return {
        "schema_version": SCHEMA_VERSION,
        "perfci_version": context.perfci_version,
        "generated_at": None if context.generated_at is None else context.generated_at.isoformat(),
        "verdict": comparison.verdict.value,
        "status": view.status.value,
        "exit_code": int(exit_code_of(comparison.verdict)),
        "headline": view.headline,
        "tally": _tally(comparison.tally),
        "error_rate": comparison.error_rate,
        "baseline": _revision(comparison.baseline),
        "candidate": _revision(comparison.candidate),
        "notes": [_note(note) for note in comparison.notes],
        "workloads": [_workload(workload) for workload in view.workloads],
        "reproduce": list(context.reproduce),
        "links": [{"title": link.title, "url": link.url} for link in context.links],
    }


def finite(value: float | None) -> float | None:
    """``value`` where JSON can hold it, else None."""
    return value if value is not None and math.isfinite(value) else None


def _tally(tally: Tally) -> Json:
    return {verdict.value: tally.count(verdict) for verdict in Verdict}


def _revision(revision: Revision) -> Json:
    return {
        "label": revision.label,
        "commit": revision.commit,
        "tree": revision.tree,
        "dirty": revision.dirty,
        "identity": revision.identity,
    }


def _note(note: Note) -> Json:
    return {"code": note.code, "text": note.text, "spoils": note.spoils}


def _workload(view: WorkloadView) -> Json:
    workload = view.source
    return {
        "workload": workload.workload,
        "verdict": workload.tally.worst.value,
        "status": view.status.value,
        "verdict_override": None if workload.verdict_override is None else workload.verdict_override.value,
        "headline": view.headline,
        "tally": _tally(workload.tally),
        "baseline_launches": workload.baseline_launches,
        "candidate_launches": workload.candidate_launches,
        "rows": [_row(row.source) for row in view.rows],
        "findings": [finding_document(finding.source) for finding in view.findings],
        "kernel_changes": [_kernel(kernel.source) for kernel in view.kernels],
        "key_differences": [
            {"field": d.field, "baseline": d.baseline, "candidate": d.candidate} for d in workload.key_differences
        ],
        "environment": {
            "baseline": dict(workload.baseline_environment.entries),
            "candidate": dict(workload.candidate_environment.entries),
        },
        "notes": [_note(note) for note in workload.notes],
    }


def _row(row: Row) -> Json:
    metric = METRICS[row.metric]
    return {
        "phase": row.phase,
        "metric": row.metric,
        "unit": metric.unit.value,
        "direction": metric.direction.value,
        "kind": row.kind.value,
        "gated": row.gated,
        "verdict": None if row.verdict is None else row.verdict.value,
        "status": status_of(row).value,
        "reason": row.reason.value,
        "baseline": _side(row.baseline),
        "candidate": _side(row.candidate),
        "effect": None if row.effect is None else _effect(row.effect),
        "effect_note": _effect_note(row),
        "budget_ratio": finite(row.budget_ratio),
        "mde_ratio": finite(row.mde_ratio),
        "launches_needed": row.launches_needed,
        "flags": list(row.flags),
    }


def _side(side: Side) -> Json:
    return {
        "location": finite(side.location),
        "samples": [finite(sample) for sample in side.samples],
        "spread_ratio": finite(side.spread_ratio),
    }


def _effect(effect: Effect) -> Json:
    """A bound that the launches do not give is null."""
    return {
        "value_ratio": effect.value_ratio,
        "low_ratio": finite(effect.low_ratio),
        "high_ratio": finite(effect.high_ratio),
        "confidence": effect.confidence,
    }


def _effect_note(row: Row) -> str | None:
    if row.effect is None:
        return NOT_COMPUTABLE
    unbounded = finite(row.effect.low_ratio) is None or finite(row.effect.high_ratio) is None
    return "the launches bound the effect on one side only or not at all" if unbounded else None


def finding_document(finding: Finding) -> Json:
    """A finding as every JSON output of perfci gives it; names as measured, not shortened."""
    return {
        "rule": finding.rule,
        "phase": finding.phase,
        "title": finding.title,
        "subject": finding.subject,
        "evidence": [{"name": q.name, "value": finite(q.value), "unit": q.unit} for q in finding.evidence],
        "confidence": finding.confidence.value,
        "advice": finding.advice,
        "new": finding.new,
        "worsened": finding.worsened,
        "docs": finding.docs,
        "location": _place(finding.location),
    }


def _place(place: SourceLocation | None) -> Json | None:
    return None if place is None else {"path": place.path, "line": place.line}


def _kernel(change: KernelChange) -> Json:
    return {
        "phase": change.phase,
        "name": change.name,
        "kind": change.kind.value,
        "unit": Unit.NS.value,
        "baseline_count": finite(change.baseline_count),
        "candidate_count": finite(change.candidate_count),
        "baseline_ns": finite(change.baseline_ns),
        "candidate_ns": finite(change.candidate_ns),
        "delta_ns": finite(change.delta_ns),
        "location": _place(change.location),
    }
