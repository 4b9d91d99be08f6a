"""Validation that does training work: it runs a backward, or the model is still in training mode."""

import re
from collections.abc import Iterable, Iterator

import numpy as np

from perfci.diagnosis.rule import count, ratio, time
from perfci.diagnosis.view import TraceView
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import Bool, OperationKind

NAME = "validation-autograd"
DOCS = "docs/rules/validation-autograd.md"

VALIDATION_PHASES = frozenset({"validation", "validate", "val", "eval", "evaluation", "test"})
_BACKWARD = re.compile(r"backward|bprop|wgrad|grad_input|(^|_)bwd(_|$)", re.IGNORECASE)
"""Names that PyTorch, cuDNN and FlashAttention give to kernels of the backward pass only."""
_DATA_GRADIENT = re.compile(r"dgrad", re.IGNORECASE)
"""The gradient of a convolution's input: also the forward of a transposed convolution, so no proof by itself."""
_TRAINING_MODE = re.compile(r"dropout|batch_norm_collect_statistics|bn_fw_tr", re.IGNORECASE)
"""Dropout, and batch statistics of batch norm: run by a model in training mode only."""

_NO_GRAD = (
    "Run validation under `with torch.inference_mode():` (or `torch.no_grad()`) and after `model.eval()`: nothing "
    "then records autograd state, keeps activations or launches backward kernels."
)
_EVAL = (
    "Call `model.eval()` before validation and `model.train()` after it: dropout and batch statistics otherwise "
    "also make the validation result wrong. Add `torch.inference_mode()`."
)


def find(view: TraceView) -> Iterable[Finding]:
    """Findings for a validation that launches from an autograd thread or runs backward kernels, or that runs kernels
    of training mode."""
    return tuple(_findings(view))


def _findings(view: TraceView) -> Iterator[Finding]:
    operations = view.timeline.operations
    validation = np.isin(operations.phase, view.phases_named(VALIDATION_PHASES))
    kernels = validation & (operations.kind == OperationKind.KERNEL)
    if not kernels.any() or not view.step_count:
        return
    backward = kernels & (_named(view, _BACKWARD) | _by_autograd(view))
    if backward.any():
        backward |= kernels & _named(view, _DATA_GRADIENT)
        yield _finding(
            view,
            kernels,
            backward,
            subject="backward",
            title="runs backward kernels",
            advice=_NO_GRAD,
            confidence=Confidence.HIGH,
        )
    training = kernels & ~backward & _named(view, _TRAINING_MODE)
    if training.any():
        yield _finding(
            view,
            kernels,
            training,
            subject="training mode",
            title="runs the model in training mode",
            advice=_EVAL,
            confidence=Confidence.MEDIUM,
        )


def _named(view: TraceView, pattern: re.Pattern[str]) -> Bool:
    matches: Bool = np.array([bool(pattern.search(name)) for name in view.timeline.names], dtype=np.bool_)
    return matches[view.timeline.operations.name]


def _by_autograd(view: TraceView) -> Bool:
    """Which operations an autograd thread launched."""
    threads: Bool = np.array(["pt_autograd" in name for name in (*view.timeline.threads, "")], dtype=np.bool_)
    thread = np.append(view.timeline.api_calls.thread, len(view.timeline.threads))  # the last: launch not known
    return np.asarray(threads[thread[view.timeline.operations.launch]], dtype=np.bool_)


def _finding(
    view: TraceView,
    kernels: Bool,
    which: Bool,
    *,
    subject: str,
    title: str,
    advice: str,
    confidence: Confidence,
) -> Finding:
    operations = view.timeline.operations
    duration = operations.end_ns - operations.start_ns
    phase = view.timeline.phases[int(operations.phase[which][0])]
    return Finding(
        rule=NAME,
        phase=phase,
        subject=subject,
        title=f"{phase} {title}",
        evidence=(
            time("time of these kernels per step", int(duration[which].sum()) / view.step_count),
            count("such kernels per step", int(which.sum()) / view.step_count),
            count("such kernels in the trace", int(which.sum())),
            ratio(
                f"share of the kernel time in {phase}",
                int(duration[which].sum()) / max(int(duration[kernels].sum()), 1),
            ),
        ),
        confidence=confidence,
        advice=advice,
        docs=DOCS,
    )
