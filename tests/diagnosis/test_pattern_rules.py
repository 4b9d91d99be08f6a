"""Each rule on timelines made by hand: fires on its pattern with the right numbers, and on nothing else."""

from dataclasses import replace

import numpy as np
import pytest
from timeline_builder import AUTOGRAD, MAIN, TimelineBuilder, healthy

from perfci.diagnosis import rules
from perfci.diagnosis.patterns.slow_steps import period_of
from perfci.model.finding import Confidence
from perfci.model.timeline import OperationKind, SyncKind

SYNC = "cudaStreamSynchronize_v3020"


def found(builder: TimelineBuilder) -> dict:
    findings = rules.find(builder.build())
    by_rule = {finding.rule: finding for finding in findings}
    assert len(by_rule) == len(findings), [finding.title for finding in findings]
    return by_rule


def evidence(finding) -> dict[str, float]:
    return {quantity.name: quantity.value for quantity in finding.evidence}


def test_healthy_training_has_no_finding():
    assert found(healthy()) == {}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_steps_say_nothing(count):
    made = healthy(count)
    for number in range(count):
        made.call(SYNC, number * 1000 + 985, number * 1000 + 995, sync=SyncKind.STREAM)
    assert found(made) == {}


def test_steps_without_any_work_say_nothing():
    made = TimelineBuilder()
    for number in range(10):
        made.step(number * 100, number * 100 + 100)
    assert found(made) == {}


def test_work_without_steps_says_nothing():
    made = TimelineBuilder()
    for number in range(100):
        made.kernel(number * 50, number * 50 + 10, number * 50 + 12)
    assert found(made) == {}


# --- accidental-sync


def test_wait_for_the_loss_in_every_step():
    made = healthy()
    for number in range(10):
        at = number * 1000
        made.phase("log", at + 980, at + 1000)
        made.copy(OperationKind.D2H, at + 981, at + 983, at + 990, at + 991, moved_bytes=4)
        made.call("cudaStreamIsCapturing_v10000", at + 983, at + 984)
        made.call(SYNC, at + 984, at + 994, sync=SyncKind.STREAM)
    finding = found(made)["accidental-sync"]
    assert (finding.phase, finding.subject) == ("log", "cudaStreamSynchronize")
    assert "`.item()`" in finding.advice
    seen = evidence(finding)
    assert seen["waits per step"] == 1
    assert seen["CPU blocked per step"] == 10_000
    # from 994 to the next forward kernel at 1025, which no wait of the last step has: 9 of 10 steps
    assert seen["GPU idle after the wait per step"] == pytest.approx(31_000 * 9 / 10)
    assert finding.confidence is Confidence.HIGH
    assert finding.evidence[0].value == pytest.approx(10_000 + 27_900)


def test_pageable_fetch_and_the_wait_for_it_are_one_wait():
    made = healthy()
    for number in range(10):
        at = number * 1000
        made.copy(OperationKind.D2H, at + 981, at + 992, at + 990, at + 991, moved_bytes=4, pageable=True,
                  sync=SyncKind.COPY)  # fmt: skip
        made.call(SYNC, at + 993, at + 994, sync=SyncKind.STREAM)
    finding = found(made)["accidental-sync"]
    assert finding.subject == "cudaStreamSynchronize"
    assert evidence(finding)["waits per step"] == 1


def test_fetch_that_blocks_by_itself_is_a_wait():
    made = healthy()
    for number in range(10):
        at = number * 1000
        made.copy(OperationKind.D2H, at + 981, at + 992, at + 990, at + 991, moved_bytes=4, pageable=True,
                  sync=SyncKind.COPY)  # fmt: skip
    assert found(made)["accidental-sync"].subject == "cudaMemcpyAsync"


@pytest.mark.parametrize(
    ("where", "thread"),
    [
        ([3], MAIN),  # once
        ([0] * 8, MAIN),  # as often as there are steps, but all in one of them (DDP reads its timers so)
        (range(0, 10, 2), MAIN),  # every second step
        (range(10), "pin_memory"),  # a helper thread waits, the training does not
    ],
)
def test_waits_that_are_no_habit_of_the_training_thread(where, thread):
    made = healthy()
    for turn, number in enumerate(where):
        made.call(SYNC, number * 1000 + 985 + turn, number * 1000 + 985.5 + turn, sync=SyncKind.STREAM, thread=thread)
    assert "accidental-sync" not in found(made)


