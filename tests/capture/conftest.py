"""Small programs, measured by the real nsys where it is installed, and small git repositories."""

import os
import sys
from pathlib import Path

import pytest
from git_sandbox import Sandbox

from perfci.capture.launch import launch
from perfci.capture.nsys import find_nsys
from perfci.errors import MeasurementError
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec

BASE_PYTHON = str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}")
"""The Python under the virtual environment: it has neither perfci nor nvtx nor torch."""


@pytest.fixture(scope="session")
def nsys():
    try:
        return find_nsys()
    except MeasurementError as error:
        pytest.skip(f"{error.seen}: sh scripts/install-nsys.sh")


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """``measure(source, …)`` launches a program and returns Launched, or raises what launch raises."""
    for name in [n for n in os.environ if n.startswith("PERFCI_")]:
        monkeypatch.delenv(name)

    def run(source, *, tool=None, python=BASE_PYTHON, collector=Collector.NSYS, timeout_s=60.0, out_dir=None, **more):
        folder = tmp_path / "checkout"
        folder.mkdir(exist_ok=True)
        (folder / "program.py").write_text(source)
        workload = WorkloadSpec(
            name="program",
            command=more.pop("command", (python, "program.py")),
            environment=tuple(more.pop("environment", ())),
        )
        settings = MeasureSettings(
            warmup_steps=1,
            wall_steps=2,
            capture_steps=5,
            launch_timeout_s=timeout_s,
            collector=collector,
            environment_allow=tuple(more.pop("allow", ())),
        )
        return launch(
            workload,
            settings,
            checkout=folder,
            out_dir=out_dir or tmp_path / "out",
            tool=tool,
            has_cuda=more.pop("has_cuda", False),
            **more,
        )

    return run


@pytest.fixture
def box(tmp_path):
    return Sandbox(tmp_path / "repo")


@pytest.fixture
def forked(box):
    """main: a - b - c; topic forks at b: b - t."""
    commits = {"a": box.commit("a", f="1"), "b": box.commit("b", f="2")}
    box.git("branch", "topic")
    commits["c"] = box.commit("c", f="3")
    box.git("checkout", "-q", "topic")
    commits["t"] = box.commit("t", g="1")
    return box, commits
