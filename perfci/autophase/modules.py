"""Hooks on outermost modules: the forward passes that the script itself asks for."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from torch import is_grad_enabled, nn
from torch.compiler import is_compiling
from torch.jit import ScriptModule
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from perfci.autophase.tracker import Tracker

_parameters: set[int] = set()
_known_optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
_trained: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def learn_parameters(optimizer: Any) -> bool:
    """Remember what this optimizer trains. False when it was known."""
    if optimizer in _known_optimizers:
        return False
    _known_optimizers.add(optimizer)
    _parameters.update(id(p) for group in optimizer.param_groups for p in group["params"])
    _trained.clear()
    return True


def _is_trained(module: Any) -> bool:
    known = _trained.get(module)
    if known is None:
        known = _trained[module] = any(id(p) in _parameters for p in module.parameters())
    return known


def _compiled_frames() -> int:
    """How many frames dynamo has compiled in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else int(dynamo.counters["frames"]["total"])


class ModuleHooks:
    """Hooks on outermost modules, the ones that the script calls itself.

    In a program without torch.compile, global hooks see every module at first; once the warm-up is over they make way
    for hooks of the modules that were outermost, because a global hook costs at every inner module. Compiled code
    depends on the hooks that are there: new ones make it compile again. So when something was compiled already, only
    modules around it get hooks, and they get them at once.
    """

    def __init__(self, active: Callable[[], Tracker | None]) -> None:
        self._active = active
        self._outermost: weakref.WeakSet[Any] = weakref.WeakSet()
        self._global: list[Any] = []
        self._own: list[Any] = []
        self._frames = _compiled_frames()

    def install(self) -> None:
        if self._frames:
            for module in _around_compiled():
                self._hook(module)
        else:
            self._hook_all()

    def _hook_all(self) -> None:
        self._global = [
            register_module_forward_pre_hook(self._begins_somewhere),
            register_module_forward_hook(self._ends_somewhere, always_call=True),
        ]

    def settle(self) -> None:
        """The warm-up is over."""
        if not self._global or _compiled_frames() != self._frames:
            return
        outermost = list(self._outermost)
        if any(isinstance(module, ScriptModule) for module in outermost):  # hooks of its own would have to be scripts
            return
        for handle in self._global:
            handle.remove()
        self._global = []
        for module in {part for wrapper in outermost for part in _unwrapped(wrapper)}:
            self._hook(module)

    def look_again(self) -> None:
        """An optimizer was made or steps for the first time, so there may be modules that nobody has seen. The global
        hooks come back for good: there is no second warm-up in which to learn."""
        if self._own and not self._frames and not _compiled_frames():
            for handle in self._own:
                handle.remove()
            self._own = []
            self._hook_all()

    def _begins_somewhere(self, module: Any, inputs: Any) -> None:
        if is_compiling():
            return
        tracker = self._active()
        if tracker is not None and tracker.at_top:
            self._outermost.add(module)
        self._begins(module, inputs)

    def _ends_somewhere(self, module: Any, inputs: Any, output: Any) -> None:
        if not is_compiling():
            self._ends(module, inputs, output)

    def _begins(self, module: Any, _inputs: Any) -> None:
        tracker = self._active()
        if tracker is not None:
            tracker.forward_begins(
                grad=is_grad_enabled(), training=module.training, trained=lambda: _is_trained(module)
            )

    def _ends(self, _module: Any, _inputs: Any, _output: Any) -> None:
        tracker = self._active()
        if tracker is not None:
            tracker.phase_ends()

    def _hook(self, module: Any) -> None:
        if not isinstance(module, ScriptModule):
            self._own.append(module.register_forward_pre_hook(self._begins))
            self._own.append(module.register_forward_hook(self._ends, always_call=True))


def _unwrapped(module: Any) -> Iterator[Any]:
    """The module and what it wraps (DDP, an average): scripts train the one and validate with the other."""
    while module is not None:
        yield module
        parts = list(module.children())
        module = parts[0] if len(parts) == 1 else None


def _around_compiled() -> list[Any]:
    """Modules made by ``torch.compile(module)`` and those that contain compiled ones: they themselves run as Python,
    so that a hook is not seen by the compiler."""
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
