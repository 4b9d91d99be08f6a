"""Facts about this process that torch, the environment and the kernel know. torch is used only when the program did."""

from __future__ import annotations

import os
import platform
import sys
import time
from typing import Any

from perfci import __version__


def torch_if_loaded() -> Any:
    """The torch module when the program has imported it, else None."""
    return sys.modules.get("torch")


def uses_gpu() -> bool:
    """Whether the program has started CUDA: a CPU program on a machine with a GPU has not."""
    torch = torch_if_loaded()
    return torch is not None and bool(torch.cuda.is_available()) and bool(torch.cuda.is_initialized())


def synchronize() -> None:
    """Wait until the GPU is idle; nothing without one."""
    if uses_gpu():
        torch_if_loaded().cuda.synchronize()


def rank_and_world() -> tuple[int, int]:
    """(rank, world size) from torch.distributed when it runs, else from torchrun's variables, else (0, 1)."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank()), int(distributed.get_world_size())
    rank, world = os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", "")
    return (int(rank), int(world)) if rank.isdigit() and world.isdigit() else (0, 1)


def barrier() -> None:
    """Meet the other ranks, so that no rank closes the common capture window while another still works in it."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()


def since_process_start_ns() -> int | None:
    """Age of this process, to the kernel's clock tick (10 ms as a rule); None where the kernel does not say."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123  (pathlib imports slowly)
            ticks = int(file.read().rpartition(")")[2].split()[19])
        now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return max(0, now_ns - ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK"))


def versions() -> dict[str, str]:
    """Versions of what the program runs on; absent when it does not use it."""
    found = {"python": platform.python_version(), "perfci": __version__}
    torch = torch_if_loaded()
    if torch is not None:
        found["torch"] = str(torch.__version__)
        if torch.version.cuda is not None:
            found["cuda"] = str(torch.version.cuda)
        if uses_gpu() and torch.backends.cudnn.is_available():
            found["cudnn"] = str(torch.backends.cudnn.version())
    return found


def gpu() -> dict[str, str] | None:
    """Model and UUID of the GPU in use; None without one."""
    if not uses_gpu():
        return None
    properties = torch_if_loaded().cuda.get_device_properties(torch_if_loaded().cuda.current_device())
    found = {"model": str(properties.name)}
    if getattr(properties, "uuid", None) is not None:  # since torch 2.4
        found["uuid"] = str(properties.uuid)
    return found


_WORKER_JOIN_S = 0.2


def end_data_workers_soon() -> None:
    """Have DataLoader wait for a worker process 0.2 s, not 5, before it ends it. For a process that has measured all.

    A worker forked under nsys does not leave by itself: seen on an H200, a launch with 8 workers took 41 s from
    the written report to its end, with 4 workers 21 s. torch reads this constant when it joins a worker.
    """
    utils: Any = sys.modules.get("torch.utils.data._utils")
    if hasattr(utils, "MP_STATUS_CHECK_INTERVAL"):
        utils.MP_STATUS_CHECK_INTERVAL = min(_WORKER_JOIN_S, utils.MP_STATUS_CHECK_INTERVAL)


def peak_memory() -> dict[str, int]:
    """Peak bytes of torch's CUDA allocator over the whole process; empty without a GPU."""
    if not uses_gpu():
        return {}
    cuda = torch_if_loaded().cuda
    return {
        "peak_allocated_bytes": int(cuda.max_memory_allocated()),
        "peak_reserved_bytes": int(cuda.max_memory_reserved()),
    }
