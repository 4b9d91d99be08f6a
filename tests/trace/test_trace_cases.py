"""Kinds of traces that broke other tools, one test per kind, on small exports made for it."""

import gzip
import itertools
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from nsys_builder import COLUMNS, DOMAIN, START_END, Export, add_training, process_id, training

from perfci.errors import ExitCode, TraceError
from perfci.model.metrics import BACKGROUND, STEP, UNMARKED
from perfci.model.timeline import NO_STEP, SyncKind
from perfci.trace.attribution import LONGEST_PHASE_NAME, phase_name
from perfci.trace.extract import extract, extract_timeline, read_timeline

TRACES = Path(__file__).parents[1] / "traces"


def values(extraction, phase, metric):
    """The values of a series, or None where there is none."""
    return next((s.values for s in extraction.series if (s.phase, s.metric) == (phase, metric)), None)


def codes(extraction):
    return [note.code for note in extraction.notes]


def written(export, tmp_path, name="t.sqlite", **options):
    return export.write(tmp_path / name, **options)


# Attribution ----------------------------------------------------------------------------------------------------------


def test_issue_numbers_on_the_recorded_transformer():
    timeline = read_timeline([TRACES / "h200_transformer_32steps_nsys2025.3.sqlite.gz"])
    extraction = extract_timeline(timeline)
    assert (extraction.step_count, extraction.dropped_step_count) == (32, 1)
    table = timeline.operations
    found = {}
    for at, phase in enumerate(timeline.phases):
        hit = (table.phase == at) & (table.step != NO_STEP)
        found[phase] = (int(hit.sum()), int((table.end_ns - table.start_ns)[hit].sum()))
    assert found["backward"] == (6720, 31_409_989)
    assert found["forward"] == (3296, 15_349_604)
    assert found["optimizer"] == (320, 11_050_378)
    assert found["h2d"] == (64, 2_641_080)
    assert found["log"] == (8, 14_368)
    assert found[BACKGROUND] == found[UNMARKED] == found["data"] == (0, 0)
    assert codes(extraction) == []


def test_autograd_thread_works_for_the_phase_that_is_open(tmp_path):
    extraction = extract([written(training(), tmp_path)])
    assert values(extraction, "backward", "kernel_count") == (2, 2, 2)
    assert values(extraction, "backward", "kernel_ns") == (140, 140, 140)
    assert values(extraction, "forward", "kernel_ns") == (100, 100, 100)
    assert values(extraction, STEP, "kernel_count") == (5, 5, 5)


def test_other_helper_threads_count_in_the_step_and_in_no_phase(tmp_path):
    export = training()
    pin, nameless = (7, 300), (7, 301)
    export.name_thread(pin, "pt_data_pin")
    for step in range(3):
        t = 1000 + 1000 * step
        export.copy(1, t + 260, t + 290, export.call("cudaMemcpyAsync_v3020", t + 250, t + 252, pin))
        export.launch("gather", t + 255, t + 330, t + 340, nameless)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, BACKGROUND, "h2d_count") == (1, 1, 1)
    assert values(extraction, BACKGROUND, "kernel_count") == (1, 1, 1)
    assert values(extraction, "forward", "kernel_count") == (2, 2, 2)
    assert values(extraction, STEP, "h2d_count") == (2, 2, 2)
    assert values(extraction, BACKGROUND, "wall_ns") is None


def test_a_helper_thread_with_marks_of_its_own_uses_them(tmp_path):
    export = training()
    prefetch = (7, 300)
    export.name_thread(prefetch, "prefetch")
    for step in range(3):
        t = 1000 + 1000 * step
        export.mark("h2d", t + 240, t + 260, prefetch)
        export.copy(1, t + 260, t + 290, export.call("cudaMemcpyAsync_v3020", t + 250, t + 252, prefetch))
        export.copy(1, t + 290, t + 295, export.call("cudaMemcpyAsync_v3020", t + 280, t + 282, prefetch))
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "h2d", "h2d_count") == (2, 2, 2)
    assert values(extraction, BACKGROUND, "h2d_count") == (1, 1, 1)
    assert values(extraction, "h2d", "wall_ns") == (50, 50, 50)


