"""perfci.trace.kineto: traces of torch.profiler, well-formed and otherwise."""

import gzip
import json
import random
import tempfile
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import kineto_builder as kineto
import nsys_builder
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.errors import ExitCode, TraceError
from perfci.trace import kineto_json
from perfci.trace.extract import extract, read_timeline
from perfci.trace.kineto import nanoseconds
from perfci.trace.nsys_sqlite import read_nsys

TRACES = Path(__file__).parents[1] / "traces"
OF_NSYS = (
    "h200_transformer_32steps_nsys2025.3",
    "h200_gpt_ddp_1rank_nccl",
    "h200_gpt_cuda_graph_granularity_node",
    "h200_gpt_item_each_step",
)


def values(extraction, phase, metric):
    found = [one.values for one in extraction.series if (one.phase, one.metric) == (phase, metric)]
    return found[0] if found else None


def codes(extraction):
    return {note.code for note in extraction.notes}


def measured(extraction):
    """All that was measured, without what names the collector."""
    return replace(
        extraction, trace=replace(extraction.trace, collector="", collector_version="", driver=None, cuda=None)
    )


@pytest.mark.parametrize("name", OF_NSYS)
def test_a_recorded_run_gives_the_same_numbers_whichever_collector_wrote_it(name, tmp_path):
    export = tmp_path / "trace.sqlite"
    export.write_bytes(gzip.decompress((TRACES / f"{name}.sqlite.gz").read_bytes()))
    trace = kineto.from_nsys(export)
    written = trace.write(tmp_path / "trace.json")
    of_nsys, of_torch = extract([export]), extract([written])
    assert of_torch.trace.collector == "torch"
    assert of_torch.trace.collector_version == "2.13.0+cu128"
    assert values(of_torch, "backward", "kernel_count") not in (None, (0,) * of_torch.step_count)
    raw = read_nsys(export)
    first = min(int(column.min()) for column in (raw.marks.start_ns, raw.calls.start_ns))
    assert of_torch.trace.started_at_utc_ns == of_nsys.trace.started_at_utc_ns + first
    of_nsys = replace(of_nsys, trace=replace(of_nsys.trace, started_at_utc_ns=of_torch.trace.started_at_utc_ns))
    assert measured(of_torch) == measured(of_nsys)


def test_a_plain_run_agrees_with_the_same_run_under_nsys(tmp_path):
    export = nsys_builder.training().write(tmp_path / "a.sqlite")
    written = kineto.training().write(tmp_path / "a.json")
    of_nsys, of_torch = extract([export]), extract([written])
    assert of_torch.series == of_nsys.series
    assert of_torch.kernels == of_nsys.kernels
    assert of_torch.api_calls == of_nsys.api_calls
    assert values(of_torch, "backward", "kernel_count") == (2, 2, 2)
    assert values(of_torch, "h2d", "h2d_bytes") == (64, 64, 64)
    assert values(of_torch, "optimizer", "stream_sync_count") == (1, 1, 1)


@pytest.mark.parametrize("named", [True, False])
def test_autograd_threads_are_known_by_what_they_run(named, tmp_path):
    """Also when no thread has a name, and nothing has to be assumed then."""
    trace = kineto.training(named=named, backward=True)
    trace.launch("copy_helper", 1250, 1260, 1270, tid=300)  # a thread that only calls CUDA
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert values(extraction, "backward", "kernel_count") == (2, 2, 2)
    assert values(extraction, "background", "kernel_count") == (1, 0, 0)
    assert codes(extraction) == set()


def test_without_names_and_backward_operators_the_fallback_is_said(tmp_path):
    extraction = extract([kineto.training(named=False).write(tmp_path / "a.json")])
    assert values(extraction, "backward", "kernel_count") == (2, 2, 2)
    assert codes(extraction) == {"thread-names-missing"}