def test_waits_of_the_harness_at_the_borders_of_the_window():
    made = healthy()
    for at in (-50, 10_000, 10_050):
        made.call("cudaDeviceSynchronize_v3020", at, at + 40, sync=SyncKind.DEVICE)
    assert found(made) == {}


def test_one_rank_that_logs_is_enough():
    made = healthy(rank=1, builder=healthy(rank=0))
    for number in range(10):
        made.call(SYNC, number * 1000 + 985, number * 1000 + 995, sync=SyncKind.STREAM, rank=0)
    finding = found(made)["accidental-sync"]
    assert evidence(finding)["waits per step"] == 1
    assert evidence(finding)["CPU blocked per step"] == 10_000


def test_two_waits_before_the_same_work_starve_the_gpu_once():
    made = healthy()
    for number in range(10):
        for at in (number * 1000 + 985, number * 1000 + 990):
            made.call(SYNC, at, at + 2, sync=SyncKind.STREAM)
    seen = evidence(found(made)["accidental-sync"])
    assert seen["waits per step"] == 2
    assert seen["GPU idle after the wait per step"] == pytest.approx((1025 - 987) * 1000 * 9 / 10)


def test_a_gpu_that_works_on_is_not_starved():
    made = healthy()
    for number in range(10):
        at = number * 1000
        made.call(SYNC, at + 985, at + 995, sync=SyncKind.STREAM)
        made.kernel(at + 900, at + 980, at + 1024, stream=9)  # another stream
    assert evidence(found(made)["accidental-sync"])["GPU idle after the wait per step"] == 0


def test_waits_outside_the_steps_do_not_add_to_the_habit():
    made = healthy()
    for number in range(10):
        made.call(SYNC, number * 1000 + 985, number * 1000 + 995, sync=SyncKind.STREAM)
    for turn in range(5):
        made.call(SYNC, 10_100 + turn * 10, 10_105 + turn * 10, sync=SyncKind.STREAM)
    seen = evidence(found(made)["accidental-sync"])
    assert (seen["waits per step"], seen["CPU blocked per step"]) == (1, 10_000)


# --- copies


def upload(made: TimelineBuilder, *, size: int, pageable: bool, duration: float = 90, count: int = 10) -> None:
    for number in range(count):
        at = number * 1000
        made.copy(OperationKind.H2D, at + 11, at + 14, at + 12 - duration + 5, at + 12 + 5, moved_bytes=size,
                  pageable=pageable, stream=8)  # fmt: skip


def test_pageable_batch():
    made = healthy()
    upload(made, size=1 << 20, pageable=True)
    finding = found(made)["pageable-copies"]
    assert finding.subject == "host to device"
    assert evidence(finding)["moved per step"] == 1 << 20
    assert evidence(finding)["copy time on the GPU per step"] == 90_000


@pytest.mark.parametrize(("size", "pageable", "count"), [(65536, True, 10), (1 << 20, False, 10), (1 << 20, True, 4)])
def test_small_pinned_or_rare_copies_are_fine(size, pageable, count):
    made = healthy()
    upload(made, size=size, pageable=pageable, count=count)
    assert "pageable-copies" not in found(made)


def exposed_copies(*, stretch: float) -> TimelineBuilder:
    """A GPU-bound step whose copy of 300 µs runs before all kernels, which then take 600 × ``stretch`` µs."""
    made = TimelineBuilder()
    for number in range(10):
        at = number * 1000
        made.step(at, at + 1000)
        made.phase("h2d", at, at + 20)
        made.copy(OperationKind.H2D, at + 5, at + 8, at + 10, at + 310, moved_bytes=1 << 24)
        made.phase("forward", at + 20, at + 990)
        made.kernel(at + 25, at + 320, at + 320 + 600 * stretch)
    return made


def test_exposed_copies_of_a_busy_gpu():
    finding = found(exposed_copies(stretch=1))["copies-not-overlapped"]
    assert finding.phase == "h2d"
    assert evidence(finding)["copy time not hidden per step"] == 300_000


def test_exposed_copies_do_not_matter_where_the_gpu_is_idle():
    assert "copies-not-overlapped" not in found(exposed_copies(stretch=0.2))


