"""Turns calls into torch into signs for the `tracker`, through torch's public hooks where it has them.

Until a process has stepped an optimizer only two optimizer hooks are there. The rest follows after its first step:
module hooks and wrappers around `DataLoader` iteration, `Tensor.to`, `.cuda`, `.copy_` and `.pin_memory`, `backward`,
`GradScaler` and the making of optimizers. Signs of other threads (but for autograd's) and of forked children are
ignored.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import wraps
from threading import _DummyThread, current_thread, get_ident, main_thread
from typing import Any

import torch
import torch.utils.data
from torch import Tensor, is_grad_enabled
from torch.amp import GradScaler
from torch.compiler import is_compiling
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import dataloader

from perfci.autophase.modules import ModuleHooks, learn_parameters
from perfci.autophase.tracker import Tracker
from perfci.phases import current_driver, driver_for, marks, record

_tracker: Tracker | None = None
_modules: ModuleHooks | None = None
_thread = 0
_waiting = False


def _note(text: str) -> None:
    print(f"perfci: {text}", file=sys.stderr)


def _active() -> Tracker | None:
    """The tracker when signs of this thread count."""
    return _tracker if _tracker is not None and get_ident() == _thread else None


def _active_for_optimizers() -> Tracker | None:
    """The same; also on a thread of autograd: gradient hooks that step optimizers run there on a GPU, while the thread
    that trains waits in its backward pass."""
    if _tracker is not None and torch._C._current_graph_task_id() != -1:
        return _tracker
    return _active()


def _forget() -> None:
    global _tracker, _waiting
    if _tracker is not None:  # a fork of the training process: a DataLoader worker, say
        _tracker, _waiting = None, False


# Waiting for training


def wait_for_training() -> None:
    """Watch for the first optimizer step of this process. Called once torch is imported."""
    global _waiting  # noqa: PLW0603
    _waiting = True

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not is_compiling():  # dynamo traces this to nothing
            tracker = _active_for_optimizers()
            if tracker is not None:
                tracker.optimizer_begins()

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not is_compiling():
            if _waiting:
                _start()
            tracker = _active_for_optimizers()
            if tracker is not None:
                tracker.optimizer_ends(optimizer)
                if learn_parameters(optimizer) and _modules is not None:
                    _modules.look_again()

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    os.register_at_fork(after_in_child=_forget)


def _start() -> None:
    """This process trains: install everything, unless somebody else already marks or measures."""
    global _tracker, _modules, _thread, _waiting  # noqa: PLW0603
    _waiting = False
    os.environ["PERFCI_AUTOPHASE"] = "0"  # what it starts from now on is not the training process

    if torch.utils.data.get_worker_info() is not None:
        return
    if current_driver() is not None or marks.used():
        loop = "" if current_driver() is not None else ", and steps are measured only in phases.loop"
        _note(f"the script marks its phases itself; autophase adds nothing{loop}")
        return
    sidecar = record.with_rank(os.environ.get("PERFCI_SIDECAR"))
    if sidecar is not None and os.path.exists(sidecar):  # noqa: PTH110  (pathlib is a slow import)
        _note("another process of this launch is measured already; this one is not")
        return
    driver = driver_for()
    if driver is None:
        return
    driver.saw_first_step()
    driver.give_way = _give_way
    known = main_thread() if isinstance(current_thread(), _DummyThread) else current_thread()  # else one of autograd
    _thread = known.ident or get_ident()
    _modules = ModuleHooks(_active)
    _tracker = Tracker(driver, settled=_modules.settle)
    _wrap_fetch()
    _wrap_transfer()
    _wrap_backward()
    _wrap_scaler()
    _wrap_optimizers(_modules)
    _modules.install()


def _wrap_optimizers(modules: ModuleHooks) -> None:
    """A new optimizer comes with a new model as a rule (folds, trials): its first forward pass shall be seen."""
    original: Any = Optimizer.__init__

    @wraps(original)
    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if _active() is not None:
            modules.look_again()

    Optimizer.__init__ = made


def _give_way() -> None:
    """The script's own loop begins, after optimizer steps outside of it (a warm-up, another stage)."""
    global _tracker
    tracker, _tracker = _tracker, None
    if tracker is not None:
        _note("the script marks its loop itself; autophase adds nothing more")
        tracker.give_way()


# Fetches


def _wrap_fetch() -> None:
    """Every class of DataLoader iterators that has a ``__next__`` of its own. The class, not the loader: the loop
    that is under way has its iterator already."""
    classes = [dataloader._BaseDataLoaderIter]
    while classes:
        found: Any = classes.pop()
        classes += found.__subclasses__()
        if "__next__" in vars(found):
            found.__next__ = _fetching(found.__next__)