def test_the_training_thread_stays_itself_when_it_runs_backward(tmp_path):
    trace = kineto.training()
    trace.operator("autograd::engine::evaluate_function: MmBackward0", 1405, 1440)
    timeline = read_timeline([trace.write(tmp_path / "a.json")])
    assert set(timeline.threads) == {"python3", "pt_autograd_0"}


def test_ranges_of_libraries_are_no_phases(tmp_path):
    trace = kineto.training()
    trace.mark("Optimizer.step#AdamW.step", 1600, 1890, prefix="")
    trace.mark("nccl:all_reduce", 1450, 1500, kineto.AUTOGRAD, prefix="")
    trace.event("gpu_user_annotation", "perfci:forward", 0, 7, 1220, 1320)
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert extraction.series == extract([kineto.training().write(tmp_path / "b.json")]).series


def test_a_trace_that_the_user_recorded_by_hand(tmp_path):
    """Steps of torch.profiler's own schedule and the user's own record_function ranges."""
    trace = kineto.KinetoTrace()
    for step in range(3):
        trace.mark(f"ProfilerStep#{step + 4}", 1000 * step, 1000 * step + 1000, prefix="")
        trace.mark("## forward ##", 1000 * step + 100, 1000 * step + 500, prefix="")
        trace.launch("gemm", 1000 * step + 110, 1000 * step + 200, 1000 * step + 300)
    path = trace.write(tmp_path / "a.pt.trace.json")
    extraction = extract([path], step_range="ProfilerStep")
    assert values(extraction, "## forward ##", "kernel_count") == (1, 1, 1)
    with pytest.raises(TraceError, match="ProfilerStep#4"):
        extract([path])


@pytest.mark.parametrize(
    ("kind", "src", "dst", "metrics"),
    [
        (1, 0, 2, {"h2d_count", "h2d_pageable_count", "pageable_copy_count"}),
        (1, 1, 2, {"h2d_count"}),
        (2, 2, 0, {"d2h_count", "d2h_pageable_count", "pageable_copy_count", "copy_sync_count", "sync_count"}),
        (2, 2, 1, {"d2h_count"}),
        (8, 2, 2, {"d2d_count"}),
        (10, 2, 2, {"d2d_count"}),
    ],
)
def test_kinds_of_copies(kind, src, dst, metrics, tmp_path):
    trace = kineto.KinetoTrace()
    for step in range(2):
        trace.mark("step", 1000 * step, 1000 * step + 1000)
        trace.mark("h2d", 1000 * step + 10, 1000 * step + 500)
        correlation = trace.call("cudaMemcpyAsync", 1000 * step + 20, 1000 * step + 40)
        trace.copy(kind, src, dst, 1000 * step + 50, 1000 * step + 90, correlation, 4096)
    extraction = extract([trace.write(tmp_path / "a.json")])
    counted = {one.metric for one in extraction.series if one.phase == "h2d" and one.values == (1, 1)}
    assert counted == metrics | {"api_call_count"}


def test_kernels_of_a_graph_launch_belong_to_the_phase_that_launched_it(tmp_path):
    trace = kineto.KinetoTrace()
    for step in range(2):
        t = 1000 * step
        trace.mark("step", t, t + 1000)
        trace.mark("forward", t + 10, t + 500)
        launched = trace.call("cudaGraphLaunch", t + 20, t + 40)
        for at in range(5):
            trace.kernel("gemm", t + 500 + 10 * at, t + 505 + 10 * at, launched)
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert values(extraction, "forward", "kernel_count") == (5, 5)
    assert values(extraction, "forward", "graph_launch_count") == (1, 1)
    assert values(extraction, "forward", "gpu_busy_ns") == (25, 25)


def test_a_cpu_only_trace_has_wall_times_and_no_gpu_metrics(tmp_path):
    trace = kineto.KinetoTrace(devices=())
    for step in range(3):
        trace.mark("step", 1000 * step, 1000 * step + 900)
        trace.mark("forward", 1000 * step + 100, 1000 * step + 500)
        trace.operator("aten::mm", 1000 * step + 110, 1000 * step + 200)
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert {one.metric for one in extraction.series} == {"wall_ns"}
    assert values(extraction, "forward", "wall_ns") == (400, 400, 400)
    assert codes(extraction) == set()


