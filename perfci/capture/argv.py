"""The command lines of nsys, as pure functions."""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from perfci.capture.nsys import NsysTool
from perfci.errors import MeasurementError

CAPTURE_RANGE = "perfci_capture"
"""NVTX range that opens the capture window on machines without CUDA (`perfci.phases` pushes it)."""


class CaptureTrigger(StrEnum):
    """What opens the capture window inside the process."""

    CUDA = "cuda"
    NVTX = "nvtx"


_NEEDED = {
    CaptureTrigger.CUDA: ("capture-range", "capture-range-end"),
    CaptureTrigger.NVTX: ("capture-range", "capture-range-end", "nvtx-capture"),
}

_WHEN_KNOWN = (
    ("wait", "primary"),  # a daemon that the workload leaves behind must not hold the launch
    ("discard-environment", "true"),  # newer versions can leave the environment out of the report themselves
)

_CUDA_WHEN_KNOWN = (
    ("cuda-graph-trace", "graph"),  # the same granularity everywhere; per-node tracing slows every step
    ("cuda-event-trace", "false"),  # newer versions time CUDA events too, which costs and adds nothing here
)


def profile_argv(tool: NsysTool, *, trigger: CaptureTrigger, output: Path, command: Sequence[str]) -> tuple[str, ...]:
    """The command that runs ``command`` under nsys and records its capture window into ``output`` (``.nsys-rep``).

    Only CUDA and NVTX are traced: no sampling, no context switches, no OS runtime. Options that an older nsys lacks are
    left out when the result stays right without them; MeasurementError when it would not.
    """
    missing = [option for option in _NEEDED[trigger] if option not in tool.options]
    if missing:
        raise MeasurementError(
            f"nsys {tool.version} at {tool.path} does not know --{missing[0]}",
            wanted="nsys 2021.5 or newer",
            todo="install a newer Nsight Systems, or name one in PERFCI_NSYS",
        )
    options = [
        ("trace", "cuda,nvtx" if trigger is CaptureTrigger.CUDA else "nvtx"),
        ("sample", "none"),
        ("cpuctxsw", "none"),
        ("capture-range", "cudaProfilerApi" if trigger is CaptureTrigger.CUDA else "nvtx"),
        ("capture-range-end", "stop"),
        ("output", str(output.with_suffix(""))),
        ("force-overwrite", "true"),
    ]
    if trigger is CaptureTrigger.NVTX:
        options.append(("nvtx-capture", CAPTURE_RANGE))
    offered = _WHEN_KNOWN + (_CUDA_WHEN_KNOWN if trigger is CaptureTrigger.CUDA else ())
    options += [(name, value) for name, value in offered if name in tool.options]
    return (str(tool.path), "profile", *(f"--{name}={value}" for name, value in options), *command)


def export_argv(tool: NsysTool, *, report: Path, out: Path) -> tuple[str, ...]:
    """The command that exports ``report`` to the SQLite file ``out``."""
    return (str(tool.path), "export", "--type=sqlite", f"--output={out}", "--force-overwrite=true", str(report))