def test_without_thread_names_the_fallback_is_said(tmp_path):
    extraction = extract([written(training(named=False), tmp_path)])
    assert values(extraction, "backward", "kernel_count") == (2, 2, 2)
    assert codes(extraction) == ["thread-names-missing"]


def test_a_loader_process_disturbs_nothing(tmp_path):
    export = training()
    plain = extract([written(export, tmp_path)])
    worker = (55, 55)
    for step in range(3):
        t = 1000 + 1000 * step
        export.mark("forward", t, t + 900, worker)
        export.launch("augment", t + 250, t + 260, t + 390, worker)
    extraction = extract([written(export, tmp_path, "with-worker.sqlite")])
    assert extraction.series == plain.series
    assert codes(extraction) == ["other-processes"]


def test_equal_correlation_numbers_of_two_processes_are_kept_apart(tmp_path):
    export = training()
    export.kernel(
        "augment", 1250, 1260, export.call("cudaLaunchKernel_v7000", 1240, 1241, (55, 55), correlation=103), 55
    )
    assert values(extract([written(export, tmp_path)]), "forward", "kernel_count") == (2, 2, 2)


def test_ranges_of_libraries_are_no_phases(tmp_path):
    export = training()
    for step in range(3):
        export.mark("ncclAllReduce", 1205 + 1000 * step, 1390 + 1000 * step, domain=1)
        export.mark("aten::linear, op_id = 7, seq = 4", 1206 + 1000 * step, 1389 + 1000 * step)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "kernel_count") == (2, 2, 2)
    assert {s.phase for s in extraction.series} == {
        STEP, BACKGROUND, UNMARKED, "data", "h2d", "forward", "backward", "optimizer",
    }  # fmt: skip


def test_marks_in_a_domain_of_their_own_count_when_there_are_no_others(tmp_path):
    export = Export()
    for step in range(3):
        export.mark("step", 100 * step, 100 * step + 90, domain=2)
    assert extract([written(export, tmp_path)]).step_count == 3


def test_chosen_phases_leave_other_ranges_transparent(tmp_path):
    export = training()
    for step in range(3):
        export.mark("attention", 1205 + 1000 * step, 1390 + 1000 * step)
    path = written(export, tmp_path)
    assert values(extract([path]), "attention", "kernel_count") == (2, 2, 2)
    chosen = extract([path], phases=["loss"])
    assert values(chosen, "forward", "kernel_count") == (2, 2, 2)
    assert values(chosen, "attention", "kernel_count") is None


def test_the_outer_level_is_no_phase(tmp_path):
    export = training()
    export.mark("Epoch 1", 0, 9000)
    export.launch("stray", 1950, 1960, 1970)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, UNMARKED, "kernel_count") == (1, 0, 0)
    assert values(extraction, "Epoch 1", "wall_ns") is None


def test_work_between_steps_keeps_its_phase_and_counts_in_no_step(tmp_path):
    export = training()
    export.mark("validation", 4100, 4500)
    export.launch("eval", 4200, 4210, 4300)
    timeline = read_timeline([written(export, tmp_path)])
    at = timeline.names.index("eval")
    (row,) = np.flatnonzero(timeline.operations.name == at)
    assert timeline.operations.step[row] == NO_STEP
    assert timeline.phases[timeline.operations.phase[row]] == "validation"
    assert values(extract_timeline(timeline), STEP, "kernel_count") == (5, 5, 5)


def test_operations_whose_call_was_not_recorded(tmp_path):
    export = training()
    export.kernel("orphan", 1250, 1255, correlation=5)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, BACKGROUND, "kernel_count") == (1, 0, 0)
    assert values(extraction, "forward", "kernel_count") == (2, 2, 2)
    assert codes(extraction) == ["operations-without-launch"]


# Ranges of every shape ------------------------------------------------------------------------------------------------


