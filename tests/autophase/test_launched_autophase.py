"""``autophase: true`` through the real launch: under nsys, and with the error of a script that never trains."""

import os
import sqlite3
import sys
from contextlib import closing

import pytest

from perfci.capture.launch import launch
from perfci.capture.nsys import find_nsys
from perfci.errors import MeasurementError
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec

pytest.importorskip("torch")

SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(40, 8))
for epoch in range(100):
    for x, in DataLoader(data, batch_size=4):
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def launched(tmp_path, monkeypatch):
    for name in [n for n in os.environ if n.startswith("PERFCI_")]:
        monkeypatch.delenv(name)

    def run(source, *, tool, collector, autophase=True):
        (tmp_path / "train.py").write_text(source)
        return launch(
            WorkloadSpec(name="script", command=(sys.executable, "train.py"), autophase=autophase),
            MeasureSettings(warmup_steps=1, wall_steps=2, capture_steps=5, launch_timeout_s=90, collector=collector),
            checkout=tmp_path,
            out_dir=tmp_path / "out",
            tool=tool,
            has_cuda=False,
        )

    return run


@pytest.mark.torch
@pytest.mark.nsys
def test_unmodified_script_under_nsys(launched):
    try:
        tool = find_nsys()
    except MeasurementError as error:
        pytest.skip(f"{error.seen}: sh scripts/install-nsys.sh")
    result = launched(SCRIPT, tool=tool, collector=Collector.NSYS)
    (sidecar,) = result.sidecars
    assert sidecar.capture is not None
    assert len(sidecar.capture.step_wall_ns) == 5
    assert sidecar.time_to_first_step_ns is not None
    assert None not in sidecar.losses
    with closing(sqlite3.connect(result.trace_paths[0])) as database:
        rows = database.execute(
            "SELECT coalesce(text, value), count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId GROUP BY 1"
        ).fetchall()
    counts = dict(rows)
    dropped = counts.pop("perfci_dropped", 0)  # the end of an epoch may lie in the window
    assert counts.pop("data") == counts.pop("step") == 5 + dropped
    counts.pop("perfci_capture")
    assert counts == {"forward": 5, "backward": 5, "optimizer": 5}


def test_a_script_that_never_trains(launched):
    with pytest.raises(MeasurementError) as caught:
        launched("print('no torch here')", tool=None, collector=Collector.TORCH)
    assert "no optimizer step was seen" in str(caught.value)
    assert "docs/autophase.md" in str(caught.value)


@pytest.mark.torch
def test_a_script_with_marks_and_no_loop_is_told_so(launched):
    marked = SCRIPT.replace("import torch\n", "import torch\nfrom perfci import phases\n", 1).replace(
        "        loss.backward()\n", '        with phases.phase("backward"):\n            loss.backward()\n'
    )
    with pytest.raises(MeasurementError) as caught:
        launched(marked, tool=None, collector=Collector.TORCH)
    assert "never entered phases.loop" in str(caught.value)
    assert "take the marks away" in str(caught.value)
