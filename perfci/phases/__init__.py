"""Phases of a training script, for perfci and for anyone who profiles it with nsys.

    from perfci import phases

    for batch in phases.loop(loader):
        with phases.phase("forward"):
            loss = model(batch)
        …
        phases.log_loss(loss)

Needs nothing but the standard library; uses torch and NVTX when the program has them (docs/instrumenting.md).
Outside of a measurement no call has any effect.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

from perfci.phases.iteration import Loop, current_driver, driver_for
from perfci.phases.marks import Mark, deactivate, epoch, listen_by_hand, phase, step

__all__ = ["Mark", "current_driver", "driver_for", "epoch", "log_loss", "loop", "measuring", "phase", "samples", "step"]

_Item = TypeVar("_Item")


def loop(
    iterable: Iterable[_Item],
    *,
    warmup: int | None = None,
    wall: int | None = None,
    steps: int | None = None,
    accumulate: int = 1,
) -> Loop[_Item]:
    """Iterate over ``iterable``; each iteration (or ``accumulate`` of them) is a step, the fetch of its item the phase
    ``data``.

    Under perfci's runner the loop runs ``warmup`` steps (and more until their times are steady, up to a cap), ``wall``
    steps with no profiler, ``steps`` under the profiler, writes the sidecar and ends. The numbers default to those of
    the runner (perfci.yaml); numbers given here win. A pass over the data may end in between: the next call goes on
    where it stopped. Once all is measured a further pass ends the process. Outside perfci it is ``iter(iterable)``.
    """
    return Loop(iterable, warmup=warmup, wall=wall, steps=steps, accumulate=accumulate)


def log_loss(loss: Any) -> None:
    """Tell the loss of the step (tensor or number). Never waits for the GPU: tensors are read after the measurement."""
    current = current_driver()
    if current is not None:
        current.log_loss(loss)


def samples(count: int) -> None:
    """Tell how many samples (or tokens) the step works on, for throughput; calls within a step add up."""
    current = current_driver()
    if current is not None:
        current.add_samples(count)


def measuring() -> bool:
    """True in a process that perfci's runner started: skip checkpoints, long evaluation and uploads then."""
    return bool(os.environ.get("PERFCI_SIDECAR"))


os.register_at_fork(after_in_child=deactivate)  # DataLoader workers are not the training process
listen_by_hand()