def test_overlapped_copies_are_fine():
    made = healthy()
    for number in range(10):
        made.copy(OperationKind.H2D, number * 1000 + 30, number * 1000 + 33, number * 1000 + 100, number * 1000 + 300,
                  moved_bytes=1 << 24, stream=8)  # fmt: skip
    assert "copies-not-overlapped" not in found(made)


# --- starving-loader


def loader(waits: list[float], *, ranks: int = 1) -> TimelineBuilder:
    """Steps of 500 µs of GPU work after a `data` phase of the given length; the GPU is idle meanwhile."""
    made, at = TimelineBuilder(), 0.0
    for wait in waits:
        for rank in range(ranks):
            made.step(at, at + wait + 520, rank=rank)
            made.phase("data", at, at + wait, rank=rank)
            made.phase("forward", at + wait, at + wait + 520, rank=rank)
            made.kernel(at + wait + 5, at + wait + 10, at + wait + 510, rank=rank)
        at += wait + 520
    return made


def test_starving_loader():
    finding = found(loader([200.0] * 10))["starving-loader"]
    assert finding.phase == "data"
    assert evidence(finding)["GPU idle in the loader per step"] == 200_000
    assert evidence(finding)["share of the step"] == pytest.approx(200 / 720)
    assert finding.confidence is Confidence.HIGH


def test_nested_and_repeated_ranges_count_once():
    made = loader([200.0] * 10)
    for number in range(10):
        made.phase("data", number * 720, number * 720 + 100)
        made.phase("Dataloader ", number * 720 + 50, number * 720 + 200)
    assert evidence(found(made)["starving-loader"])["GPU idle in the loader per step"] == 200_000


def test_two_steps_of_two_ranks_are_two_steps():
    made = TimelineBuilder()
    for rank in (0, 1):
        for number in (0, 1):
            made.step(number * 1000, number * 1000 + 1000, rank=rank)
            made.phase("data", number * 1000, number * 1000 + 900, rank=rank)
            made.kernel(number * 1000 + 950, number * 1000 + 960, number * 1000 + 999, rank=rank)
    assert found(made) == {}


@pytest.mark.parametrize("ranks", [1, 4])
def test_one_refill_is_no_starvation(ranks):
    assert "starving-loader" not in found(loader([8000.0] + [5.0] * 9, ranks=ranks))


def test_every_rank_starves():
    finding = found(loader([200.0] * 10, ranks=4))["starving-loader"]
    assert evidence(finding)["GPU idle in the loader per step"] == 200_000
    assert evidence(finding)["steps seen"] == 40


def test_a_trace_without_gpu_records_does_not_starve():
    timeline = replace(loader([200.0] * 10).build(), traced_gpu=False)
    assert rules.find(timeline) == ()


def test_loader_behind_queued_work_is_hidden():
    made = TimelineBuilder()
    for number in range(10):  # the GPU still computes the step before while the CPU fetches
        at = number * 1000
        made.step(at, at + 1000)
        made.phase("data", at, at + 400)
        made.phase("forward", at + 400, at + 1000)
        made.kernel(at + 405, at + 410, at + 1410)
    assert "starving-loader" not in found(made)


# --- many-small-kernels


def small_kernels(*, duration: float, asked_before: float) -> TimelineBuilder:
    made = TimelineBuilder()
    for number in range(5):
        at = number * 2000
        made.step(at, at + 2000)
        made.phase("forward", at, at + 2000)
        for kernel in range(60):
            start = at + 20 + kernel * 30
            made.kernel(start - asked_before, start, start + duration)
    return made


def test_launch_bound_step():
    finding = found(small_kernels(duration=3, asked_before=8))["many-small-kernels"]
    seen = evidence(finding)
    assert seen["kernels per step"] == 60
    assert seen["GPU idle between launches per step"] == 59 * 27_000
    assert "forward" in finding.title


def test_gaps_of_queued_kernels_are_not_launch_bound():
    assert "many-small-kernels" not in found(small_kernels(duration=3, asked_before=300))


def test_gaps_under_the_work_of_another_stream_are_no_gaps():
    made = small_kernels(duration=3, asked_before=8)
    for number in range(5):
        made.kernel(number * 2000 + 1, number * 2000 + 10, number * 2000 + 1990, stream=9)
    assert "many-small-kernels" not in found(made)