def _fetching(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @wraps(original)
    def fetch(self: Any) -> Any:
        tracker = _active()
        if tracker is None:
            return original(self)
        tracker.fetch_begins(getattr(self, "_dataset", None), grad=is_grad_enabled())
        found = False
        try:
            batch = original(self)
            found = True
        finally:
            tracker.fetch_ends(found=found)
        return batch

    return fetch


# Copies to the GPU


def _wrap_transfer() -> None:
    def wrap(name: str, moves: Callable[..., bool]) -> None:
        original: Any = getattr(Tensor, name)

        @wraps(original)
        def transfer(self: Any, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not moves(self, *args, **kwargs):  # dynamo must see nothing of the tracker
                return original(self, *args, **kwargs)
            tracker = _active()
            if tracker is None:
                return original(self, *args, **kwargs)
            tracker.transfer_begins(grad=is_grad_enabled())
            try:
                return original(self, *args, **kwargs)
            finally:
                tracker.phase_ends()

        setattr(Tensor, name, transfer)

    def to(tensor: Any, *args: Any, **kwargs: Any) -> bool:
        if not tensor.is_cpu:
            return False
        target = args[0] if args else kwargs.get("device", kwargs.get("other"))
        if isinstance(target, str):
            return not target.startswith("cpu")
        if isinstance(target, torch.device):
            return bool(target.type != "cpu")
        if isinstance(target, Tensor):
            return not target.is_cpu
        return isinstance(target, int) and not isinstance(target, bool)  # else a dtype

    def cuda(tensor: Any, *_args: Any, **_kwargs: Any) -> bool:
        return bool(tensor.is_cpu)

    def copy(tensor: Any, *args: Any, **kwargs: Any) -> bool:
        source = args[0] if args else kwargs.get("src")
        return not tensor.is_cpu and isinstance(source, Tensor) and bool(source.is_cpu)

    wrap("to", to)
    wrap("cuda", cuda)
    wrap("copy_", copy)
    wrap("pin_memory", cuda)  # on the training thread it is the first half of the copy


# Backward passes


def _wrap_backward() -> None:
    def wrap(original: Any) -> Any:
        @wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            tracker = _active()
            if tracker is None:
                return original(tensors, *args, **kwargs)
            loss = tensors if isinstance(tensors, torch.Tensor) and tensors.numel() == 1 else None
            tracker.backward_begins(_unscaled(loss))
            try:
                return original(tensors, *args, **kwargs)
            finally:
                tracker.phase_ends()

        return backward

    torch.Tensor.backward = _not_compiled(wrap(torch.Tensor.backward))
    torch.autograd.backward = _not_compiled(wrap(torch.autograd.backward))


def _not_compiled(wrapper: Any) -> Any:
    """A compiled function that calls ``backward`` is left there and entered again after it, as ever; dynamo would take
    the wrapper for more code to compile. An optimizer was made, so that torch has loaded dynamo by now."""
    return torch.compiler.disable(wrapper) if "torch._dynamo" in sys.modules else wrapper


# Gradient scalers: they may skip the optimizer step, and what they do to gradients belongs to the optimizer phase

_scaled: tuple[Any, Any] | None = None


def _unscaled(loss: Any) -> Any:
    """The loss that a scaler made ``loss`` of, else ``loss``."""
    global _scaled
    if _scaled is not None:
        (unscaled, scaled), _scaled = _scaled, None
        return unscaled if scaled is loss else loss
    return loss


def _wrap_scaler() -> None:
    def scaling(original: Any) -> Any:
        @wraps(original)
        def scale(self: Any, outputs: Any) -> Any:
            global _scaled  # noqa: PLW0603
            scaled = original(self, outputs)
            if _active() is not None:
                _scaled = outputs, scaled
            return scaled

        return scale

    def stepping(original: Any) -> Any:
        @wraps(original)
        def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            tracker = _active()
            if tracker is None:
                return original(self, optimizer, *args, **kwargs)
            tracker.scaler_begins()
            before = tracker.optimizer_steps
            try:
                return original(self, optimizer, *args, **kwargs)
            finally:
                if tracker.optimizer_steps == before:  # skipped: as much a step of the script as any other
                    tracker.optimizer_ends(optimizer)
                else:
                    tracker.phase_ends()

        return step

    def part(original: Any) -> Any:
        @wraps(original)
        def scaler_part(self: Any, *args: Any, **kwargs: Any) -> Any:
            tracker = _active()
            if tracker is None:
                return original(self, *args, **kwargs)
            tracker.scaler_begins()
            try:
                return original(self, *args, **kwargs)
            finally:
                tracker.phase_ends()

        return scaler_part

    GradScaler.scale = _not_compiled(scaling(GradScaler.scale))
    GradScaler.step = stepping(GradScaler.step)
    GradScaler.unscale_ = part(GradScaler.unscale_)
    GradScaler.update = part(GradScaler.update)
