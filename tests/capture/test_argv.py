"""The command line of nsys is a pure function of tool, trigger and command."""

from pathlib import Path

import pytest

from perfci.capture.argv import CAPTURE_RANGE, CaptureTrigger, export_argv, profile_argv
from perfci.capture.nsys import NsysTool
from perfci.errors import MeasurementError
from perfci.phases import collectors

OLD = frozenset({"trace", "sample", "cpuctxsw", "capture-range", "capture-range-end", "nvtx-capture", "output"})
NEW = OLD | {"wait", "cuda-graph-trace", "cuda-event-trace", "discard-environment"}
COMMAND = ("/usr/bin/python", "train.py", "--trace=osrt")


def tool(options):
    return NsysTool(path=Path("/opt/nsys"), version="2022.4.2.1", options=options)


def build(options, trigger):
    return profile_argv(tool(options), trigger=trigger, output=Path("/out/report.nsys-rep"), command=COMMAND)


def test_cuda_on_a_new_nsys():
    assert build(NEW, CaptureTrigger.CUDA) == (
        "/opt/nsys",
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--output=/out/report",
        "--force-overwrite=true",
        "--wait=primary",
        "--discard-environment=true",
        "--cuda-graph-trace=graph",
        "--cuda-event-trace=false",
        *COMMAND,
    )


def test_nvtx_on_an_old_nsys():
    assert build(OLD, CaptureTrigger.NVTX) == (
        "/opt/nsys",
        "profile",
        "--trace=nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=nvtx",
        "--capture-range-end=stop",
        "--output=/out/report",
        "--force-overwrite=true",
        "--nvtx-capture=perfci_capture",
        *COMMAND,
    )


@pytest.mark.parametrize("missing", ["capture-range", "capture-range-end", "nvtx-capture"])
def test_an_nsys_without_what_the_window_needs_is_too_old(missing):
    with pytest.raises(MeasurementError, match=f"does not know --{missing}") as caught:
        build(NEW - {missing}, CaptureTrigger.NVTX)
    assert "newer" in caught.value.todo


def test_the_name_of_the_capture_range_is_one():
    assert CAPTURE_RANGE == collectors.CAPTURE_RANGE


def test_export():
    argv = export_argv(tool(NEW), report=Path("a b.nsys-rep"), out=Path("o.sqlite"))
    assert argv == (
        "/opt/nsys",
        "export",
        "--type=sqlite",
        "--output=o.sqlite",
        "--force-overwrite=true",
        "a b.nsys-rep",
    )