def test_start_end_ranges_that_overlap(tmp_path):
    export = Export()
    for step in range(3):
        t = 1000 * step
        export.mark("step", t, t + 900, kind=START_END)
        export.mark("forward", t + 100, t + 400, kind=START_END)
        export.mark("backward", t + 300, t + 600, kind=START_END)
        for at in (200, 350, 500):
            export.launch("k", t + at, t + at + 10, t + at + 20)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "kernel_count") == (1, 1, 1)
    assert values(extraction, "backward", "kernel_count") == (2, 2, 2)
    assert values(extraction, "forward", "wall_ns") == (300, 300, 300)
    assert values(extraction, UNMARKED, "wall_ns") == (400, 400, 400)


def test_a_range_nested_in_its_own_name_counts_once(tmp_path):
    export = training()
    for step in range(3):
        export.mark("forward", 1220 + 1000 * step, 1300 + 1000 * step)
        export.mark("step", 1010 + 1000 * step, 1990 + 1000 * step)
    extraction = extract([written(export, tmp_path)])
    assert extraction.step_count == 3
    assert values(extraction, "forward", "wall_ns") == (200, 200, 200)
    assert values(extraction, "forward", "kernel_count") == (2, 2, 2)


def test_unfinished_ranges(tmp_path):
    export = training()
    export.mark("leak", 1910, None, kind=START_END)
    export.launch("late", 1920, 1930, 1940)
    export.mark("step", 4000, None)
    extraction = extract([written(export, tmp_path)])
    assert (extraction.step_count, extraction.dropped_step_count) == (3, 1)
    assert values(extraction, "leak", "wall_ns") == (90, 0, 0)
    assert values(extraction, "leak", "kernel_count") == (1, 0, 0)
    assert codes(extraction) == ["unfinished-ranges"]


def test_the_creation_of_a_domain_is_no_range(tmp_path):
    export = training()
    wanted = extract([written(export, tmp_path)])
    for domain in (0, 1):
        export.mark("NCCL", 1210, None, kind=DOMAIN, domain=domain)
    assert extract([written(export, tmp_path, "b.sqlite")]) == wanted


def test_numbered_steps(tmp_path):
    export = Export()
    for step, name in enumerate(("step 0", "step_1", "step#2", "stepper", "step")):
        export.mark(name, 100 * step, 100 * step + 90)
    assert extract([written(export, tmp_path)]).step_count == 4
    assert extract([written(export, tmp_path, "b.sqlite")], step_range="stepper").step_count == 1


@pytest.mark.parametrize(
    "name",
    [
        "x" * 10_000,
        "a\x1b[31m\x07",
        "a|b",
        "a --> b",
        "@team",
        "<script>alert(1)</script>",
        "🚀",
        "\u202eabc",
        "100%",
        "' --",
    ],
)
def test_names_from_users_are_only_names(name, tmp_path):
    export = training()
    for step in range(3):
        export.mark(name, 1205 + 1000 * step, 1390 + 1000 * step, registered=bool(step % 2))
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, name, "kernel_count") == (2, 2, 2)


def test_names_that_no_database_holds_are_mended(tmp_path):
    """Else the whole run could not be stored, or its bundle would be refused."""
    export = training()
    for step in range(3):
        export.mark("a\x00b", 1205 + 1000 * step, 1220 + 1000 * step)
        for at, end in enumerate("ab"):
            export.mark("y" * 50_000 + end, 1225 + 1000 * step + 40 * at, 1260 + 1000 * step + 40 * at)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "a\ufffdb", "kernel_count") == (1, 1, 1)
    long = {series.phase for series in extraction.series if series.phase.startswith("yyy")}
    assert len(long) == 2
    assert {len(name) for name in long} == {LONGEST_PHASE_NAME}
    assert phase_name("half \ud800 of a pair") == "half \ufffd of a pair"


@pytest.mark.parametrize("name", ["", STEP, "run", BACKGROUND, UNMARKED])
def test_names_of_pseudo_phases_cannot_be_taken(name, tmp_path):
    export = training()
    for step in range(3):
        export.mark(name, 1205 + 1000 * step, 1390 + 1000 * step)
    assert values(extract([written(export, tmp_path)]), "forward", "kernel_count") == (2, 2, 2)