def test_long_kernels_are_not_launch_bound():
    assert "many-small-kernels" not in found(small_kernels(duration=15, asked_before=8))


# --- communication


def communicating(*, hidden: bool) -> TimelineBuilder:
    made = TimelineBuilder()
    for number in range(5):
        at = number * 1000
        made.step(at, at + 1000)
        made.phase("backward", at, at + 900)
        made.kernel(at + 10, at + 20, at + 600, thread=AUTOGRAD)
        start = at + (200 if hidden else 600)
        made.kernel(at + 15, start, start + 300, thread=AUTOGRAD, name="ncclDevKernel_AllReduce_Sum_f32", nccl=True,
                    stream=20)  # fmt: skip
    return made


def test_exposed_communication():
    finding = found(communicating(hidden=False))["exposed-communication"]
    assert evidence(finding)["NCCL time not hidden per step"] == 300_000
    assert finding.phase == "backward"


def test_hidden_communication_is_fine():
    assert found(communicating(hidden=True)) == {}


def accumulating(*, reduce_in: set[int], optimizer_after: set[int], micro: int = 4, kernel: str = "AllReduce"):
    """Steps with ``micro`` backwards of 200 µs; NCCL is hidden under compute, so that no other rule speaks."""
    made = TimelineBuilder()
    for number in range(3):
        at = number * micro * 250
        made.step(at, at + micro * 250)
        for turn in range(micro):
            begin = at + turn * 250
            made.phase("backward", begin, begin + 200)
            made.kernel(begin + 5, begin + 10, begin + 245, thread=AUTOGRAD)
            if turn in reduce_in:
                made.kernel(begin + 15, begin + 30, begin + 130, thread=AUTOGRAD, nccl=True, stream=20,
                            name=f"ncclDevKernel_{kernel}_Sum_f32")  # fmt: skip
            if turn in optimizer_after:
                made.phase("optimizer", begin + 210, begin + 240)
    return made


def test_reduction_in_every_micro_step():
    finding = found(accumulating(reduce_in={0, 1, 2, 3}, optimizer_after={3}))["communication-every-microstep"]
    assert finding.evidence[0].value == 3 * 100_000  # three of four are needless
    assert evidence(finding)["micro-steps per optimizer step"] == 4
    assert finding.confidence is Confidence.HIGH


def test_sharded_reduction_in_every_micro_step_may_be_meant():
    made = accumulating(reduce_in={0, 1, 2, 3}, optimizer_after={3}, kernel="ReduceScatter")
    assert found(made)["communication-every-microstep"].confidence is Confidence.MEDIUM


def test_clipping_of_sharded_gradients_does_not_make_it_sure():
    """FSDP sums the norms of the shards with an all-reduce, after the backward."""
    made = accumulating(reduce_in={0, 1, 2, 3}, optimizer_after={3}, kernel="ReduceScatter")
    for number in range(3):
        at = number * 1000 + 3 * 250 + 215
        made.kernel(at, at + 1, at + 10, nccl=True, stream=20, name="ncclDevKernel_AllReduce_Sum_f32")
    assert found(made)["communication-every-microstep"].confidence is Confidence.MEDIUM


def test_a_backward_marked_twice_is_one_micro_step():
    made = accumulating(reduce_in={0}, optimizer_after={0}, micro=1)
    for number in range(3):
        made.phase("backward", number * 250 + 2, number * 250 + 190)
    assert found(made) == {}


@pytest.mark.parametrize(
    ("reduce_in", "optimizer_after", "kernel"),
    [
        ({3}, {3}, "AllReduce"),  # no_sync used as meant
        ({0, 1, 2, 3}, {0, 1, 2, 3}, "AllReduce"),  # a GAN: an optimizer after each backward
        ({0, 1, 2, 3}, set(), "AllReduce"),  # optimizer not marked: cannot be known
        ({0, 1, 2, 3}, {3}, "AllGather"),  # parameters of sharded training, needed each time
    ],
)
def test_reductions_that_are_meant(reduce_in, optimizer_after, kernel):
    assert found(accumulating(reduce_in=reduce_in, optimizer_after=optimizer_after, kernel=kernel)) == {}


# --- validation


