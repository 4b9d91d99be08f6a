"""Code is compiled, loaded or captured into a graph inside the measured steps."""

import re
from collections.abc import Iterable

import numpy as np

from perfci.diagnosis.patterns.slow_steps import unplanned_ns
from perfci.diagnosis.rule import api_name, count, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import NO_STEP

NAME = "compilation-in-window"
DOCS = "docs/rules/compilation-in-window.md"

_LOADING = re.compile(
    r"^(cu(da)?(Module|Library)Load|cuLink(Create|Add|Complete)|cu(da)?GraphInstantiate|nvrtcCompile)", re.IGNORECASE
)
"""Calls that load freshly compiled code (Triton, NVRTC, lazy loading) or make a captured graph executable."""
COST_RATIO = 0.05
"""Of an affected step: lazily loading one ready-made kernel takes far less."""
HABIT_RATIO = 0.5
"""From half of the steps on it is not a first step but a recompilation all the time."""

_ONCE = (
    "Let compilation finish before measuring: more warm-up steps (`measure.warmup_steps`), shapes of the measured "
    "steps already in warm-up, `CUDA_MODULE_LOADING=EAGER` for lazily loaded kernels, a persistent cache "
    "(`TORCHINDUCTOR_CACHE_DIR`)."
)
_ALWAYS = (
    "Something compiles or captures all the time: `TORCH_LOGS=recompiles,guards` tells which guard fails. Pad to "
    "fixed shapes, mark dynamic ones (`torch._dynamo.mark_dynamic`, `torch.compile(dynamic=True)`), and reuse "
    "captured graphs."
)


def find(view: TraceView) -> Iterable[Finding]:
    """One finding when loading calls appear in measured steps and cost COST_RATIO of those steps: by the calls' own
    time or, when other steps exist, by how much slower the affected steps are (median against median), without planned
    work such as a validation."""
    calls = view.timeline.api_calls
    names = [api_name(name) for name in view.timeline.names]
    loading_name = np.array([bool(_LOADING.match(name)) for name in names], dtype=np.bool_)
    rows = np.flatnonzero(loading_name[calls.name] & (calls.step != NO_STEP)) if names else np.zeros(0, dtype=np.int64)
    if not len(rows):
        return ()
    affected = view.per_step(calls.step[rows]) > 0
    call_ns = int((calls.end_ns - calls.start_ns)[rows].sum())
    cost_ns = call_ns / int(affected.sum())
    if not affected.all():
        wall_ns = unplanned_ns(view)
        cost_ns = max(cost_ns, float(np.median(wall_ns[affected]) - np.median(wall_ns[~affected])))
    if cost_ns < COST_RATIO * float(np.median(view.wall_ns[affected])):
        return ()
    always = float(affected.mean()) >= HABIT_RATIO
    phase = view.timeline.phases[int(np.bincount(calls.phase[rows]).argmax())]
    first = int(view.steps.index[np.flatnonzero(affected)[0]])
    what = f"in {affected.sum()} of {view.step_count} steps, first in step {first}"
    return (
        Finding(
            rule=NAME,
            phase=phase,
            subject="every step" if always else "some steps",
            title=f"code is compiled or loaded inside the measured window, {what}",
            evidence=(
                time("extra time of an affected step", cost_ns),
                ratio("affected steps", float(affected.mean())),
                count("loading calls", len(rows)),
                time("time in loading calls", call_ns),
            ),
            confidence=Confidence.HIGH if cost_ns * int(affected.sum()) <= 2 * call_ns else Confidence.MEDIUM,
            advice=_ALWAYS if always else _ONCE,
            docs=DOCS,
        ),
    )