def test_a_thousand_different_names_are_cut_and_said(tmp_path):
    export = training()
    for at in range(1000):
        export.mark(f"op {at}", 1901 + at % 50, 1902 + at % 50)
    extraction = extract([written(export, tmp_path)])
    assert codes(extraction) == ["too-many-phases"]
    assert values(extraction, "forward", "kernel_count") == (2, 2, 2)
    assert len({s.phase for s in extraction.series}) < 420


# Steps at the borders of the capture ----------------------------------------------------------------------------------


def test_cut_steps_are_dropped(tmp_path):
    export = training(5)
    export.mark("step", 6000, 6400)
    export.mark("data", 6010, 6100)
    extraction = extract([written(export, tmp_path)])
    assert (extraction.step_count, extraction.dropped_step_count) == (5, 1)


def test_a_phase_that_only_some_steps_have_does_not_drop_steps(tmp_path):
    export = training(5)
    for step in (1, 3):
        export.mark("log", 1900 + 1000 * step, 1950 + 1000 * step)
    extraction = extract([written(export, tmp_path)])
    assert extraction.step_count == 5
    assert values(extraction, "log", "wall_ns") == (0, 50, 0, 50, 0)
    assert values(extraction, "log", "gpu_utilization_ratio") is None


def test_a_step_in_which_the_profiler_stopped_is_dropped(tmp_path):
    export = training(4)
    export.overhead("CUDA profiling data flush on cudaProfilerStop", 4950, 9000)
    assert extract([written(export, tmp_path)]).step_count == 3


def test_only_cut_steps_is_an_error(tmp_path):
    export = training(1)
    export.overhead("CUDA profiling data flush on cudaProfilerStop", 1950, 9000)
    with pytest.raises(TraceError, match="no step lies wholly inside the capture"):
        extract([written(export, tmp_path)])


def test_kernels_that_end_after_the_step_belong_to_it(tmp_path):
    export = training()
    export.launch("late", 1990, 2040, 2140)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, STEP, "kernel_count") == (6, 5, 5)
    assert values(extraction, STEP, "kernel_ns") == (420, 320, 320)
    assert values(extraction, STEP, "gpu_idle_ns")[1] == 1000 - 360 - 80


def test_kernels_without_times_are_counted(tmp_path):
    export = training()
    export.launch("untimed", 1250, 0, 0)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "kernel_count") == (3, 2, 2)
    assert values(extraction, "forward", "kernel_ns") == (100, 100, 100)
    assert codes(extraction) == ["operations-without-times"]


def test_times_that_cannot_be_are_said(tmp_path):
    export = training()
    export.launch("backwards", 1250, 1300, 1200)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "kernel_ns") == (100, 100, 100)
    assert codes(extraction) == ["impossible-times"]


@pytest.mark.parametrize("end", [3 * 10**15, 2**62, 2**63 - 1])
def test_times_that_no_capture_lasts_are_said(end, tmp_path):
    export = training()
    export.launch("endless", 1250, 1300, end)
    export.mark("forward", 1205, end)
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "kernel_ns") == (100, 100, 100)
    assert values(extraction, "forward", "wall_ns") == (200, 200, 200)
    assert codes(extraction) == ["impossible-times"] * 2, "of ranges, and of operations"


@pytest.mark.parametrize("size", [-1, 2**60])
def test_sizes_that_cannot_be_are_damage(size, tmp_path):
    export = training()
    export.copy(1, 1250, 1260, export.call("cudaMemcpyAsync_v3020", 1250, 1252), size=size)
    refused(written(export, tmp_path), "is damaged: .* impossible size")


# Graphs ---------------------------------------------------------------------------------------------------------------


def test_graphs_as_a_whole_are_busy_time_and_their_kernels_are_unknown(tmp_path):
    export = training()
    for step in range(3):
        t = 1000 + 1000 * step
        export.graph(t + 320, t + 380, export.call("cudaGraphLaunch_v10000", t + 240, t + 245))
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "gpu_busy_ns") == (160, 160, 160)
    assert values(extraction, "forward", "graph_launch_count") == (1, 1, 1)
    for phase in (STEP, "forward"):
        for metric in ("kernel_count", "kernel_ns", "memset_count", "nccl_ns", "d2d_bytes", "overlap_ratio"):
            assert values(extraction, phase, metric) is None
    assert values(extraction, "backward", "kernel_count") == (2, 2, 2)
    assert values(extraction, "forward", "h2d_count") == (0, 0, 0)
    assert codes(extraction) == ["kernels-inside-graphs"]


