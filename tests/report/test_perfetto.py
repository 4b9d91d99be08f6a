"""The timeline file keeps to the trace event format and shows what the timeline says."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_builder import AUTOGRAD, MAIN, TimelineBuilder, healthy
from trace_event_checker import check

from perfci.errors import UsageError
from perfci.model.timeline import OperationKind, SyncKind
from perfci.report import perfetto
from perfci.report.perfetto import median_step, timeline_json, write_timeline


def slices(document: dict, pid: int, category: str) -> list[dict]:
    return [e for e in document["traceEvents"] if e["ph"] == "X" and e["pid"] == pid and e["cat"] == category]


def threads(document: dict, pid: int) -> list[str]:
    found = [e for e in document["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == pid]
    return [e["args"]["name"] for e in sorted(found, key=lambda e: e["tid"])]


def with_waits() -> TimelineBuilder:
    made = healthy()
    for number in range(10):
        at = number * 1000
        made.copy(OperationKind.H2D, at + 11, at + 14, at + 15, at + 24, moved_bytes=4096, pageable=True, stream=8)
        made.call("cudaStreamSynchronize_v3020", at + 985, at + 995, sync=SyncKind.STREAM)
    return made


def test_one_trace_shows_all_its_rows():
    document = check(timeline_json(with_waits().build()))
    assert threads(document, 1) == [
        "steps",
        "phases",
        "CPU waits for the GPU",
        "CUDA calls of main",
        "CUDA calls of pt_autograd_0",
        "GPU 0 stream 7",
        "GPU 0 stream 8",
    ]
    assert document["otherData"]["trace"]["steps_drawn"] == [0, 1]  # all steps are equal: the first is the median
    assert [e["name"] for e in slices(document, 1, "step")] == ["step 0 (median)", "step 1"]
    assert [e["name"] for e in slices(document, 1, "sync")] == ["waits for a stream: cudaStreamSynchronize_v3020"] * 2
    assert [e["name"] for e in slices(document, 1, "phase")] == ["data", "forward", "backward", "optimizer"] * 2
    assert len(slices(document, 1, "kernel")) == 2 * 15
    (copy, _) = slices(document, 1, "copy")
    assert (copy["args"]["bytes"], copy["args"]["memory"], copy["ts"], copy["dur"]) == (4096, "pageable", 15, 9)


def test_arrows_lead_from_each_launch_to_its_work():
    document = check(timeline_json(with_waits().build()))
    starts = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in document["traceEvents"] if e["ph"] == "f"}
    assert len(starts) == 2 * 16
    work = {(e["tid"], e["ts"]): e for e in slices(document, 1, "kernel")}
    calls = {(e["tid"], e["ts"]): e for e in slices(document, 1, "api")}
    for flow, end in ends.items():
        if (end["tid"], end["ts"]) in work:
            start = starts[flow]
            phase = calls[start["tid"], start["ts"]]["args"]["phase"]
            assert work[end["tid"], end["ts"]]["args"]["phase"] == phase
            assert work[end["tid"], end["ts"]]["name"] == f"{phase}_gemm"


def test_sides_are_two_processes_aligned_at_the_median_step():
    slow = TimelineBuilder()
    for number, wall in enumerate([500, 900, 2000, 2100, 2200]):
        at = 7_000_000 + number * 3000
        slow.step(at, at + wall)
        slow.kernel(at + 1, at + 2, at + wall - 1)
    document = check(timeline_json(healthy().build(), slow.build()))
    names = {
        e["pid"]: e["args"]["name"] for e in document["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"
    }
    baseline, candidate = sorted(names)
    assert [names[baseline], names[candidate]] == ["baseline", "candidate"]
    (mine,) = [e for e in slices(document, baseline, "step") if "median" in e["name"]]
    (other,) = [e for e in slices(document, candidate, "step") if "median" in e["name"]]
    assert mine["ts"] == other["ts"]
    assert other["name"] == "step 2 (median)"
    assert document["otherData"]["candidate"]["steps_drawn"] == [1, 2, 3]


def test_every_rank_is_a_process():
    document = check(timeline_json(healthy(rank=1, builder=healthy(rank=0)).build()))
    names = [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"]
    assert names == ["trace rank 0", "trace rank 1"]


@pytest.mark.parametrize(
    ("walls", "wanted"), [([5], 0), ([9, 5, 7], 2), ([1, 2, 3, 4], 1), ([5, 5, 5], 0), ([100, 1, 1, 2], 1)]
)
def test_median_step(walls, wanted):
    made, at = TimelineBuilder(), 0
    for wall in walls:
        made.step(at, at + wall)
        at += wall
    assert median_step(made.build()) == wanted


def test_the_slowest_rank_is_the_step_time():
    made = TimelineBuilder()
    for rank, walls in ((0, [10, 10, 10]), (1, [30, 10, 20])):
        for number, wall in enumerate(walls):
            made.step(number * 100, number * 100 + wall, rank=rank)
    assert median_step(made.build()) == 2


def test_a_trace_without_steps_is_an_error():
    with pytest.raises(UsageError, match="no measured step"):
        timeline_json(TimelineBuilder().build())


HOSTILE = [
    "x" * 10_000,
    '</script><img src=x onerror="alert(1)">',
    "\x1b[31mred\x00\n\r\t",
    "\u202egnp.exe",
    "\ud800 lone",
    "🚀 | --> @team",
    "",
]


def test_hostile_names_stay_one_visible_line():
    made = TimelineBuilder()
    made.step(0, 1000)
    for number, name in enumerate(HOSTILE):
        at = number * 100
        made.phase(name or " ", at, at + 90)
        made.kernel(at + 1, at + 10, at + 20, name=name)
        made.call(name, at + 30, at + 40, thread=MAIN if number % 2 else name or MAIN)
    content = timeline_json(made.build())
    document = check(content)
    assert content.isascii()
    assert max(len(e["name"]) for e in document["traceEvents"]) <= perfetto.NAME_LIMIT
    assert len(slices(document, 1, "kernel")) == len(HOSTILE)


def test_odd_times_do_not_break_the_file():
    made = TimelineBuilder()
    for number in range(3):
        at = 1000 + number * 1000
        made.step(at, at + 1000)
        made.phase("a", at, at + 600)
        made.phase("b", at + 500, at + 700)  # overlaps, does not nest
        made.phase("a", at + 100, at + 200)  # nested in itself
    made.kernel(1010, 0, 0)  # a kernel that CUPTI gave no times
    made.kernel(1020, 1030, 1030)  # without length
    made.kernel(1040, 1050, 9000)  # ends long after the step
    made.kernel(1060, 1055, 1065)  # starts before its launch: clocks of GPU and CPU differ
    made.kernel(1070, 1055, 2000)  # two at once on one stream
    document = check(timeline_json(made.build()))
    assert threads(document, 1).count("phases (2)") == 1
    assert len(slices(document, 1, "kernel")) == 4
    assert "GPU 0 stream 7 (2)" in threads(document, 1)


def test_the_size_is_bounded_and_the_rest_is_said(monkeypatch):
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 40)
    timeline = with_waits().build()
    document = check(timeline_json(timeline, timeline))
    for pid, side in ((1, "baseline"), (perfetto._RANKS_PER_SIDE + 1, "candidate")):
        drawn = [e for e in document["traceEvents"] if e["ph"] == "X" and e["pid"] == pid]
        assert len(drawn) == 40
        assert document["otherData"][side]["left_out_slices"] > 0
        assert len(slices(document, pid, "step")) == 2
        assert len(slices(document, pid, "phase")) == 8


def test_written_file(tmp_path):
    timeline = healthy().build()
    write_timeline(tmp_path / "t.json.gz", timeline)
    write_timeline(tmp_path / "t.json", timeline)
    content = (tmp_path / "t.json").read_bytes()
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == content == timeline_json(timeline)
    with pytest.raises(UsageError, match="cannot write"):
        write_timeline(tmp_path / "no" / "t.json", timeline)


def test_the_checker_sees_faults():
    good = json.loads(timeline_json(with_waits().build()))

    def broken(change) -> bytes:
        document = json.loads(json.dumps(good))
        change(document["traceEvents"])
        return json.dumps(document).encode()

    first = next(i for i, e in enumerate(good["traceEvents"]) if e["ph"] == "X")
    last_flow = max(i for i, e in enumerate(good["traceEvents"]) if e["ph"] == "f")
    for change in (
        lambda events: events[first].pop("dur"),
        lambda events: events[first].update(ts=-1),
        lambda events: events[first].update(ph="B"),
        lambda events: events[first].update(ts=float("nan")),
        lambda events: events[first].update(name="a\x1bb"),
        lambda events: events.reverse(),
        lambda events: events.pop(0),
        lambda events: events.pop(last_flow),
        lambda events: events.insert(first + 1, {**events[first], "ts": 10, "dur": 10**9}),
    ):
        with pytest.raises((AssertionError, KeyError)):
            check(broken(change))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_timeline_gives_a_valid_file(data):
    made = TimelineBuilder()
    times = st.integers(0, 3000)
    for number in range(data.draw(st.integers(1, 4))):
        made.step(number * 1000, number * 1000 + data.draw(st.integers(1, 1000)))
    for _ in range(data.draw(st.integers(0, 8))):
        start = data.draw(times)
        made.phase(data.draw(st.sampled_from("abc")), start, start + data.draw(st.integers(0, 900)))
    for _ in range(data.draw(st.integers(0, 12))):
        made.call("sync", at := data.draw(times), at + data.draw(st.integers(0, 500)), sync=SyncKind.DEVICE,
                  thread=data.draw(st.sampled_from([MAIN, AUTOGRAD, "pin"])))  # fmt: skip
    for _ in range(data.draw(st.integers(0, 12))):
        start = data.draw(times)
        made.kernel(data.draw(times), start, start + data.draw(st.integers(0, 500)))
    timeline = made.build()
    document = check(timeline_json(timeline, timeline))
    steps = timeline.steps
    drawn = np.abs(steps.index - median_step(timeline)) <= 1
    begin, end = steps.start_ns[drawn].min(), steps.end_ns[drawn].max()
    inside = (timeline.operations.start_ns >= begin) & (timeline.operations.start_ns < end)
    assert len(slices(document, 1, "kernel")) == inside.sum()
    no_names = replace(timeline, info=replace(timeline.info, gpu_models=("\x1b",)))
    check(timeline_json(no_names))
