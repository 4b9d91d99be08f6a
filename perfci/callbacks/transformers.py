"""Callback for the Hugging Face Trainer: ``Trainer(…, callbacks=[PerfciCallback()])`` (docs/autophase.md)."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from perfci.callbacks.loop import FrameworkLoop


class PerfciCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not read by the type checker
    """Marks ``data``, ``forward``, ``backward``, ``optimizer``, ``log`` and ``validation`` of a Trainer's loop and
    leads it through the plan of perfci's runner, after which training stops as if ``max_steps`` were reached.

    A step is one optimizer step with all its micro-batches, from the fetch of their data to the Trainer's log. The
    first step of each epoch is not counted: its fetch cannot be told from the start of the DataLoader's workers.
    ``data`` includes the copy to the GPU that accelerate makes, ``forward`` the preparation of inputs, ``backward`` the
    clipping of gradients. With ``torch_compile=True`` the model runs no hooks, and both are ``forward_backward``.
    """

    def __init__(self) -> None:
        self._loop: FrameworkLoop | None = None
        self._handles: list[Any] = []
        self._forward = "forward"
        self._logs = False
        self._awaited: set[str] = set()
        self._rests = False

    def on_train_begin(self, args: Any, _state: Any, _control: Any, model: Any = None, **_kwargs: Any) -> None:
        self._loop = FrameworkLoop()
        self._loop.enter()
        self._forward = "forward_backward" if args.torch_compile else "forward"
        if not args.torch_compile:
            self._handles = [model.register_forward_hook(self._forward_ends)]

    def _forward_ends(self, module: Any, _inputs: Any, output: Any) -> None:
        if self._loop is None or not module.training:
            return
        loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
        if loss is not None:
            self._loop.log_loss(loss)
        self._loop.show("backward")

    def on_step_begin(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> None:
        if self._loop is None:
            return
        if self._logs:  # it was asked for and did not come
            self._end(control)
        self._loop.show(self._forward)

    def on_substep_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        if self._loop is not None:
            self._loop.show(self._forward)

    def on_pre_optimizer_step(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        if self._loop is not None:
            self._loop.show("optimizer")

    def on_step_end(self, _args: Any, state: Any, control: Any, **_kwargs: Any) -> None:
        if self._loop is None:
            return
        self._loop.saw_first_step()
        self._awaited = {what for what in ("evaluate", "save") if getattr(control, f"should_{what}")}
        self._rests = control.should_training_stop or float(state.epoch).is_integer()
        self._logs = bool(control.should_log)
        if self._logs:
            self._loop.show("log")
        else:
            self._end(control)

    def on_log(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> None:
        if self._logs:
            self._end(control)

    def _end(self, control: Any) -> None:
        assert self._loop is not None
        self._logs = False
        self._loop.end()
        if self._loop.finished:
            control.should_training_stop = True
            control.should_evaluate = control.should_save = False
        elif "evaluate" in self._awaited:
            self._loop.show("validation")
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self._loop is not None and not self._awaited and not self._rests:
            self._loop.begin()

    def on_evaluate(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        self._came("evaluate")

    def on_save(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        self._came("save")

    def _came(self, what: str) -> None:
        if self._loop is not None:
            if what == "evaluate":
                self._loop.show(None)
            if what in self._awaited:
                self._awaited.remove(what)
                self._go_on()

    def on_epoch_end(self, _args: Any, _state: Any, control: Any, **_kwargs: Any) -> None:
        if self._loop is None:
            return
        self._loop.drop()
        self._awaited, self._rests = set(), True
        if self._loop.finished:
            control.should_evaluate = control.should_save = False

    def on_train_end(self, _args: Any, _state: Any, _control: Any, **_kwargs: Any) -> None:
        if self._loop is not None:
            self._loop.leave("the Trainer ended")
            self._loop = None
        for handle in self._handles:
            handle.remove()
        self._handles = []