def test_both_granularities_agree_on_what_they_both_see():
    graph = extract([TRACES / "h200_gpt_cuda_graph_granularity_graph.sqlite.gz"])
    node = extract([TRACES / "h200_gpt_cuda_graph_granularity_node.sqlite.gz"])
    assert values(graph, "forward", "kernel_count") is None
    assert values(node, "forward", "kernel_count") == (40,) * 8
    for metric in ("graph_launch_count", "h2d_count", "h2d_bytes", "sync_count", "api_call_count"):
        for phase in (STEP, "forward", "backward", "optimizer", "h2d", "log"):
            assert values(graph, phase, metric) == values(node, phase, metric)
    assert values(graph, "backward", "graph_launch_count") == (1,) * 8


# Waiting and copies ---------------------------------------------------------------------------------------------------


def test_waits_by_kind(tmp_path):
    export = training(1)
    pageable = export.call("cudaMemcpyAsync_v3020", 1750, 1760)
    export.copy(2, 1755, 1759, pageable, pageable=True)
    pinned = export.call("cudaMemcpyAsync_v3020", 1761, 1762)
    export.copy(2, 1763, 1764, pinned)
    export.call("cudaMemcpy_v3020", 1710, 1720)
    export.call("cudaStreamSynchronize_v3020", 1712, 1719)
    export.call("cudaEventSynchronize_v3020", 1730, 1731)
    export.call("cudaEventQuery_v3020", 1732, 1733)
    export.call("cudaDeviceSynchronize_v3020", 1740, 1745)
    timeline = read_timeline([written(export, tmp_path)])
    extraction = extract_timeline(timeline)
    assert values(extraction, "optimizer", "stream_sync_count") == (1,)
    assert values(extraction, "optimizer", "copy_sync_count") == (2,)
    assert values(extraction, "optimizer", "event_sync_count") == (1,)
    assert values(extraction, "optimizer", "device_sync_count") == (1,)
    assert values(extraction, "optimizer", "sync_count") == (5,)
    assert values(extraction, "optimizer", "sync_ns") == (60 + 10 + 10 + 1 + 5,)
    assert values(extraction, "optimizer", "d2h_pageable_count") == (1,)
    assert values(extraction, "optimizer", "d2h_count") == (2,)
    assert int((timeline.api_calls.sync == SyncKind.COPY).sum()) == 2


def test_item_each_step_is_one_wait_per_step():
    extraction = extract([TRACES / "h200_gpt_item_each_step.sqlite.gz"])
    assert values(extraction, STEP, "sync_count") == (1,) * 8
    assert values(extraction, "log", "stream_sync_count") == (1,) * 8
    assert values(extraction, "h2d", "h2d_pageable_count") == (2,) * 8


def test_exposed_and_overlapped(tmp_path):
    export = Export()
    export.mark("step", 0, 1000)
    export.mark("forward", 0, 1000)
    export.launch("gemm", 10, 100, 200)
    export.launch("ncclDevKernel_AllReduce", 20, 150, 300, stream=11)
    export.copy(1, 190, 250, export.call("cudaMemcpyAsync", 30, 31))
    extraction = extract([written(export, tmp_path)])
    assert values(extraction, "forward", "nccl_ns") == (150,)
    assert values(extraction, "forward", "nccl_exposed_ns") == (100,)
    assert values(extraction, "forward", "copy_exposed_ns") == (50,)
    assert values(extraction, "forward", "overlap_ratio") == (50 / 150,)
    assert values(extraction, "forward", "gpu_busy_ns") == (200,)
    assert values(extraction, "forward", "gpu_idle_ns") == (800,)
    assert values(extraction, "forward", "gpu_utilization_ratio") == (0.2,)


# Ranks ----------------------------------------------------------------------------------------------------------------


