"""perfci.trace against the slow reference, on random exports and on every recorded one."""

import gzip
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_builder import Export
from reference import Reference

from perfci.errors import TraceError
from perfci.model.metrics import METRICS, Kind, Source, Unit
from perfci.trace import blocks, measure
from perfci.trace.extract import extract

TRACES = Path(__file__).parents[1] / "traces"
MAIN, AUTOGRAD, HELPER, STRANGER = (7, 7), (7, 8), (7, 9), (8, 8)
CALLS = (
    "cudaLaunchKernel_v7000",
    "cudaMemcpyAsync_v3020",
    "cudaMemcpy_v3020",
    "cudaStreamSynchronize_v3020",
    "cudaEventSynchronize",
    "cuCtxSynchronize",
    "cudaEventQuery_v3020",
    "cudaMalloc_v3020",
    "cudaFreeAsync_v11020_ptsz",
    "cudaGraphLaunch_v10000",
)
KERNELS = ("gemm", "relu", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(args)")


def assert_agrees(path: Path) -> None:
    """Every value of every series, and that nothing measurable is missing."""
    extraction = extract([path])
    reference = Reference(path)
    per_rank = [series for _, series in extraction.rank_series] or [extraction.series]
    assert len(per_rank) == len(reference.series)
    for series, wanted in zip(per_rank, reference.series, strict=True):
        compared = set()
        for one in series:
            if METRICS[one.metric].unit is Unit.RATIO:
                continue
            nothing = [0] * len(one.values)
            assert list(one.values) == wanted.get((one.phase, one.metric), nothing), (one.phase, one.metric)
            compared.add(one.metric)
        if reference.traced and not any(n.code in ("kernels-inside-graphs", "no-cuda-calls") for n in extraction.notes):
            trace_metrics = {m.name for m in METRICS.values() if m.source is Source.TRACE and m.unit is not Unit.RATIO}
            assert compared == trace_metrics


@pytest.mark.parametrize("name", sorted(path.name for path in TRACES.glob("*.gz")))
def test_recorded_exports_agree(name, tmp_path):
    path = tmp_path / name.removesuffix(".gz")
    path.write_bytes(gzip.decompress((TRACES / name).read_bytes()))
    assert_agrees(path)


def measurable(path: Path) -> bool:
    """False where the reference finds no complete step, or no GPU work behind launching calls: then perfci refuses."""
    reference = Reference(path)
    launched = any("Launch" in c["name"] or "Memcpy" in c["name"] for c in reference.calls)
    if all(reference.series) and (reference.operations or not launched):
        return True
    with pytest.raises(TraceError, match=r"no step lies wholly|no GPU operation was recorded"):
        extract([path])
    return False


@st.composite
def exports(draw):
    export = Export()
    time = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 25))
        export.mark("step", time, time + length, MAIN)
        time += length + draw(st.integers(0, 4))
    span = st.integers(0, time + 5)
    for _ in range(draw(st.integers(0, 8))):
        start = draw(span)
        end = draw(st.none() | st.integers(start, start + 20))
        export.mark(
            draw(st.sampled_from(["forward", "backward", "data", "a|b"])),
            start,
            end,
            draw(st.sampled_from([MAIN, MAIN, MAIN, AUTOGRAD, HELPER, STRANGER])),
            kind=draw(st.sampled_from([59, 60])),
            registered=draw(st.booleans()),
            domain=draw(st.sampled_from([0, 0, 0, 3])),
        )
    correlations = []
    for _ in range(draw(st.integers(0, 12))):
        start = draw(span)
        thread = draw(st.sampled_from([MAIN, MAIN, AUTOGRAD, AUTOGRAD, HELPER, STRANGER]))
        correlation = export.call(draw(st.sampled_from(CALLS)), start, start + draw(st.integers(0, 6)), thread)
        correlations.append((thread[0], correlation))
    correlations.append((7, 1))
    for _ in range(draw(st.integers(0, 12))):
        pid, correlation = draw(st.sampled_from(correlations))
        start = draw(span)
        end = start + draw(st.integers(0, 12))
        what = draw(st.sampled_from(["kernel", "kernel", "copy", "memset", "graph"]))
        if what == "kernel":
            export.kernel(draw(st.sampled_from(KERNELS)), start, end, correlation, pid)
        elif what == "copy":
            kind = draw(st.sampled_from([1, 2, 8, 9]))
            export.copy(kind, start, end, correlation, pid, size=draw(st.integers(0, 99)), pageable=draw(st.booleans()))
        elif what == "memset":
            export.memset(start, end, correlation, pid)
        else:
            export.graph(start, end, correlation, pid)
    if draw(st.booleans()):
        export.overhead("CUDA profiling data flush on cudaProfilerStop", draw(span), time + 9, MAIN)
    if draw(st.booleans()):
        export.name_thread(MAIN, "python3")
        export.name_thread(AUTOGRAD, "pt_autograd_0")
    return export


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exports(), st.integers(0, 3))
def test_random_exports_agree(export, seed):
    with tempfile.TemporaryDirectory() as folder:
        path = export.write(Path(folder) / "t.sqlite", shuffle_seed=None)
        mixed = export.write(Path(folder) / "mixed.sqlite", shuffle_seed=seed)
        if not measurable(path):
            return
        assert_agrees(path)
        spans = [(row["globalTid"], row["start"], row["end"]) for row in export.rows["NVTX_EVENTS"]]
        if len(set(spans)) < len(spans):
            return  # of equal ranges the later row is the inner one: then the order of rows means something
        plain, shuffled = extract([path]), extract([mixed])
        exact = {m for m in METRICS if METRICS[m].kind is Kind.EXACT}
        assert {s for s in plain.series if s.metric in exact} == {s for s in shuffled.series if s.metric in exact}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(exports(), st.integers(1, 4))
def test_measuring_a_few_steps_at_a_time_changes_nothing(export, rows):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = export.write(Path(folder) / "t.sqlite")
        if not measurable(path):
            return
        whole = extract([path])
        patch.setattr(measure, "ROWS_AT_ONCE", rows)
        patch.setattr(blocks, "ROWS_AT_ONCE", rows)
        assert extract([path]) == whole
