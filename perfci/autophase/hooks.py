"""Turns calls into torch into signs for the `tracker`, through torch's public hooks where it has them.

Until a process has stepped an optimizer only two optimizer hooks are there. The rest follows after its first step:
module hooks and wrappers around `DataLoader` iteration, `Tensor.to`, `.cuda`, `.copy_` and `.pin_memory`, `backward`
and `GradScaler`. Signs of other threads and of forked children are ignored.
"""

from __future__ import annotations

import gc
import os
import sys
import weakref
from collections.abc import Callable
from functools import wraps
from threading import get_ident
from typing import Any

from perfci.autophase.tracker import Tracker

_tracker: Tracker | None = None
_thread = 0
_waiting = False


def _note(text: str) -> None:
    print(f"perfci: {text}", file=sys.stderr)


def _active() -> Tracker | None:
    """The tracker when signs of this thread count."""
    return _tracker if _tracker is not None and get_ident() == _thread else None


def _forget() -> None:
    global _tracker, _waiting
    if _tracker is not None:  # a fork of the training process: a DataLoader worker, say
        _tracker, _waiting = None, False


# Waiting for training


def wait_for_training() -> None:
    """Watch for the first optimizer step of this process. Called once torch is imported."""
    global _waiting  # noqa: PLW0603
    import torch  # noqa: PLC0415
    from torch.optim.optimizer import (  # noqa: PLC0415
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    is_compiling = torch.compiler.is_compiling
    _waiting = True

    def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not is_compiling():  # dynamo traces this to nothing
            tracker = _active()
            if tracker is not None:
                tracker.optimizer_begins()

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not is_compiling():
            if _waiting:
                _start()
            tracker = _active()
            if tracker is not None:
                tracker.optimizer_ends(optimizer)
                _learn_parameters(optimizer)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    os.register_at_fork(after_in_child=_forget)


def _start() -> None:
    """This process trains: install everything, unless somebody else already marks or measures."""
    global _tracker, _thread, _waiting  # noqa: PLW0603
    _waiting = False
    os.environ["PERFCI_AUTOPHASE"] = "0"  # what it starts from now on is not the training process
    import torch.utils.data  # noqa: PLC0415

    if torch.utils.data.get_worker_info() is not None:
        return
    from perfci import phases  # noqa: PLC0415
    from perfci.phases import marks, record  # noqa: PLC0415

    if phases.current_driver() is not None or marks.used():
        _note("the script marks its phases itself; autophase adds nothing")
        return
    sidecar = record.with_rank(os.environ.get("PERFCI_SIDECAR"))
    if sidecar is not None and os.path.exists(sidecar):  # noqa: PTH110  (pathlib is a slow import)
        _note("another process of this launch is measured already; this one is not")
        return
    driver = phases.driver_for()
    if driver is None:
        return
    driver.saw_first_step()
    _thread = get_ident()
    modules = _ModuleHooks()
    _tracker = Tracker(driver, settled=modules.settle)
    _wrap_fetch()
    _wrap_transfer()
    _wrap_backward()
    _wrap_scaler()
    modules.install()


# Fetches


def _wrap_fetch() -> None:
    """Every class of DataLoader iterators that has a ``__next__`` of its own. The class, not the loader: the loop
    that is under way has its iterator already."""
    from torch.utils.data import dataloader  # noqa: PLC0415

    classes = [dataloader._BaseDataLoaderIter]
    while classes:
        found: Any = classes.pop()
        classes += found.__subclasses__()
        if "__next__" in vars(found):
            found.__next__ = _fetching(found.__next__)


def _fetching(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    from torch import is_grad_enabled  # noqa: PLC0415

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


def _leaves_cpu(tensor: Any, target: Any) -> bool:
    """Whether ``tensor.to(target)`` copies from the CPU to another device."""
    from torch import Tensor, device  # noqa: PLC0415

    if not tensor.is_cpu:
        return False
    if isinstance(target, str):
        return not target.startswith("cpu")
    if isinstance(target, Tensor):
        return not bool(target.is_cpu)
    if isinstance(target, device):
        return bool(target.type != "cpu")
    return isinstance(target, int) and not isinstance(target, bool)  # else a dtype


def _wrap_transfer() -> None:
    from torch import Tensor, is_grad_enabled  # noqa: PLC0415

    def wrap(name: str, moves: Callable[..., bool]) -> None:
        original: Any = getattr(Tensor, name)

        @wraps(original)
        def transfer(self: Any, *args: Any, **kwargs: Any) -> Any:
            tracker = _active()
            if tracker is None or not moves(self, *args, **kwargs):
                return original(self, *args, **kwargs)
            tracker.transfer_begins(grad=is_grad_enabled())
            try:
                return original(self, *args, **kwargs)
            finally:
                tracker.phase_ends()

        setattr(Tensor, name, transfer)

    def to(tensor: Any, *args: Any, **kwargs: Any) -> bool:
        return _leaves_cpu(tensor, args[0] if args else kwargs.get("device", kwargs.get("other")))

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
    import torch  # noqa: PLC0415

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

    torch.Tensor.backward = wrap(torch.Tensor.backward)
    torch.autograd.backward = wrap(torch.autograd.backward)


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
    from torch.amp import GradScaler  # noqa: PLC0415

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

    GradScaler.scale = scaling(GradScaler.scale)
    GradScaler.step = stepping(GradScaler.step)
    GradScaler.unscale_ = part(GradScaler.unscale_)
    GradScaler.update = part(GradScaler.update)


# Forward passes

_parameters: set[int] = set()
_known_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
_trained: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def _learn_parameters(optimizer: Any) -> None:
    if optimizer not in _known_optimizers:
        _known_optimizers.add(optimizer)
        _parameters.update(id(p) for group in optimizer.param_groups for p in group["params"])
        _trained.clear()


def _is_trained(module: Any) -> bool:
    known = _trained.get(module)
    if known is None:
        known = _trained[module] = any(id(p) in _parameters for p in module.parameters())
    return known


def _forward_begins(module: Any, _inputs: Any) -> None:
    tracker = _active()
    if tracker is not None:
        from torch import is_grad_enabled  # noqa: PLC0415

        tracker.forward_begins(
            grad=is_grad_enabled(), training=bool(module.training), trained=lambda: _is_trained(module)
        )


def _forward_ends(_module: Any, _inputs: Any, _output: Any) -> None:
    tracker = _active()
    if tracker is not None:
        tracker.phase_ends()


def _compiled_frames() -> int:
    """How many frames dynamo has compiled in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


class _ModuleHooks:
    """Hooks on outermost modules, the ones that the script calls itself.

    In a program without torch.compile, global hooks see every module at first; once the warm-up is over they make way
    for hooks of the modules that were outermost, because a global hook costs at every inner module. Compiled code
    depends on the hooks that are there: new ones make it compile again. So when something was compiled already, only
    modules around it get hooks, and they get them at once.
    """

    def __init__(self) -> None:
        self._outermost: weakref.WeakSet[Any] = weakref.WeakSet()
        self._global: list[Any] = []
        self._frames = _compiled_frames()

    def install(self) -> None:
        if self._frames:
            for module in _around_compiled():
                self._hook(module)
            return
        from torch.nn.modules import module as hooks  # noqa: PLC0415

        self._global = [
            hooks.register_module_forward_pre_hook(self._global_begins),
            hooks.register_module_forward_hook(self._global_ends, always_call=True),
        ]

    def settle(self) -> None:
        """The warm-up is over."""
        if self._global and _compiled_frames() == self._frames:
            for handle in self._global:
                handle.remove()
            self._global = []
            for module in list(self._outermost):
                self._hook(module)

    def _global_begins(self, module: Any, inputs: Any) -> None:
        from torch.compiler import is_compiling  # noqa: PLC0415

        if is_compiling():
            return
        tracker = _active()
        if tracker is not None and tracker.at_top:
            self._outermost.add(module)
        _forward_begins(module, inputs)

    def _global_ends(self, module: Any, inputs: Any, output: Any) -> None:
        from torch.compiler import is_compiling  # noqa: PLC0415

        if not is_compiling():
            _forward_ends(module, inputs, output)

    def _hook(self, module: Any) -> None:
        from torch.jit import ScriptModule  # noqa: PLC0415

        if not isinstance(module, ScriptModule):  # its hooks would have to be scripts too
            module.register_forward_pre_hook(_forward_begins)
            module.register_forward_hook(_forward_ends, always_call=True)


def _around_compiled() -> list[Any]:
    """Modules made by ``torch.compile(module)`` and those that contain compiled ones: they themselves run as Python,
    so that a hook is not seen by the compiler."""
    from torch import nn  # noqa: PLC0415

    optimized: Any = sys.modules["torch._dynamo.eval_frame"].OptimizedModule
    everything = [found for found in gc.get_objects() if issubclass(type(found), nn.Module)]
    inside = {id(part) for module in everything if isinstance(module, optimized) for part in module._orig_mod.modules()}

    def is_compiled(module: Any) -> bool:
        return isinstance(module, optimized) or module._compiled_call_impl is not None

    return [
        module
        for module in everything
        if id(module) not in inside
        and module._compiled_call_impl is None
        and any(is_compiled(part) for part in module.modules())
    ]
