"""Findings on real H200 traces, each checked against plain SQL on the same file."""

import gzip
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from trace_event_checker import check

from perfci.diagnosis import rules
from perfci.diagnosis.kernel_diff import diff_kernels
from perfci.diagnosis.pair import compare_findings, gone_findings
from perfci.report.perfetto import timeline_json
from perfci.trace.extract import extract_timeline, read_timeline

TRACES = Path(__file__).parents[1] / "traces"
GRAPH = "h200_gpt_cuda_graph_granularity_graph"
NODE = "h200_gpt_cuda_graph_granularity_node"
DDP = "h200_gpt_ddp_1rank_nccl"
ITEM = "h200_gpt_item_each_step"
TRANSFORMER = "h200_transformer_32steps_nsys2025.3"
ALL = (GRAPH, NODE, DDP, ITEM, TRANSFORMER)

STEPS = """
    select start, end from NVTX_EVENTS n left join StringIds s on s.id = n.textId
    where coalesce(n.text, s.value) = ? and end is not null order by start
"""
CALLS = """
    select r.start, r.end from CUPTI_ACTIVITY_KIND_RUNTIME r join StringIds s on s.id = r.nameId where s.value like ?
"""

GPU_WORK = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("traces")
    found = {}
    for name in ALL:
        found[name] = folder / f"{name}.sqlite"
        with gzip.open(TRACES / f"{name}.sqlite.gz") as source, found[name].open("wb") as target:
            shutil.copyfileobj(source, target)
    return found


@pytest.fixture(scope="module")
def timelines(files):
    return {name: read_timeline([path]) for name, path in files.items()}


@pytest.fixture(scope="module")
def findings(timelines):
    return {name: {finding.rule: finding for finding in rules.find(timelines[name])} for name in ALL}


def query(path: Path, sql: str, *values: object) -> list[tuple]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(sql, values).fetchall()


def evidence(finding) -> dict[str, float]:
    return {quantity.name: quantity.value for quantity in finding.evidence}


def gpu_work(path: Path) -> list[tuple[int, int]]:
    tables = {name for (name,) in query(path, "select name from sqlite_master")}
    work = []
    for kind in GPU_WORK:
        if f"CUPTI_ACTIVITY_KIND_{kind}" in tables:
            work += query(path, f"select start, end from CUPTI_ACTIVITY_KIND_{kind}")
    return sorted(work)


def test_which_rules_fire_on_which_trace(findings):
    """All of these were looked at by hand. The GPT script reads its loss and uploads a pageable batch in every step,
    in all of its traces, also in those with CUDA graphs; only the launch-bound gaps go away with graphs."""
    assert {name: set(found) for name, found in findings.items()} == {
        ITEM: {"accidental-sync", "pageable-copies", "many-small-kernels"},
        DDP: {"accidental-sync", "pageable-copies", "many-small-kernels"},
        GRAPH: {"accidental-sync", "pageable-copies"},
        NODE: {"accidental-sync", "pageable-copies"},
        TRANSFORMER: {"many-small-kernels", "outlier-step"},
    }


@pytest.mark.parametrize("name", [ITEM, DDP, GRAPH, NODE])
def test_the_wait_for_the_loss(files, findings, name):
    finding = findings[name]["accidental-sync"]
    assert (finding.phase, finding.subject) == ("log", "cudaStreamSynchronize")
    assert "`.item()`" in finding.advice
    waits = query(files[name], CALLS, "cudaStreamSynchronize%")
    logs = query(files[name], STEPS, "log")
    assert all(sum(a <= start < b for start, _ in waits) == 1 for a, b in logs)
    assert len(waits) == len(logs) == 8
    work = gpu_work(files[name])
    starved = 0
    for _, end in waits:
        idle = not any(a <= end < b for a, b in work)
        following = [a for a, _ in work if a >= end]
        starved += min(following) - end if idle and following else 0
    seen = evidence(finding)
    assert seen["waits per step"] == 1
    assert seen["CPU blocked per step"] * 8 == sum(end - start for start, end in waits)
    assert seen["GPU idle after the wait per step"] * 8 == starved


def test_a_log_every_fourth_step_is_no_habit(files, findings):
    assert len(query(files[TRANSFORMER], CALLS, "cudaStreamSynchronize%")) == 8
    assert "accidental-sync" not in findings[TRANSFORMER]


def test_timers_of_ddp_are_no_habit(files, findings, timelines):
    """Eight event waits in eight steps, all in the first one, and the wait of the harness at the end."""
    assert len(query(files[DDP], CALLS, "cudaEventSynchronize%")) == 8
    assert len(query(files[DDP], CALLS, "cudaDeviceSynchronize%")) == 1
    found = [finding for finding in rules.find(timelines[DDP]) if finding.rule == "accidental-sync"]
    assert [finding.subject for finding in found] == ["cudaStreamSynchronize"]


def test_one_rank_of_nccl_has_no_communication(timelines, findings):
    assert not timelines[DDP].operations.nccl.any()
    assert not {"exposed-communication", "communication-every-microstep"} & findings[DDP].keys()


@pytest.mark.parametrize("name", [ITEM, DDP, GRAPH, NODE])
def test_the_pageable_batch(files, findings, name):
    finding = findings[name]["pageable-copies"]
    assert finding.phase == "h2d"
    copies = query(
        files[name],
        "select sum(m.end - m.start), sum(m.bytes), sum(r.end - r.start), count(*) from CUPTI_ACTIVITY_KIND_MEMCPY m"
        " join CUPTI_ACTIVITY_KIND_RUNTIME r using (correlationId)"
        " where m.copyKind = 1 and m.srcKind = 0 and m.bytes > 65536",
    )
    seen = evidence(finding)
    assert copies == [
        (
            seen["copy time on the GPU per step"] * 8,
            seen["moved per step"] * 8,
            seen["CPU time in the copy calls per step"] * 8,
            8,
        )
    ]