def validating(name: str, *, thread: str = MAIN) -> TimelineBuilder:
    made = healthy()
    made.step(10_000, 11_000)
    made.phase("validation", 10_000, 11_000)
    for kernel in range(9):
        start = 10_020 + kernel * 100
        made.kernel(start - 10, start, start + 100, name="gemm")
    made.kernel(10_915, 10_920, 10_990, name=name, thread=thread)
    return made


@pytest.mark.parametrize(
    ("name", "thread"),
    [("vectorized_layer_norm_kernel", AUTOGRAD), ("layer_norm_grad_input_kernel", MAIN), ("flash_bwd_kernel", MAIN)],
)
def test_backward_in_validation(name, thread):
    finding = found(validating(name, thread=thread))["validation-autograd"]
    assert (finding.phase, finding.subject) == ("validation", "backward")
    assert evidence(finding)["such kernels in the trace"] == 1


DGRAD = "sm90_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"


def test_a_transposed_convolution_in_validation_is_a_forward():
    assert found(validating(DGRAD)) == {}


@pytest.mark.parametrize(
    ("name", "thread"), [("sm90_xmma_wgrad_implicit_gemm_bf16bf16", MAIN), ("reduce_kernel", AUTOGRAD)]
)
def test_a_data_gradient_beside_other_backward_kernels_is_one(name, thread):
    made = validating(DGRAD)
    made.kernel(10_990, 10_991, 10_995, name=name, thread=thread)
    assert evidence(found(made)["validation-autograd"])["such kernels in the trace"] == 2


def test_training_mode_in_validation():
    finding = found(validating("fused_dropout_kernel_vec"))["validation-autograd"]
    assert finding.subject == "training mode"


def test_forward_in_validation_is_fine():
    assert found(validating("vectorized_layer_norm_kernel")) == {}


def test_backward_outside_validation_is_fine():
    made = healthy()
    made.kernel(500, 505, 506, name="layer_norm_backward", thread=AUTOGRAD)
    assert found(made) == {}


# --- slow steps


def with_walls(walls: list[float], *, phase: str = "forward") -> TimelineBuilder:
    """Steps of these wall times; all beyond 1000 µs is spent in ``phase`` with the GPU busy."""
    made, at = TimelineBuilder(), 0.0
    for wall in walls:
        made.step(at, at + wall)
        made.phase("forward", at, at + 900)
        made.kernel(at + 1, at + 2, at + wall)
        if wall > 1000:
            made.phase(phase, at + 950, at + wall)
        at += wall
    return made


def test_periodic_stall_names_period_and_phase():
    made = with_walls([2000 if number % 5 == 2 else 1000 for number in range(30)], phase="log")
    finding = found(made)["periodic-stalls"]
    assert finding.subject == "every 5 steps"
    assert finding.phase == "log"
    assert evidence(finding)["extra time per step (mean)"] == pytest.approx(200_000)


def test_planned_validation_is_no_stall():
    made = with_walls([3000 if number % 5 == 4 else 1000 for number in range(30)], phase="validation")
    assert found(made) == {}


@pytest.mark.parametrize("phase", ["validation", "Eval", "checkpoint", "save"])
@pytest.mark.parametrize("at", [(6,), (4, 14), (0,)])
def test_a_validation_or_checkpoint_now_and_then_is_no_outlier(phase, at):
    walls = [8000 if number in at else 1000 for number in range(20)]
    assert found(with_walls(walls, phase=phase)) == {}


def test_a_slow_step_of_a_program_that_only_evaluates_is_seen():
    made, at = TimelineBuilder(), 0
    for wall in [1000] * 7 + [5000] + [1000] * 12:
        made.step(at, at + wall)
        made.phase("eval", at + 2, at + wall - 2)
        at += wall
    assert found(made)["outlier-step"].phase == "eval"