def test_a_gpu_machine_without_cuda_records_says_so(tmp_path):
    trace = kineto.KinetoTrace()
    for step in range(2):
        trace.mark("step", 1000 * step, 1000 * step + 900)
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert codes(extraction) == {"no-cuda-records"}
    assert {one.metric for one in extraction.series} == {"wall_ns"}


def test_launches_without_gpu_operations_are_a_failed_trace(tmp_path):
    trace = kineto.KinetoTrace()
    trace.mark("step", 0, 900)
    trace.call("cudaLaunchKernel", 10, 20)
    with pytest.raises(TraceError, match="no GPU operation was recorded"):
        extract([trace.write(tmp_path / "a.json")])


def test_operations_without_times_are_counted_with_no_duration(tmp_path):
    trace = kineto.training()
    trace.kernel("untimed", 0, 0, trace.call("cudaLaunchKernel", 1240, 1241))
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert values(extraction, "forward", "kernel_count") == (3, 2, 2)
    assert values(extraction, "forward", "kernel_ns") == (100, 100, 100)
    assert codes(extraction) == {"operations-without-times"}


def test_negative_durations_are_said(tmp_path):
    trace = kineto.training()
    trace.events.append(
        '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.250, "dur": -0.010, '
        f'"args": {{"correlation": {trace.call("cudaLaunchKernel", 1240, 1241)}}}}}'
    )
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert values(extraction, "forward", "kernel_ns") == (100, 100, 100)
    assert codes(extraction) == {"impossible-times"}


def test_dropped_steps_are_no_steps(tmp_path):
    extraction = extract([kineto.training(steps=3).write(tmp_path / "a.json")])
    assert (extraction.step_count, extraction.dropped_step_count) == (3, 0)
    trace = kineto.training(steps=3)
    trace.mark("perfci_dropped", 2990, 2991)
    extraction = extract([trace.write(tmp_path / "b.json")])
    assert (extraction.step_count, extraction.dropped_step_count) == (2, 1)
    assert "perfci_dropped" not in {one.phase for one in extraction.series}


# Ranks


def rank_file(folder, rank, *, name=None, stated=True, base=1000, steps=3):
    trace = kineto.training(steps, base=base)
    if stated:
        trace.facts["distributedInfo"] = {
            "backend": "nccl",
            "rank": rank,
            "world_size": 2,
            "pg_config": [{"ranks": "[]"}],
        }
    return trace.write(folder / (name or f"trace.rank{rank}.json"))


@pytest.mark.parametrize("stated", [True, False])
def test_one_file_per_rank(stated, tmp_path):
    """The rank is what the file says, and else what its name says."""
    names = ("b.json", "a.json") if stated else (None, None)
    files = [rank_file(tmp_path, rank, name=names[rank], stated=stated, base=1000 + 40 * rank) for rank in (0, 1)]
    extraction = extract(files[::-1])
    assert extraction.trace.rank_count == 2
    assert values(extraction, "forward", "kernel_count") == (4, 4, 4)
    assert [rank for rank, _ in extraction.rank_series] == [0, 1]
    timeline = read_timeline(files[::-1])
    first = [int(timeline.steps.start_ns[timeline.steps.rank == rank][0]) for rank in (0, 1)]
    assert first[1] - first[0] == 40


def test_a_missing_rank_spoils_the_run(tmp_path):
    files = [rank_file(tmp_path, rank) for rank in (0, 2)]
    assert [note.code for note in extract(files).notes if note.spoils] == ["rank-missing"]


def test_files_of_two_collectors_are_no_launch(tmp_path):
    export = nsys_builder.training().write(tmp_path / "a.sqlite")
    with pytest.raises(TraceError, match="collector differs"):
        extract([export, kineto.training().write(tmp_path / "b.json")])