def test_eight_ranks_in_one_file(tmp_path):
    export = Export()
    for rank in range(8):
        add_training(export, 3, pid=10 + rank, base=1000 + 10 * rank)
        export.name_thread((10 + rank, 10 + rank), "python3")
        export.name_thread((10 + rank, 110 + rank), "pt_autograd_0")
    export.launch("extra", 1250 + 70, 1290, 1295, (17, 17))
    extraction = extract([written(export, tmp_path)])
    assert extraction.trace.rank_count == 8
    assert [rank for rank, _ in extraction.rank_series] == list(range(8))
    assert values(extraction, "backward", "kernel_count") == (16, 16, 16)
    assert values(extraction, STEP, "kernel_count") == (41, 40, 40)
    assert values(extraction, STEP, "wall_ns") == (1000, 1000, 1000)


def test_two_real_ranks_of_start_end_ranges_in_one_file():
    extraction = extract([TRACES / "cpu_two_ranks_start_end_nsys2022.4.sqlite.gz"])
    assert extraction.trace.rank_count == 2
    slow = max(np.median(s.values) for _, several in extraction.rank_series for s in several if s.phase == STEP)
    assert np.median(values(extraction, STEP, "wall_ns")) == pytest.approx(slow, rel=0.5)


def rank_file(tmp_path, rank, **options):
    return written(training(3, pid=20 + rank, **options), tmp_path, f"run.rank{rank}.sqlite")


def test_one_file_per_rank(tmp_path):
    files = [rank_file(tmp_path, rank) for rank in (1, 0, 2)]
    extraction = extract(files)
    assert [rank for rank, _ in extraction.rank_series] == [0, 1, 2]
    assert values(extraction, STEP, "kernel_count") == (15, 15, 15)
    assert values(extraction, "backward", "wall_ns") == (200, 200, 200)
    assert codes(extraction) == []


def test_a_missing_rank_spoils_the_run(tmp_path):
    extraction = extract([rank_file(tmp_path, rank) for rank in (0, 1, 3)])
    (note,) = extraction.notes
    assert (note.code, note.spoils) == ("rank-missing", True)
    assert "rank 2" in note.text


def test_two_files_of_one_rank_are_refused(tmp_path):
    first = rank_file(tmp_path, 0)
    (tmp_path / "again").mkdir()
    with pytest.raises(TraceError, match="same rank"):
        extract([first, rank_file(tmp_path / "again", 0)])


def test_ranks_with_different_numbers_of_steps(tmp_path):
    export = training(3, pid=20)
    add_training(export, 5, pid=30)
    extraction = extract([written(export, tmp_path)])
    assert extraction.step_count == 3
    assert all(len(s.values) == 3 for s in extraction.series)
    assert "steps-differ" in codes(extraction)
    # Kernels and calls are those of the same steps: kernel differences divide them by the number of steps.
    assert sum(kernel.count for kernel in extraction.kernels) == sum(values(extraction, STEP, "kernel_count"))
    calls = sum(call.count for call in extraction.api_calls)
    assert calls == sum(values(extraction, STEP, "api_call_count"))


def test_clocks_of_files_are_put_together(tmp_path):
    files = []
    for rank, started in ((0, 5_000), (1, 7_500)):
        export = training(3, pid=20 + rank)
        export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=started)
        files.append(written(export, tmp_path, f"run.rank{rank}.sqlite"))
    timeline = read_timeline(files)
    starts = {rank: timeline.steps.start_ns[timeline.steps.rank == rank].tolist() for rank in (0, 1)}
    assert starts == {0: [1000, 2000, 3000], 1: [3500, 4500, 5500]}
    table = timeline.operations
    assert (table.start_ns[1:] >= table.start_ns[:-1]).all()
    launched = timeline.api_calls
    assert (launched.rank[table.launch] == table.rank).all()
    assert (launched.start_ns[table.launch] <= table.start_ns).all()


