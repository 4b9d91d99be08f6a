"""What starts and stops at the borders of the capture window: the CUDA profiler, its NVTX twin, or torch.profiler."""

from __future__ import annotations

import importlib
import sys
from typing import Any, Protocol

from perfci.phases.marks import Marks, nvtx_marks, torch_profiler_marks

CAPTURE_RANGE = "perfci_capture"
"""The NVTX range that nsys waits for on machines without CUDA."""


class CaptureError(RuntimeError):
    """The capture window cannot be opened in this process."""


class Collector(Protocol):
    """Something that records the steps between ``start`` and ``stop``, both outside of any step."""

    marks: Marks

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def save(self) -> None:
        """Write what was recorded, after everything else was measured."""


class CudaCollector:
    """nsys with ``--capture-range=cudaProfilerApi``."""

    def __init__(self) -> None:
        torch: Any = sys.modules.get("torch")
        if torch is None or torch.version.cuda is None or not torch.cuda.is_available():
            raise CaptureError("the CUDA capture window needs a program that uses torch with CUDA and a GPU it can see")
        self._torch = torch
        marks = nvtx_marks()
        assert marks is not None  # torch with CUDA has NVTX
        self.marks = marks

    def start(self) -> None:
        self._torch.cuda.check_error(self._torch.cuda.cudart().cudaProfilerStart())

    def stop(self) -> None:
        self._torch.cuda.check_error(self._torch.cuda.cudart().cudaProfilerStop())

    def save(self) -> None:
        """nsys writes its own report."""


class NvtxCollector:
    """nsys with ``--capture-range=nvtx --nvtx-capture=perfci_capture``."""

    def __init__(self) -> None:
        marks = nvtx_marks()
        if marks is None:
            raise CaptureError(
                "no NVTX in this process: torch is a CPU build and the package `nvtx` is missing; "
                "install it in the environment of the workload: pip install 'nvtx<=0.2.11'"
            )
        self.marks = marks

    def start(self) -> None:
        self.marks.open(CAPTURE_RANGE)

    def stop(self) -> None:
        self.marks.close(CAPTURE_RANGE)

    def save(self) -> None:
        """nsys writes its own report."""


class TorchCollector:
    """torch.profiler (Kineto): no other program needed. The trace goes to ``path`` in Chrome's format."""

    def __init__(self, path: str) -> None:
        try:
            from torch import profiler  # noqa: PLC0415
        except ImportError:
            raise CaptureError("the torch collector needs torch in the environment of the workload") from None
        self._path = path
        self._torch_version = str(sys.modules["torch"].__version__)
        self._profile = profiler.profile()  # all activities that this build of torch supports
        self.marks = torch_profiler_marks()

    def start(self) -> None:
        self._profile.start()
        self._profile.add_metadata("perfci_torch_version", self._torch_version)  # the trace does not tell it by itself

    def stop(self) -> None:
        self._profile.stop()

    def save(self) -> None:
        self._profile.export_chrome_trace(self._path)


def open_collector(kind: str, *, torch_trace: str | None) -> Collector | None:
    """The collector of the plan, or None for ``off``; ``module:class`` is made with the path of its file. CaptureError
    when this process cannot have it."""
    if kind == "cuda":
        return CudaCollector()
    if kind == "nvtx":
        return NvtxCollector()
    if kind == "torch":
        assert torch_trace is not None
        return TorchCollector(torch_trace)
    if ":" in kind:
        module, _, name = kind.partition(":")
        try:
            collector: Collector = getattr(importlib.import_module(module), name)(torch_trace)
        except (ImportError, AttributeError) as error:
            raise CaptureError(f"the collector {kind} cannot be loaded: {error}") from error
        return collector
    return None