def test_two_processes_in_one_file_are_refused(tmp_path):
    trace = kineto.training()
    trace.pid = 8
    trace.mark("step", 0, 900)
    with pytest.raises(TraceError, match="2 processes"):
        extract([trace.write(tmp_path / "a.json")])


# Times


@given(st.integers(0, 2**61), st.booleans())
def test_every_nanosecond_survives(ns, whole):
    if whole:
        ns -= ns % 1000
    text = str(ns // 1000) if whole else kineto.micro(ns)
    assert nanoseconds(json.loads(text, parse_float=str)) == ns


@given(st.decimals(min_value=-(10**14), max_value=10**14, allow_nan=False, places=5))
def test_other_spellings_of_numbers(number):
    assert nanoseconds(json.loads(f"{number:e}", parse_float=str)) == int(number * 1000)


def test_a_double_would_not_do():
    """The reason for reading numbers as text: times since 1970 in microseconds, as torch wrote them until 2.2."""
    text = "1713192691234567.891"
    assert round(float(text) * 1000) != 1713192691234567891 == nanoseconds(text)


def test_times_since_1970_without_a_base(tmp_path):
    trace = kineto.training(base=1713192691234567891)
    del trace.facts["baseTimeNanoseconds"]
    extraction = extract([trace.write(tmp_path / "a.json")])
    assert extraction.series == extract([kineto.training().write(tmp_path / "b.json")]).series
    assert extraction.trace.started_at_utc_ns == 1713192691234567891


def test_times_from_nowhere_give_no_date(tmp_path):
    trace = kineto.training()
    del trace.facts["baseTimeNanoseconds"]
    assert extract([trace.write(tmp_path / "a.json")]).trace.started_at_utc_ns is None


@pytest.mark.parametrize(
    "ts", ["1e300", "NaN", '"yesterday"', "null", "[1]", "true", "9" * 5000, "1e9999999", "1e99999999"]
)
def test_impossible_times_are_refused(ts, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(kineto.training().text().replace('"ts": 1.000', f'"ts": {ts}', 1))
    with pytest.raises(TraceError, match="is no time" if len(ts) < 5000 else "no JSON near"):
        extract([path])


@pytest.mark.parametrize("size", [-1, 2**60])
def test_copies_of_impossible_size_are_refused(size, tmp_path):
    trace = kineto.training()
    trace.copy(1, 1, 2, 1250, 1260, trace.call("cudaMemcpyAsync", 1250, 1252), size)
    with pytest.raises(TraceError, match=f"a copy moves {size} bytes"):
        extract([trace.write(tmp_path / "a.json")])


def test_events_in_any_order(tmp_path):
    trace = kineto.training(backward=True)
    wanted = extract([trace.write(tmp_path / "a.json")])
    random.Random(1).shuffle(trace.events)
    got = extract([trace.write(tmp_path / "b.json")])
    assert (got.series, got.kernels) == (wanted.series, wanted.kernels)


# Files


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_the_window_may_end_anywhere(chunk, tmp_path, monkeypatch):
    path = kineto.training(steps=2).write(tmp_path / "a.json")
    wanted = extract([path])
    monkeypatch.setattr(kineto_json, "_CHUNK_CHARACTERS", chunk)
    assert extract([path]) == wanted


def test_packed_is_the_same(tmp_path):
    plain = kineto.training().write(tmp_path / "a.json")
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert extract([packed]) == extract([plain])


def test_keys_in_another_order(tmp_path):
    document = json.loads(kineto.training().text(), parse_float=Decimal)
    events = ", ".join(json.dumps(event, default=float) for event in document.pop("traceEvents"))
    path = tmp_path / "a.json"
    path.write_text(f'\ufeff{{"traceEvents":[{events}],{json.dumps(document, default=float)[1:]}', encoding="utf-8")
    assert extract([path]) == extract([kineto.training().write(tmp_path / "b.json")])


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.3, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_cut_anywhere(share, packed, tmp_path):
    whole = kineto.training().text().encode()
    whole = gzip.compress(whole) if packed else whole
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(TraceError, match=r"is empty|is cut|damaged gzip|is not an SQLite") as caught:
        extract([path])
    assert caught.value.exit_code == ExitCode.MEASUREMENT


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("[]", "not a trace of torch.profiler"),
        ('[{"ph": "X"}]', "not a trace of torch.profiler"),
        ("{}", "not a trace of torch.profiler"),
        ('{"version": 1, "results": [1, 2]}', "not a trace of torch.profiler"),
        ('{"traceEvents": {}}', "not a trace of torch.profiler"),
        ('{"traceEvents": []}', "not one of torch.profiler"),
        ('{"traceEvents": [{"ph": "X", "cat": "blink", "name": "x", "ts": 1, "dur": 1}]}', "not one of torch.profiler"),
        ('{"traceEvents": [], "deviceProperties": []}', "no ranges"),
        ('{"traceEvents": [1, 2]}', "damaged"),
        ('{"traceEvents": [{"ph": "M", "name": "thread_name", "args": 3}]}', "damaged"),
        ('{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1, "args": []}]}', "damaged"),
        ('{"traceEvents" [', "damaged|cut"),
        ("{1: 2}", "damaged|cut"),
        ('{"traceEvents": [' + "[" * 100_000, "damaged|cut"),
        ('{"a": ' + "[" * 100_000, "damaged|cut"),
    ],
)
def test_other_documents(text, match, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=match):
        extract([path])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(("name", "correlation")), inner),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_any_field_may_hold_anything(data):
    """A trace with some value of the wrong type is read or refused, never more."""
    document = json.loads(kineto.training(steps=2, backward=True).text())
    event = data.draw(st.sampled_from(document["traceEvents"]))
    place = data.draw(st.sampled_from((event, event.get("args", event), document)))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(JSON_VALUES)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.json"
        path.write_text(json.dumps(document))
        try:
            extraction = extract([path])
        except TraceError:
            return
        assert extraction.step_count in (1, 2)