# Schemas --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"suffix": "_V2"},
        {"suffix": "_V3"},
        {"shuffle_seed": 4},
        {"empty_tables": True},
        {"without": ["CUPTI_ACTIVITY_KIND_KERNEL.shortName", "CUPTI_ACTIVITY_KIND_MEMCPY.deviceId"]},
        {"without": ["NVTX_EVENTS.domainId", "NVTX_EVENTS.textId", "META_DATA_EXPORT"]},
    ],
)
def test_schemas_of_other_versions_say_the_same(options, tmp_path):
    wanted = extract([written(training(), tmp_path, "plain.sqlite")])
    found = extract([written(training(), tmp_path, **options)])
    assert found.series == wanted.series
    assert found.kernels == wanted.kernels


def test_the_newest_version_of_a_table_counts(tmp_path):
    path = written(training(), tmp_path, suffix="_V2")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT)")
        database.execute("INSERT INTO NVTX_EVENTS VALUES (1, 2, 59, 'old')")
        database.commit()
    assert extract([path]).step_count == 3


def test_a_column_that_cannot_be_missing(tmp_path):
    with pytest.raises(TraceError, match="has no column nameId"):
        extract([written(training(), tmp_path, without=["CUPTI_ACTIVITY_KIND_RUNTIME.nameId"])])


def test_operations_without_any_call_table(tmp_path):
    extraction = extract([written(training(), tmp_path, without=["CUPTI_ACTIVITY_KIND_RUNTIME"])])
    assert values(extraction, STEP, "kernel_count") == (5, 5, 5)
    assert values(extraction, STEP, "api_call_count") is None
    assert values(extraction, "forward", "kernel_count") == (0, 0, 0)
    assert set(codes(extraction)) == {"operations-without-launch", "no-cuda-calls"}


def test_a_real_cpu_only_export_of_2022_4_has_wall_times_and_no_gpu_metrics():
    extraction = extract([TRACES / "cpu_nvtx_nsys2022.4.sqlite.gz"])
    assert extraction.step_count == 6
    assert extraction.trace.collector_version == "2022.4.2.1"
    assert {s.metric for s in extraction.series} == {"wall_ns"}
    backward_ns = values(extraction, "backward", "wall_ns")
    assert len(backward_ns) == 6
    assert min(backward_ns) > 3_000_000


# Inputs that are no trace ---------------------------------------------------------------------------------------------


def refused(path, match):
    with pytest.raises(TraceError, match=match) as caught:
        extract([path])
    assert caught.value.exit_code is ExitCode.MEASUREMENT
    assert caught.value.wanted
    return str(caught.value)


def test_inputs_that_are_no_export(tmp_path):
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    text = tmp_path / "text.sqlite"
    text.write_text("hello")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"\x00" * 300)
    damaged = tmp_path / "damaged.sqlite.gz"
    damaged.write_bytes(gzip.compress(b"SQLite format 3\0" + b"x" * 5000)[:40])
    nested = tmp_path / "nested.sqlite.gz"
    nested.write_bytes(gzip.compress(b"no database"))
    pipe = tmp_path / "pipe.sqlite"
    os.mkfifo(pipe)
    refused(pipe, "is a pipe or a device")
    refused(Path("/dev/zero"), "is a pipe or a device")
    refused(tmp_path / "missing.sqlite", "does not exist")
    refused(tmp_path, "is a directory")
    refused(empty, "is empty")
    refused(text, "is not an SQLite database")
    assert "nsys export" in refused(report, "is a report")
    refused(damaged, "damaged gzip")
    refused(nested, "is not an SQLite database")
    with pytest.raises(TraceError, match="no trace file"):
        extract([])


