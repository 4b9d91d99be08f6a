import json
import os

import pytest

from perfci.phases import iteration, marks


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Put this process under a plan with the torch collector: ``plan(warmup, wall, capture)`` gives a reader of what
    the launch left: the sidecar, and for every whole step its phases, then the phases outside of steps."""
    sidecar, trace = tmp_path / "sidecar.json", tmp_path / "trace.json"

    def read():
        events = json.loads(trace.read_text())["traceEvents"]
        ours = [e for e in events if e.get("cat") == "user_annotation" and e["name"].startswith("perfci:")]
        whole, outside, end = [], [], -1.0
        for start, negative, name in sorted((e["ts"], -e["dur"], e["name"].removeprefix("perfci:")) for e in ours):
            if name == "step":
                end = start - negative
                whole.append([])
            else:
                (whole[-1] if start < end else outside).append(name)
        return json.loads(sidecar.read_text()), [s for s in whole if "perfci_dropped" not in s], outside

    def begin(warmup, wall, capture, *, collector="torch"):
        for name in [n for n in os.environ if n.startswith("PERFCI_")]:
            monkeypatch.delenv(name)
        values = {"SIDECAR": sidecar, "TORCH_TRACE": trace, "CAPTURE": collector, "WARMUP_CAP": warmup}
        values |= {"WARMUP_STEPS": warmup, "WALL_STEPS": wall, "CAPTURE_STEPS": capture}
        for name, value in values.items():
            monkeypatch.setenv(f"PERFCI_{name}", str(value))
        monkeypatch.setattr(iteration, "_driver", None)
        return read

    yield begin
    iteration._driver = None
    marks.deactivate()


@pytest.fixture
def sidecar_of(tmp_path):
    return lambda: json.loads((tmp_path / "sidecar.json").read_text())