def test_endless_values_do_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_json, "_LARGEST_VALUE_CHARACTERS", 10_000)
    monkeypatch.setattr(kineto_json, "_CHUNK_CHARACTERS", 1_000)
    path = tmp_path / "a.json"
    path.write_text('{"traceEvents": [{"name": "' + "x" * 1_000_000)
    with pytest.raises(TraceError, match="damaged"):
        extract([path])


@pytest.mark.parametrize(
    "name",
    ['say "forward"', "back\\slash", "a|b", "--> @team", "<img onerror=a()>", "x" * 10_000, "\x01", "🔥", "%41"],
)  # fmt: skip
def test_names_that_kineto_does_not_escape(name, tmp_path):
    """A library's annotation with a quote makes Kineto write something that is no JSON: the measurement survives it."""
    trace = kineto.training()
    wanted = extract([trace.write(tmp_path / "a.json")])
    trace.events.insert(5, trace.events[0])
    trace.mark(name, 1210, 1390, prefix="")
    trace.operator(name, 1210, 1390)
    trace.events.append(trace.events.pop(3))
    assert extract([trace.write(tmp_path / "b.json")]).series == wanted.series


def test_numbers_that_are_none(tmp_path):
    trace = kineto.training()
    wanted = extract([trace.write(tmp_path / "a.json")])
    text = trace.text().replace('"queued": 0', '"queued": 0, "blocks per SM": inf, "warps per SM": -nan')
    (tmp_path / "b.json").write_text(text)
    assert extract([tmp_path / "b.json"]) == wanted


def test_a_folder_and_a_missing_file(tmp_path):
    (tmp_path / "a.json").mkdir()
    for name, told in (("a.json", "is a directory"), ("b.json", "does not exist")):
        with pytest.raises(TraceError, match=told):
            extract([tmp_path / name])
