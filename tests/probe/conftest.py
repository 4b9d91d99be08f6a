import os
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from perfci.phases import iteration
from perfci.probe.locations import environment, read_locations

ROOT = Path(__file__).parents[2]


class Probed:
    """A small checkout with a training script, run under the probe as the runner would."""

    def __init__(self, folder):
        self.folder = folder
        self.checkout = folder / "checkout"
        self.checkout.mkdir()

    def write(self, name, text):
        path = self.checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))

    def run(self, text, *, steps=4, own_process=False, **more):
        """Places of a script, run as the runner would, in this process if nothing of a process is at stake."""
        self.write("train.py", text)
        trace = self.folder / "trace.json"
        values = {
            "PERFCI_SIDECAR": str(self.folder / "sidecar.json"),
            "PERFCI_WARMUP_STEPS": "1",
            "PERFCI_WARMUP_CAP": "1",
            "PERFCI_WALL_STEPS": "0",
            "PERFCI_CAPTURE_STEPS": str(steps),
            "PERFCI_TORCH_TRACE": str(trace),
            **environment(self.checkout),
            **more,
        }
        if own_process:
            base = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            command = [sys.executable, "train.py"]
            done = subprocess.run(
                command, cwd=self.checkout, env=base | values, capture_output=True, text=True, timeout=120, check=False
            )
            assert done.returncode == 0, done.stderr
        else:
            self._run_here(values)
        return read_locations([trace], self.checkout)

    def _run_here(self, values):
        with pytest.MonkeyPatch.context() as patch:
            for name in [n for n in os.environ if n.startswith("PERFCI_")]:
                patch.delenv(name)
            for name, value in values.items():
                patch.setenv(name, value)
            patch.chdir(self.checkout)
            patch.setattr(iteration, "_driver", None)
            patch.setattr(sys, "path", [str(self.checkout), *sys.path])
            runpy.run_path("train.py", run_name="__main__")


@pytest.fixture
def probed(tmp_path):
    return Probed(tmp_path)


@pytest.fixture(scope="module")
def probed_once(tmp_path_factory):
    return Probed(tmp_path_factory.mktemp("probed"))