@pytest.mark.parametrize("name", [ITEM, DDP, TRANSFORMER])
def test_launch_bound_gaps(files, findings, name):
    """The rule's gaps against a slow count over SQL rows."""
    finding = findings[name]["many-small-kernels"]
    work = []
    for kind in ("KERNEL", "MEMCPY", "MEMSET"):
        work += query(
            files[name],
            f"select o.start, o.end, r.start from CUPTI_ACTIVITY_KIND_{kind} o"
            " join CUPTI_ACTIVITY_KIND_RUNTIME r using (correlationId)",
        )
    work.sort()
    steps = query(files[name], STEPS, "step")

    def step_of(at: int) -> int | None:
        return next((i for i, (a, b) in enumerate(steps) if a <= at < b), None)

    gaps = []
    dry, last_step = None, None
    for start, end, asked in work:
        step = step_of(asked)
        if dry is not None and step is not None and step == last_step and dry <= asked and dry < start <= dry + 100_000:
            gaps.append(start - dry)
        dry, last_step = max(dry or end, end), step
    count = 32 if name == TRANSFORMER else 8
    assert evidence(finding)["GPU idle between launches per step"] * count == pytest.approx(sum(gaps))
    assert evidence(finding)["mean gap"] == pytest.approx(sum(gaps) / len(gaps))
    assert evidence(finding)["kernels per step"] == (286 if name == TRANSFORMER else 154 if name == DDP else 128)


def test_the_slow_first_step_of_the_transformer(files, findings):
    finding = findings[TRANSFORMER]["outlier-step"]
    first, *_ = query(files[TRANSFORMER], STEPS, "step")
    data, *_ = query(files[TRANSFORMER], STEPS, "data")
    seen = evidence(finding)
    assert seen["slowest step"] == first[1] - first[0]
    assert seen["median step"] + seen["extra time of the slowest step"] == seen["slowest step"]
    assert finding.phase == "data"
    assert data[1] - data[0] > seen["extra time of the slowest step"] / 2
    assert "most of the extra time in data" in finding.title
    assert "warmup_steps" in finding.advice


def test_measured_numbers_that_thresholds_and_pages_name(timelines):
    """docs/rules/periodic-stalls.md: steps of a launch differ by 6 to 12 %; docs/rules/many-small-kernels.md: a launch
    call takes 4 to 6 µs, a PyTorch thread launches every 15 to 33 µs (medians, without CUDA graphs)."""
    spreads, calls_us, distances_us = [], [], []
    for name, timeline in timelines.items():
        wall = timeline.steps.end_ns - timeline.steps.start_ns
        spreads.append(1.4826 * np.median(np.abs(wall - np.median(wall))) / np.median(wall))
        if name in (GRAPH, NODE):
            continue
        calls = timeline.api_calls
        launches = np.array([n.startswith("cudaLaunchKernel") for n in timeline.names])[calls.name]
        calls_us.append(np.median((calls.end_ns - calls.start_ns)[launches]) / 1000)
        for thread in (timeline.threads.index("pt_autograd_0"), calls.thread[launches][0]):
            distances_us.append(np.median(np.diff(calls.start_ns[launches & (calls.thread == thread)])) / 1000)
    assert (round(min(spreads), 2), round(max(spreads), 2)) == (0.06, 0.12)
    assert (round(min(calls_us)), round(max(calls_us))) == (4, 6)
    assert (round(min(distances_us)), round(max(distances_us))) == (15, 33)


def test_item_against_ddp_explains_the_kernel_time(timelines):
    sides = [extract_timeline(timelines[name]) for name in (ITEM, DDP)]
    changes = diff_kernels(sides[0].kernels, 8, sides[1].kernels, 8)
    for phase in ("forward", "backward", "optimizer"):
        totals = [
            sum(s.values) / 8 for side in sides for s in side.series if s.phase == phase and s.metric == "kernel_ns"
        ]
        moved_ns = sum(change.delta_ns for change in changes if change.phase == phase)
        assert moved_ns == pytest.approx(totals[1] - totals[0], abs=1e-3)
    ddp_only = [change for change in changes if change.baseline_count == 0]
    assert sum(change.candidate_count for change in ddp_only) == 26  # DDP's scaling of each gradient


def test_pairs(findings):
    item, transformer = tuple(findings[ITEM].values()), tuple(findings[TRANSFORMER].values())
    assert not any(finding.new or finding.worsened for finding in compare_findings(item, item))
    new = {finding.rule for finding in compare_findings(transformer, item) if finding.new}
    assert new == {"accidental-sync", "pageable-copies"}
    assert {finding.rule for finding in gone_findings(transformer, item)} == {"outlier-step"}


def test_timelines_of_real_traces_keep_to_the_format(timelines):
    for name in ALL:
        document = check(timeline_json(timelines[ITEM], timelines[name]))
        assert document["otherData"]["candidate"]["left_out_slices"] == 0
        flows = sum(event["ph"] == "s" for event in document["traceEvents"])
        assert flows > 100


@pytest.mark.parametrize("name", ["cpu_nvtx_nsys2022.4", "cpu_two_ranks_start_end_nsys2022.4"])
def test_nothing_is_said_of_a_gpu_that_was_not_traced(name, tmp_path):
    path = tmp_path / f"{name}.sqlite"
    path.write_bytes(gzip.decompress((TRACES / f"{name}.sqlite.gz").read_bytes()))
    timeline = read_timeline([path])
    assert not timeline.traced_gpu
    assert {finding.rule for finding in rules.find(timeline)} <= {"outlier-step", "periodic-stalls"}
    check(timeline_json(timeline))