def test_a_database_of_something_else(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE places (url TEXT)")
        database.commit()
    assert "places" in refused(path, "not an export of nsys")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_in_the_middle(share, tmp_path):
    whole = gzip.decompress((TRACES / "h200_gpt_item_each_step.sqlite.gz").read_bytes())
    path = tmp_path / "cut.sqlite"
    path.write_bytes(whole[: int(len(whole) * share)])
    refused(path, "is cut")


def test_a_damaged_page_is_no_traceback(tmp_path):
    whole = bytearray(gzip.decompress((TRACES / "h200_gpt_item_each_step.sqlite.gz").read_bytes()))
    for at in range(8192, len(whole) - 4096, 8192):
        whole[at : at + 64] = b"\xff" * 64
    path = tmp_path / "damaged.sqlite"
    path.write_bytes(whole)
    refused(path, "damaged|not an export")


ANYTHING = [None, -1, 0, 1.5, 2**40, 2**62, 2**63 - 1, -(2**63), float("inf"), "", "12", "abc", b"", b"\xff\x00"]


def every_table():
    export = training(2)
    export.overhead("CUDA profiling data flush", 2995, 2999)
    export.memset(1700, 1710, export.call("cudaMemsetAsync", 1690, 1695))
    export.graph(1720, 1730, export.call("cudaGraphLaunch", 1700, 1705))
    export.add("PROCESSES", globalPid=process_id(7), pid=7, name="python")
    export.add("TARGET_INFO_GPU", id=0, name="NVIDIA H200")
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=5)
    export.add("DIAGNOSTIC_EVENT", text="all is well")
    return export


@pytest.mark.parametrize("table", [*COLUMNS, "StringIds"])
def test_any_field_may_hold_anything(table, tmp_path):
    """Each field with a value of another type or size, in one row and in all: read or refused, never more."""
    path = written(every_table(), tmp_path)
    whole = path.read_bytes()
    columns = COLUMNS.get(table, "value").split()
    for column, value, rows in itertools.product(columns, ANYTHING, ("WHERE rowid = 1", "")):
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as database:
            if table == "StringIds" and value is None:
                continue  # its column is NOT NULL
            database.execute(f'UPDATE "{table}" SET "{column}" = ? {rows}', (value,))
            database.commit()
        try:
            extraction = extract([path])
        except TraceError:
            continue
        assert extraction.step_count in (1, 2)


def test_a_value_that_is_no_integer_is_damage_and_is_named(tmp_path):
    export = training()
    export.rows["CUPTI_ACTIVITY_KIND_KERNEL"][0]["end"] = None
    refused(written(export, tmp_path), "is damaged: table CUPTI_ACTIVITY_KIND_KERNEL holds a value that is no integer")


def test_no_ranges_at_all_says_the_likely_causes(tmp_path):
    export = Export()
    export.launch("k", 10, 20, 30)
    message = refused(written(export, tmp_path), "no NVTX ranges at all")
    for hint in ("0.2.11", "NSYS_NVTX_PROFILER_REGISTER_ONLY", "perfci.phases"):
        assert hint in message


def test_ranges_but_no_steps_names_what_is_there(tmp_path):
    export = Export()
    export.mark("iteration", 0, 10)
    export.mark("x" * 500, 0, 10)
    message = refused(written(export, tmp_path), "no range is named 'step'")
    assert "'iteration'" in message
    assert len(message) < 1000


def test_a_step_that_never_ended(tmp_path):
    export = Export()
    export.mark("step", 0, None)
    refused(written(export, tmp_path), "never closed")


def test_calls_without_gpu_operations_are_a_failed_trace(tmp_path):
    export = Export()
    export.mark("step", 0, 100)
    export.call("cudaLaunchKernel_v7000", 10, 20)
    assert "torch.profiler" in refused(written(export, tmp_path), "no GPU operation was recorded")


def test_a_gpu_machine_without_cuda_records(tmp_path):
    export = Export()
    export.mark("step", 0, 100)
    export.add("TARGET_INFO_GPU", id=0, name="NVIDIA H200")
    extraction = extract([written(export, tmp_path)])
    assert codes(extraction) == ["no-cuda-records"]
    assert values(extraction, STEP, "kernel_count") is None
    export.add("DIAGNOSTIC_EVENT", text="CUPTI error: multiple subscribers not supported")
    assert "torch.profiler" in refused(written(export, tmp_path, "b.sqlite"), "multiple subscribers")
    export.rows["DIAGNOSTIC_EVENT"][0]["text"] = "CUDA tracing failed: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    message = refused(written(export, tmp_path, "c.sqlite"), "INSUFFICIENT_PRIVILEGES")
    assert "profiling capabilities" in message
    assert "torch.profiler" not in message


def test_process_id_is_what_the_mask_leaves():
    assert process_id(7) & 0xFFFFFF == 0
