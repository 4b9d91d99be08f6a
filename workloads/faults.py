"""Plants a known performance fault into an unchanged training script, to prove that perfci finds it.

    python ../faults.py FAULT train.py        # or @FILE: the fault that the file names

Each fault replaces something of torch or `perfci.phases` before the script runs, so that the script itself and the code
of its hot path stay as they are. `none` plants nothing: the clean twin takes the same way. docs/faults.md lists which
rule and which metric each fault must raise.
"""

import contextlib
import functools
import pathlib
import runpy
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from perfci import phases

PRINT_EVERY = 10


def item_each_step() -> None:
    """`loss.item()` in every step: the CPU waits for the GPU."""
    _on_loss(lambda loss: loss.item())


def print_each_n_steps() -> None:
    """A print of the loss every tenth step: a wait that hides in medians."""
    seen = iter(range(10**9))
    _on_loss(lambda loss: print(f"loss {loss.item():.4f}", flush=True) if next(seen) % PRINT_EVERY == 0 else None)


def pageable_copies() -> None:
    """DataLoader without pinned memory: every copy to the GPU goes through a staging buffer and waits."""
    _with_arguments(torch.utils.data.DataLoader, pin_memory=False)


def serial_loader() -> None:
    """DataLoader without worker processes: the training thread makes every batch itself."""
    _with_arguments(torch.utils.data.DataLoader, num_workers=0, persistent_workers=False, prefetch_factor=None)


def unfused_optimizer() -> None:
    """Optimizers that launch several small kernels per parameter."""
    for optimizer in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD):
        _with_arguments(optimizer, fused=False, foreach=False)


def validation_with_grad() -> None:
    """Validation without `no_grad`: it records a graph and keeps every activation."""

    class NoGradOutsideTheScript(torch.no_grad):
        """torch's own code (initialisation, optimizers) needs `no_grad`; only the training script loses it."""

        def __enter__(self) -> None:
            super().__enter__()
            if sys._getframe(1).f_globals["__name__"] == "__main__":
                torch.set_grad_enabled(True)

    torch.no_grad = NoGradOutsideTheScript  # type: ignore[misc]


def sync_each_micro_step() -> None:
    """`no_sync` ignored: gradients travel in every micro-step of an accumulation."""
    nn.parallel.DistributedDataParallel.no_sync = contextlib.nullcontext  # type: ignore[method-assign,assignment]


def cuda_malloc_each_step() -> None:
    """`empty_cache` in every step: memory goes back to the driver and is fetched again."""
    _on_loss(lambda _loss: torch.cuda.empty_cache())


def float32_layer() -> None:
    """The largest linear layer computes in float32 inside bfloat16 autocast."""

    def into_float32(model: nn.Module) -> None:
        layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        largest = max(layers, key=lambda layer: layer.weight.numel())
        plain = largest.forward

        def forward(x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(x.device.type, enabled=False):
                return plain(x.float())

        largest.forward = forward  # type: ignore[method-assign]

    _on_first_forward(into_float32)


def slower_matmul(columns: int) -> None:
    """Feed-forward layers with `columns` more of 4,096 hidden units: the same kernels, each a little slower.

    The units that are added are zero and stay zero, so losses and random numbers are those of the clean twin. How much
    slower the whole step is depends on the model; the profile of an unplanted twin tells it.
    """
    plain = nn.Linear.__init__

    @functools.wraps(plain)
    def make(self: nn.Linear, in_features: int, out_features: int, *given: Any, **named: Any) -> None:
        plain(self, in_features, out_features, *given, **named)
        rows = columns * out_features // 4096 if out_features == 4 * in_features else 0
        more = columns * in_features // 4096 if in_features == 4 * out_features else 0
        if not rows and not more:
            return
        self.in_features, self.out_features = in_features + more, out_features + rows
        self.weight = nn.Parameter(nn.functional.pad(self.weight.detach(), (0, more, 0, rows)))
        if self.bias is not None:
            self.bias = nn.Parameter(nn.functional.pad(self.bias.detach(), (0, rows)))

    nn.Linear.__init__ = make  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "item-each-step": item_each_step,
    "print-each-n-steps": print_each_n_steps,
    "pageable-copies": pageable_copies,
    "serial-loader": serial_loader,
    "unfused-optimizer": unfused_optimizer,
    "validation-with-grad": validation_with_grad,
    "sync-each-micro-step": sync_each_micro_step,
    "cuda-malloc-each-step": cuda_malloc_each_step,
    "float32-layer": float32_layer,
    "slower-matmul-1": functools.partial(slower_matmul, 64),
    "slower-matmul-2": functools.partial(slower_matmul, 128),
    "slower-matmul-5": functools.partial(slower_matmul, 320),
}


def _on_loss(act: Callable[[torch.Tensor], Any]) -> None:
    """Call ``act`` with the loss of every step, inside the phase `log`."""
    plain = phases.log_loss

    def log_loss(loss: torch.Tensor) -> None:
        with phases.phase("log"):
            act(loss)
        plain(loss)

    phases.log_loss = log_loss


def _with_arguments(cls: type, **arguments: Any) -> None:
    """Every object of ``cls`` is made with these arguments, whatever the script says."""
    plain = cls.__init__

    @functools.wraps(plain)
    def make(self: Any, *given: Any, **named: Any) -> None:
        plain(self, *given, **{**named, **arguments})

    cls.__init__ = make  # type: ignore[misc]


def _on_first_forward(change: Callable[[nn.Module], None]) -> None:
    """Call ``change`` once with the outermost module, before its first forward pass."""
    handle: list[Any] = []

    def first(module: nn.Module, _arguments: Any) -> None:
        handle.pop().remove()
        change(module)

    handle.append(nn.modules.module.register_module_forward_pre_hook(first))


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 2 else ""
    if name.startswith("@"):
        name = pathlib.Path(name[1:]).read_text().strip()
    if name not in FAULTS:
        sys.exit(f"usage: faults.py FAULT SCRIPT [ARGUMENT …]; faults: {', '.join(FAULTS)}")
    FAULTS[name]()
    sys.argv = sys.argv[2:]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).resolve().parent)  # the script's own modules, as without us
    runpy.run_path(sys.argv[0], run_name="__main__")
