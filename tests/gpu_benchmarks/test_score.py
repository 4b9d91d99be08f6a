"""benchmarks/gpu/score.py: real JSON reports against rows of the fault table."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from run_builder import paired

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

import score

from perfci.model.comparison import Comparison
from perfci.model.run import KernelStat, Revision
from perfci.model.settings import Gate, JudgeSettings
from perfci.pipeline.judging import judge_all
from perfci.report.context import ReportContext
from perfci.report.json_document import document

GEMM, FULL = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ffma"
FLOAT32 = {"metrics": ["gpu_busy_ns"], "phases": ["forward"], "rules": ["float32-matmul"], "may": []}
NONE = {"metrics": [], "phases": [], "rules": [], "may": []}


def report(*, factor: float = 1.4, full: int = 10, phase: str = "forward") -> dict:
    """A comparison as JSON: GPU time grows by the factor, so many products per launch move to float32."""
    left, right = paired([1.0e6, 1.001e6, 0.999e6], [factor * x for x in (1.0e6, 1.001e6, 0.999e6)])
    before = (KernelStat(phase=phase, name=GEMM, count=20, total_ns=2000),)
    after = (KernelStat(phase=phase, name=GEMM, count=20 - full, total_ns=100 * (20 - full)),)
    if full:
        after += (KernelStat(phase=phase, name=FULL, count=full, total_ns=900 * full),)
    workloads = judge_all(
        {"tiny": [replace(one, kernels=before) for one in left]},
        {"tiny": [replace(one, kernels=after) for one in right]},
        JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.01),), error_rate=0.1, max_launches=6),
        floors_of=lambda _workload, _environment: {},
        golden={},
        notes={},
        pinned=lambda _workload, _runs: [],
    )
    revisions = {"baseline": Revision(label="a"), "candidate": Revision(label="b")}
    return document(Comparison(workloads=workloads, error_rate=0.1, **revisions), ReportContext(perfci_version="0"))


def test_a_fault_that_is_found_and_named():
    assert score.score("tiny:float32-layer", report(), FLOAT32).right


@pytest.mark.parametrize(
    ("made", "wanted", "wrong"),
    [
        (report(factor=1.0), FLOAT32, {"verdict": "PASS", "metrics": "gpu_busy_ns", "cause": "another or none"}),
        (report(full=0), FLOAT32, {"phase": "not shown", "rules": "float32-matmul silent", "cause": "another or none"}),
        (report(phase="backward"), FLOAT32, {"phase": "not shown"}),
        (report(), FLOAT32 | {"rules": [], "may": []}, {"phase": "not shown", "rules": "float32-matmul not expected",
                                                        "cause": "another or none"}),
        (report(), NONE, {"verdict": "REGRESSION", "rules": "float32-matmul not expected"}),
        (report(factor=1.0, full=0), NONE, {}),
        (report(), FLOAT32 | {"metrics": ["gpu_busy_ns", "sync_count"]}, {"metrics": "sync_count"}),
    ],
    ids=["not seen", "not named", "wrong phase", "wrong rule", "false alarm", "equal code", "one gate silent"],
)  # fmt: skip
def test_what_is_wrong_is_said(made, wanted, wrong):
    seen = score.score("case", made, wanted)
    fields = ("verdict", "metrics", "phase", "rules", "cause")
    assert {field: getattr(seen, field) for field in fields if getattr(seen, field)} == wrong


def test_the_folder_of_prove_is_read(tmp_path, monkeypatch, capsys):
    (tmp_path / "00-tiny-float32-layer.json").write_text(json.dumps(report()))
    (tmp_path / "01-tiny-none.json").write_text(json.dumps(report(factor=1.0, full=0)))
    (tmp_path / "02-gpt-calibrate.json").write_text('{"floors": []}')
    monkeypatch.setattr(sys, "argv", ["score.py", str(tmp_path)])
    assert score.main() == 0
    assert "2 of 2 cases" in capsys.readouterr().out
    (tmp_path / "03-tiny-item-each-step.json").write_text(json.dumps(report(factor=1.0, full=0)))
    assert score.main() == 1
    assert "| tiny:item-each-step | PASS | sync_count, d2h_bytes | not shown |" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["score.py", str(tmp_path / "nothing")])
    assert score.main() == 2
