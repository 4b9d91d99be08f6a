"""What ``perfci extract`` prints: one extraction as JSON or as text."""

import json
import statistics
from collections.abc import Sequence
from typing import Any

from perfci.model.metrics import METRICS
from perfci.model.run import Series
from perfci.model.samples import sample_of
from perfci.model.trace import Extraction

SCHEMA_VERSION = 1


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
    """JSON with ``schema_version``, ending in a newline. ``median`` is the median of ``per_step``, ``sample`` the declared
    statistic (docs/metrics.md): the number that comparisons use."""
    return json.dumps(extraction_document(extraction), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


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
