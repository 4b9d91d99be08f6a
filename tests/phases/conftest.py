import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.phases import iteration, marks

ROOT = Path(__file__).parents[2]


class Listener:
    """Marks that write down what they are told, and fail when a range is closed that was never opened."""

    def __init__(self):
        self.events = []
        self.depth = 0
        self.marks = marks.Marks("listener", self._push, self._pop)

    def _push(self, name):
        self.depth += 1
        self.events.append(("open", name))

    def _pop(self):
        self.depth -= 1
        assert self.depth >= 0, f"closed more than was opened: {self.events}"
        self.events.append(("close", ""))

    @property
    def opened(self):
        return [name for kind, name in self.events if kind == "open"]


@pytest.fixture
def listener():
    found = Listener()
    yield found
    marks.deactivate()


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Put this process under a plan: ``measured(warmup=…, wall=…, capture=…)`` returns a reader of the sidecar."""
    sidecar = tmp_path / "sidecar.json"

    def begin(*, warmup, wall, capture=1, cap=None, collector="off", **more):
        for name in [n for n in os.environ if n.startswith("PERFCI_")]:
            monkeypatch.delenv(name)
        values = {"SIDECAR": sidecar, "WARMUP_STEPS": warmup, "WALL_STEPS": wall, "CAPTURE_STEPS": capture, **more}
        values |= {"CAPTURE": collector, "WARMUP_CAP": warmup if cap is None else cap}
        for name, value in values.items():
            monkeypatch.setenv(f"PERFCI_{name}", str(value))
        monkeypatch.setattr(iteration, "_driver", None)
        return lambda: json.loads(sidecar.read_text())

    yield begin
    iteration._driver = None
    marks.deactivate()


@pytest.fixture
def run_program(tmp_path):
    """Run a script in its own process with perfci importable and a plan in the environment."""

    def run(source, *, python=sys.executable, warmup=1, wall=2, capture=2, collector="off", environment=()):
        script = tmp_path / "program.py"
        script.write_text(source)
        sidecar = tmp_path / "sidecar.json"
        plan = {"SIDECAR": sidecar, "WARMUP_STEPS": warmup, "WARMUP_CAP": warmup, "WALL_STEPS": wall}
        plan |= {"CAPTURE_STEPS": capture, "CAPTURE": collector}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PERFCI_", "NSYS_"))}
        clean |= {f"PERFCI_{name}": str(value) for name, value in plan.items()}
        done = subprocess.run(
            [python, script],
            env={**clean, "PYTHONPATH": str(ROOT), **dict(environment)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done, json.loads(sidecar.read_text()) if sidecar.exists() else None

    return run
