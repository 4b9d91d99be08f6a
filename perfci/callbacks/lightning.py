"""Callback for Lightning: ``Trainer(…, callbacks=[PerfciCallback()])`` (docs/autophase.md)."""

from __future__ import annotations

import sys
from typing import Any

from perfci.callbacks.loop import FrameworkLoop

if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules:  # the older name of the same library
    from pytorch_lightning import Callback
else:
    from lightning.pytorch import Callback


class PerfciCallback(Callback):  # type: ignore[misc]  # lightning is not read by the type checker
    """Marks ``data``, ``forward``, ``backward``, ``optimizer`` and ``validation`` of ``trainer.fit`` and leads it
    through the plan of perfci's runner, after which training stops as EarlyStopping stops it.

    A step is the batches up to and including the one at whose end ``trainer.global_step`` has grown; gradient
    accumulation and manual optimization with several optimizers are so followed. The first step of each epoch is not
    counted: its fetch cannot be told from the start of the DataLoader's workers. ``data`` includes Lightning's copy to
    the GPU, ``optimizer`` the ``zero_grad`` of automatic optimization.
    """

    def __init__(self) -> None:
        self._loop: FrameworkLoop | None = None
        self._handles: list[Any] = []
        self._optimizer_steps = 0
        self._more = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._loop = FrameworkLoop()
        self._loop.enter()
        self._optimizer_steps = trainer.global_step
        by_hand = not pl_module.automatic_optimization  # then a forward pass for the next optimizer may follow

        def stepped(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if self._loop is not None:
                self._loop.show("forward" if by_hand else None)

        self._handles = [optimizer.register_step_post_hook(stepped) for optimizer in trainer.optimizers]

    def on_train_batch_start(self, _trainer: Any, _pl_module: Any, _batch: Any, _batch_idx: int) -> None:
        self._show("forward")

    def on_before_zero_grad(self, _trainer: Any, _pl_module: Any, _optimizer: Any) -> None:
        self._show("optimizer")

    def on_before_backward(self, _trainer: Any, _pl_module: Any, loss: Any) -> None:
        if self._loop is not None:
            self._loop.log_loss(loss)
        self._show("backward")

    def on_after_backward(self, _trainer: Any, _pl_module: Any) -> None:
        self._show(None)

    def on_before_optimizer_step(self, _trainer: Any, _pl_module: Any, _optimizer: Any) -> None:
        self._show("optimizer")

    def on_train_batch_end(self, trainer: Any, _pl_module: Any, outputs: Any, _batch: Any, _batch_idx: int) -> None:
        if self._loop is None:
            return
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None:  # unlike that of on_before_backward it is not scaled for half precision
            self._loop.log_loss(loss)
        self._more = trainer.global_step == self._optimizer_steps
        if self._more:
            self._loop.show("data")
            return
        self._optimizer_steps = trainer.global_step
        self._loop.saw_first_step()
        self._loop.end()
        if self._loop.finished:
            trainer.should_stop = True
        elif not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._loop.begin()

    def on_validation_start(self, _trainer: Any, _pl_module: Any) -> None:
        if self._loop is not None:
            if not self._more:
                self._loop.drop()
            self._loop.show("validation")

    def on_validation_end(self, trainer: Any, _pl_module: Any) -> None:
        if self._loop is not None:
            self._loop.show(None)
            if not self._more and not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
                self._loop.begin()

    def on_train_epoch_end(self, _trainer: Any, _pl_module: Any) -> None:
        if self._loop is not None:
            self._loop.drop()

    def on_train_end(self, _trainer: Any, _pl_module: Any) -> None:
        self._close("the Lightning trainer ended")

    def on_exception(self, _trainer: Any, _pl_module: Any, exception: BaseException) -> None:
        self._close(f"{type(exception).__name__} was raised: {exception}"[:500])

    def _close(self, reason: str) -> None:
        if self._loop is not None:
            self._loop.leave(reason)
            self._loop = None
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _show(self, phase: str | None) -> None:
        if self._loop is not None:
            self._loop.show(phase)
