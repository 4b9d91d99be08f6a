"""benchmarks/trace/record_kineto_fixture.py: the comparison of the two collectors, and what it makes of a trace."""

import gzip
import importlib.util
import json
from pathlib import Path

import kineto_builder as kineto
import nsys_builder
import pytest

from perfci.trace.extract import extract

ROOT = Path(__file__).parents[2]
PAIR = ROOT / "tests/traces/kineto_gpu"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location(
        "record_kineto_fixture", ROOT / "benchmarks/trace/record_kineto_fixture.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_one_more_kernel_is_a_contradiction_and_one_more_call_is_not(script, tmp_path):
    of_nsys = extract([nsys_builder.training().write(tmp_path / "a.sqlite")])
    trace = kineto.training()
    rows = script.compare_collectors(of_nsys, extract([trace.write(tmp_path / "a.json")]))
    assert not any(row.wrong for row in rows)
    trace.call("cudaStreamIsCapturing", 1240, 1241)
    rows = script.compare_collectors(of_nsys, extract([trace.write(tmp_path / "b.json")]))
    assert not any(row.wrong for row in rows)
    trace.launch("gemm", 1250, 1260, 1270)
    rows = script.compare_collectors(of_nsys, extract([trace.write(tmp_path / "c.json")]))
    wrong = {(row.phase, row.metric) for row in rows if row.wrong}
    assert wrong == {("forward", "kernel_count"), ("step", "kernel_count")}
    text = script.table(rows)
    assert text.count("DIFFERS") == 2
    assert "absent" not in text


def test_a_slimmed_trace_says_the_same(script, tmp_path):
    out = tmp_path / "slim.json.gz"
    recorded = ROOT / "tests/traces/kineto_cpu/tiny_torch2.13.json.gz"
    plain = tmp_path / "a.json"
    plain.write_bytes(gzip.decompress(recorded.read_bytes()))
    script.slim(plain, out)
    assert extract([out]) == extract([recorded])
    assert out.stat().st_size < recorded.stat().st_size / 2
    trace = kineto.training(backward=True)
    script.slim(trace.write(plain), out)
    assert extract([out]) == extract([plain])
    assert all("ph" in event for event in json.loads(gzip.decompress(out.read_bytes()))["traceEvents"])


@pytest.mark.skipif(not PAIR.is_dir(), reason="no pair recorded yet: benchmarks/trace/record_kineto_fixture.py")
def test_the_recorded_pair_agrees(script):
    rows = script.compare_collectors(extract([PAIR / "pair_nsys.sqlite.gz"]), extract([PAIR / "pair_torch.json.gz"]))
    assert [row for row in rows if row.wrong] == []
    assert any(row.metric == "kernel_count" and row.phase == "backward" and row.nsys for row in rows)
