import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INJECT = ROOT / "perfci" / "autophase" / "inject"


class Measured:
    """What a script left: its output, its sidecars by rank, and the steps of its trace."""

    def __init__(self, done, folder):
        self.exit_code, self.out, self.err = done.returncode, done.stdout, done.stderr
        self.sidecars = [json.loads(path.read_text()) for path in sorted(folder.glob("sidecar*.json"))]
        self._traces = sorted(folder.glob("trace*.json"))

    @property
    def sidecar(self):
        assert len(self.sidecars) == 1, self.err
        return self.sidecars[0]

    def window_steps(self):
        return {name: window["steps"] for name, window in self.sidecar["windows"].items()}

    def _ranges(self, rank):
        events = json.loads(self._traces[rank].read_text())["traceEvents"]
        ours = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("perfci:")]
        return sorted((e["ts"], -e["dur"], e["name"].removeprefix("perfci:")) for e in ours)

    def steps(self, rank=0):
        """Phases of every whole step in order, and the phases outside of whole steps."""
        whole, outside, end, inner_end = [], [], -1.0, -1.0
        for start, negative, name in self._ranges(rank):
            if name == "step":
                assert start >= end, "steps overlap"
                end = start - negative
                whole.append([])
            elif start < end:
                assert start >= inner_end, f"{name} lies inside another phase"
                assert start - negative <= end, f"{name} outlives its step"
                inner_end = start - negative
                whole[-1].append(name)
            else:
                outside.append(name)
        return [step for step in whole if "perfci_dropped" not in step], outside


@pytest.fixture
def run_script(tmp_path):
    """Run an unmodified script as the runner would: injected, with a plan, under the torch collector."""

    def run(source, *, command=(), warmup=2, wall=3, capture=6, collector="torch", path=(), script="train.py"):
        (tmp_path / script).write_text(source)
        plan = {"SIDECAR": tmp_path / "sidecar.json", "CAPTURE": collector, "TORCH_TRACE": tmp_path / "trace.json"}
        plan |= {"WARMUP_STEPS": warmup, "WARMUP_CAP": warmup, "WALL_STEPS": wall, "CAPTURE_STEPS": capture}
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PERFCI_", "NSYS_"))}
        clean |= {f"PERFCI_{name}": str(value) for name, value in plan.items()}
        clean |= {"PERFCI_AUTOPHASE": "1", "PYTHONPATH": os.pathsep.join(map(str, (INJECT, *path, ROOT)))}
        clean |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [sys.executable, *command, tmp_path / script],
            env=clean,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return Measured(done, tmp_path)

    return run