def test_what_is_slow_beside_a_validation_is_seen():
    made = with_walls([3000 if number % 5 == 4 else 1000 for number in range(30)], phase="validation")
    for number in range(4, 30, 5):
        end = number * 1000 + 2000 * (number // 5) + 3000
        made.ranges = [r for r in made.ranges if r[:3] != (round((end - 2050) * 1000), round(end * 1000), "validation")]
        made.phase("validation", end - 2050, end - 800)
        made.phase("log", end - 800, end)
    finding = found(made)["periodic-stalls"]
    assert finding.phase == "log"
    assert evidence(finding)["median slow step"] == 1_750_000


@pytest.mark.parametrize("every", [2, 4, 8])
def test_an_optimizer_that_comes_every_few_steps_is_no_stall(every):
    """Gradients accumulated over steps."""
    made = with_walls([2500 if number % every == every - 1 else 1000 for number in range(32)], phase="optimizer")
    assert found(made) == {}


def test_an_optimizer_that_is_slow_every_few_steps_is_one():
    made = with_walls([2500 if number % 4 == 3 else 1200 for number in range(32)], phase="optimizer")
    assert found(made)["periodic-stalls"].phase == "optimizer"


def test_outlier_step():
    finding = found(with_walls([1000] * 7 + [5000] + [1000] * 12, phase="data"))["outlier-step"]
    assert finding.phase == "data"
    assert "step 7" in finding.title
    assert evidence(finding)["extra time of the slowest step"] == 4_000_000
    assert "warm-up" not in finding.advice


def test_the_slowest_rank_speaks_for_all():
    made = TimelineBuilder()
    for rank, slow in ((0, 4000), (1, 5000), (2, 3000)):
        for number in range(10):
            at = number * 6000
            made.step(at, at + (slow if number == 4 else 1000), rank=rank)
    assert found(made)["outlier-step"].title.startswith("step 4 of rank 1 took 5.0×")


def test_slow_first_step_is_warm_up():
    assert "warmup_steps" in found(with_walls([5000] + [1000] * 9))["outlier-step"].advice


def test_steps_of_a_period_are_no_outliers():
    walls = [3000 if number % 10 == 4 else 1000 for number in range(30)]
    assert found(with_walls(walls)).keys() == {"periodic-stalls"}


@pytest.mark.parametrize(
    "walls",
    [
        [1000] * 20,
        [650] * 15 + [1350] * 14 + [2100],  # twice the median in a wide spread
        [1000, 1900] * 10,  # two levels (a period of two, found by the other rule)
        [1000 + 90 * (number % 7) for number in range(30)],
        [5000, 1000, 1000],
    ],
)
def test_no_outlier(walls):
    assert "outlier-step" not in found(with_walls(walls))


def test_chance_rarely_looks_like_a_period():
    random = np.random.default_rng(7)
    hits = 0
    for _ in range(1000):
        wall = np.full(30, 1000, dtype=np.int64)
        wall[random.choice(30, size=random.integers(3, 7), replace=False)] = 2000
        hits += period_of(wall) is not None
    assert hits <= 20


def test_jittering_steps_have_no_period_and_no_outlier():
    random = np.random.default_rng(8)
    for _ in range(100):
        walls = (1000 * np.exp(random.normal(0, 0.1, 30))).tolist()
        assert not {"periodic-stalls", "outlier-step"} & found(with_walls(walls)).keys()


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_short_series_have_no_period(count):
    assert period_of(np.full(count, 1000, dtype=np.int64)) is None


# --- compilation


def compiling(steps: list[int], *, duration: float) -> TimelineBuilder:
    made = healthy()
    for number in steps:
        made.call("cuModuleLoadData", number * 1000 + 330, number * 1000 + 330 + duration, thread=AUTOGRAD)
    return made


def test_compilation_in_the_first_step():
    finding = found(compiling([0], duration=300))["compilation-in-window"]
    assert finding.phase == "backward"
    assert finding.subject == "some steps"
    assert evidence(finding)["extra time of an affected step"] == 300_000


def test_compilation_that_the_calls_do_not_show_is_seen_by_the_slower_step():
    made = with_walls([3000] + [1000] * 3)
    made.call("cuModuleLoadData", 100, 120)
    finding = found(made)["compilation-in-window"]
    assert evidence(finding)["extra time of an affected step"] == 2_000_000
    assert finding.confidence is Confidence.MEDIUM


def test_a_validation_that_loads_its_first_kernel_is_no_compilation():
    made = with_walls([1000] * 9 + [8000] + [1000] * 5, phase="validation")
    made.call("cuLibraryLoadData", 10_000, 10_020)
    assert found(made) == {}


def test_recompilation_all_the_time():
    finding = found(compiling(list(range(10)), duration=300))["compilation-in-window"]
    assert "TORCH_LOGS" in finding.advice


def test_lazily_loaded_kernel_is_no_compilation():
    assert found(compiling([3], duration=20)) == {}
