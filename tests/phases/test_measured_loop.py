"""The measured loop: what it yields, counts, writes, and how it survives everything a training script does."""

import contextlib
import json
import os
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfci import phases
from perfci.phases import driver as driver_module
from perfci.phases import iteration, marks
from perfci.phases.plan import is_steady, plan_from


def test_outside_perfci_it_is_the_iterable_itself(monkeypatch):
    monkeypatch.delenv("PERFCI_SIDECAR", raising=False)
    monkeypatch.setattr(iteration, "_driver", None)
    loader = [1, 2, 3]
    loop = phases.loop(loader, warmup=1, steps=1)
    assert len(loop) == 3
    assert type(iter(loop)) is type(iter(loader))
    assert list(loop) == loader
    assert not phases.measuring()


def test_an_unsized_iterable_stays_unsized():
    with pytest.raises(TypeError):
        len(phases.loop(iter([1])))


def test_windows_follow_each_other_and_the_loop_ends(measured):
    read = measured(warmup=2, wall=3, capture=5)
    taken = []
    for item in phases.loop(range(100)):
        taken.append(item)
        phases.log_loss(item / 2)
        phases.samples(4)
    content = read()
    assert taken == list(range(5))  # capture is off
    assert content["status"] == "complete"
    assert {name: w["steps"] for name, w in content["windows"].items()} == {"warmup": 2, "wall": 3}
    assert content["windows"]["wall"]["samples"] == 12
    assert all(ns >= 0 for ns in content["windows"]["wall"]["step_wall_ns"])
    assert content["losses"] == [0, 0.5, 1, 1.5, 2]
    assert content["asked"]["capture_steps"] == 0
    assert content["time_to_first_step_ns"] > 0
    assert content["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))


def test_arguments_of_the_script_win_over_the_runner(measured):
    read = measured(warmup=2, wall=3, cap=2)
    assert len(list(phases.loop(range(100), warmup=1, wall=6))) >= 7
    assert read()["asked"] == {"warmup_steps": 1, "warmup_cap": 2, "wall_steps": 6, "capture_steps": 0}


def test_epochs_go_on_where_the_last_one_stopped_and_then_the_process_ends(measured):
    read = measured(warmup=2, wall=5)
    taken = []

    def train():
        for epoch in range(10):
            with phases.epoch(epoch):
                taken.extend((epoch, item) for item in phases.loop(range(3)))

    with pytest.raises(SystemExit) as end:
        train()
    assert end.value.code == 0
    assert taken == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (2, 0)]
    assert read()["status"] == "complete"


def test_data_that_ends_early_is_said(measured):
    read = measured(warmup=2, wall=5)
    assert len(list(phases.loop(iter(range(4))))) == 4
    assert read()["status"] == "short"
    assert read()["reason"] == "the data ended after 2 of 5 wall steps"


def test_no_data_at_all_is_said(measured):
    read = measured(warmup=2, wall=5)
    assert list(phases.loop([])) == []
    assert read()["reason"] == "the data ended after 0 warm-up steps (at least 2, then until steady)"


def test_a_loop_that_is_left_is_said_and_its_step_not_counted(measured):
    read = measured(warmup=0, wall=5)
    for item in phases.loop(range(10)):
        if item == 2:
            break
    assert read()["status"] == "short"
    assert read()["reason"] == "the loop was left after 2 of 5 wall steps"
    for _ in phases.loop(range(10)):  # a next epoch makes up for it
        pass
    assert read()["status"] == "complete"
    assert read()["windows"]["wall"]["steps"] == 5


def test_a_loop_inside_a_step_belongs_to_the_step(measured):
    read = measured(warmup=0, wall=2)
    inner = [list(phases.loop("ab")) for _ in phases.loop(range(9))]
    assert inner == [["a", "b"]] * 2
    assert read()["windows"]["wall"]["steps"] == 2


def test_accumulated_gradients_make_one_step(measured):
    read = measured(warmup=1, wall=2)
    assert list(phases.loop(range(100), accumulate=4)) == list(range(12))
    assert read()["windows"]["wall"]["steps"] == 2
    with pytest.raises(ValueError, match="accumulate"):
        phases.loop([], accumulate=0)


def test_a_loss_that_is_not_finite_is_said_and_stays_out_of_the_numbers(measured):
    read = measured(warmup=0, wall=3)
    for loss in phases.loop([1.0, float("nan"), float("inf")]):
        phases.log_loss(loss)
    assert read()["losses"] == [1.0, None, None]
    assert read()["not_finite_losses"] == [1, 2]


def test_a_step_without_a_loss_has_none(measured):
    read = measured(warmup=0, wall=2)
    for item in phases.loop(range(9)):
        if item:
            phases.log_loss(item)
    assert read()["losses"] == [None, 1.0]
    assert read()["not_finite_losses"] == []


@pytest.mark.parametrize(
    ("name", "value"), [("WALL_STEPS", "ten"), ("WARMUP_STEPS", "-1"), ("CAPTURE_STEPS", "0"), ("CAPTURE", "magic")]
)
def test_a_plan_that_cannot_be_is_refused(name, value):
    environment = {"PERFCI_SIDECAR": "/x", "PERFCI_CAPTURE": "nvtx", f"PERFCI_{name}": value}
    with pytest.raises(ValueError, match=r"PERFCI_|steps must"):
        plan_from(environment)


def test_the_torch_collector_needs_a_file():
    with pytest.raises(ValueError, match="PERFCI_TORCH_TRACE"):
        plan_from({"PERFCI_SIDECAR": "/x", "PERFCI_CAPTURE": "torch"})


def test_each_rank_has_its_own_sidecar(measured, tmp_path, monkeypatch):
    measured(warmup=0, wall=1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    list(phases.loop(range(2)))
    content = json.loads((tmp_path / "sidecar.rank3.json").read_text())
    assert (content["rank"], content["world_size"]) == (3, 8)
    assert not (tmp_path / "sidecar.json").exists()


class RecordingCollector:
    """Notes when the window opens and closes, among the marks."""

    def __init__(self, listener):
        self.marks = listener.marks
        self._events = listener.events

    def start(self):
        self._events.append(("start", ""))

    def stop(self):
        self._events.append(("stop", ""))

    def save(self):
        self._events.append(("save", ""))


def test_only_whole_steps_of_the_capture_window_are_marked(measured, listener, monkeypatch):
    monkeypatch.setattr(driver_module, "open_collector", lambda kind, torch_trace: RecordingCollector(listener))
    measured(warmup=1, wall=1, capture=2, collector="nvtx")
    for _ in phases.loop(range(9)):
        with phases.step(), phases.phase("forward"):
            pass
    step = [("open", "step"), ("open", "data"), ("close", ""), ("open", "forward"), ("close", ""), ("close", "")]
    assert listener.events == [("start", ""), *step, *step, ("stop", ""), ("save", "")]


@pytest.mark.parametrize("sized", [True, False])
def test_an_epoch_that_ends_inside_the_capture_window_leaves_no_false_step(measured, listener, monkeypatch, sized):
    monkeypatch.setattr(driver_module, "open_collector", lambda kind, torch_trace: RecordingCollector(listener))
    read = measured(warmup=0, wall=1, capture=3, collector="nvtx")
    for _ in range(2):
        for _ in phases.loop(range(3) if sized else iter(range(3))):
            pass
    steps = listener.opened.count("step") - listener.opened.count("perfci_dropped")
    assert steps == 3
    assert read()["status"] == "complete"
    assert ("perfci_dropped" in listener.opened) is not sized  # known lengths need no dropped step at all
    assert listener.depth == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    epochs=st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=6),
    plan=st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 4)),
    accumulate=st.integers(1, 3),
)
def test_every_course_agrees_with_a_plain_count(measured, epochs, plan, accumulate):
    """Oracle: steps are counted one by one over the epochs; leftovers smaller than a step are given out but count for
    nothing."""
    warmup, wall, capture = plan
    events = []

    class Quiet:
        marks = marks.Marks("quiet", events.append, lambda: None)

        def start(self):
            events.append("start")

        stop = save = lambda self: None

    original, driver_module.open_collector = driver_module.open_collector, lambda kind, torch_trace: Quiet()
    asked = warmup + wall + capture
    expected, whole = [], 0
    for length, _ in epochs:
        if whole == asked:
            break
        for item in range(length):
            expected.append(item)
            if item % accumulate == accumulate - 1:
                whole += 1
                if whole == asked:
                    break
    try:
        read = measured(warmup=warmup, wall=wall, capture=capture, collector="nvtx")
        taken = []
        with contextlib.suppress(SystemExit):  # at an epoch after the last asked step
            for length, sized in epochs:
                taken += list(phases.loop(range(length) if sized else iter(range(length)), accumulate=accumulate))
        assert taken == expected
        if epochs:
            content = read()
            assert content["status"] == ("complete" if whole == asked else "short")
            assert sum(w["steps"] for w in content["windows"].values()) == whole
            assert len(content["losses"]) == (whole if whole == asked else 0)
            assert events.count("step") - events.count("perfci_dropped") == max(0, whole - warmup - wall)
    finally:
        driver_module.open_collector = original


def test_warm_up_ends_when_steps_are_steady_or_at_the_cap():
    assert not is_steady([])
    assert not is_steady([5, 5, 5, 5, 5])
    assert is_steady([100, 100, 100, 101, 99, 100])
    assert not is_steady([900, 300, 200, 110, 100, 100])
    assert is_steady([900, 300, 200, 100, 100, 100, 100, 100, 100])
    assert is_steady([100, 100, 900, 100, 900, 100])  # one slow step in three is an outlier, not a trend
    assert not is_steady([100, 100, 100, 120, 120, 120])
    assert is_steady([0] * 6)


def test_falling_step_times_prolong_the_warm_up(measured, monkeypatch):
    clock = iter(range(10**9))
    times = [1000, 800, 640, 512, 410, 328, 262, 210, *[200] * 30]
    instants = []
    now = 0
    for spent in times:
        instants += [now, now + spent]
        now += spent
    monkeypatch.setattr(driver_module.HostClock, "now", lambda self: instants[next(clock)])
    read = measured(warmup=3, wall=2, cap=30)
    list(phases.loop(range(100)))
    assert read()["steady"] is True
    assert 11 <= read()["windows"]["warmup"]["steps"] <= 14


def test_an_uncaught_exception_is_told(run_program):
    done, sidecar = run_program(
        "from perfci import phases\n"
        "for i in phases.loop(range(9)):\n"
        "    if i == 1: raise RuntimeError('CUDA out of memory')\n"
    )
    assert done.returncode == 1
    assert sidecar["status"] == "aborted"
    assert sidecar["reason"] == "RuntimeError: CUDA out of memory"


def test_an_exit_in_the_middle_is_told(run_program):
    _, sidecar = run_program("import sys\nfrom perfci import phases\nfor i in phases.loop(range(9)): sys.exit(0)\n")
    assert sidecar["status"] == "short"
    assert sidecar["reason"].startswith("the loop was left after 0 warm-up steps")


def test_a_process_that_is_killed_left_word_that_it_had_begun(run_program):
    _, sidecar = run_program("import os\nfrom perfci import phases\nfor i in phases.loop(range(9)): os._exit(0)\n")
    assert sidecar["status"] == "aborted"
    assert "killed" in sidecar["reason"]


def test_a_forked_child_neither_marks_nor_reports(run_program):
    source = (
        "import os, sys\nfrom perfci import phases\n"
        "for i in phases.loop(range(9)):\n"
        "    if os.fork() == 0:\n"
        "        with phases.phase('decode'): pass\n"
        "        sys.exit(0)\n"
        "    os.wait()\n"
    )
    done, sidecar = run_program(source)
    assert done.returncode == 0, done.stderr
    assert sidecar["status"] == "complete"


def test_a_window_that_cannot_be_opened_ends_the_process_with_the_reason(run_program):
    done, sidecar = run_program(
        "from perfci import phases\nfor i in phases.loop(range(99)): pass\n", collector="cuda", wall=1
    )
    assert done.returncode == 1
    assert sidecar["status"] == "aborted"
    assert "torch with CUDA" in sidecar["reason"]
    assert "torch with CUDA" in done.stderr


def test_instructions_are_counted_where_the_kernel_allows_it(measured):
    read = measured(warmup=0, wall=3)
    for _ in phases.loop(range(3)):
        sum(range(10_000))
    counted = read().get("cpu_instructions")
    if counted is None:
        pytest.skip("this kernel or virtual machine offers no instruction counter: the value is absent, as it must be")
    assert counted > 3 * 10_000


@pytest.mark.torch
def test_a_loss_tensor_is_read_later_and_survives_being_overwritten(measured):
    torch = pytest.importorskip("torch")
    read = measured(warmup=0, wall=3)
    static = torch.zeros((), requires_grad=False)
    for item in phases.loop(range(3)):
        static.fill_(item)
        phases.log_loss(static)
    assert read()["losses"] == [0, 1, 2]
    assert read()["versions"]["torch"] == torch.__version__


@pytest.mark.torch
def test_once_all_is_measured_data_workers_are_not_waited_for(run_program):
    pytest.importorskip("torch")
    done, sidecar = run_program(
        "import multiprocessing, multiprocessing.context, torch\n"
        "from perfci import phases\n"
        "waits = []\n"
        "join = multiprocessing.Process.join\n"
        "def told(self, timeout=None):\n"
        "    waits.append(timeout)\n"
        "    join(self, timeout)\n"
        "multiprocessing.context.ForkProcess.join = told\n"
        "def read():\n"
        "    return torch.utils.data.DataLoader(range(40), num_workers=2, multiprocessing_context='fork')\n"
        "for _ in read(): pass\n"
        "print(sorted(set(waits)))\n"
        "waits.clear()\n"
        "for _ in phases.loop(read()): pass\n"
        "print(len(waits), sorted(set(waits)))\n"
    )
    assert done.stdout.splitlines() == ["[5.0]", "2 [0.2]"], done.stderr
    assert sidecar["status"] == "complete"


def test_the_environment_of_a_hand_made_profile_switches_marks_on(run_program):
    done, _ = run_program(
        "from perfci.phases import marks\nprint(marks.listening())\n",
        environment={"PERFCI_MARKS": "1", "PERFCI_SIDECAR": ""},
    )
    assert done.stdout.strip() == "True"
    done, _ = run_program(
        "from perfci.phases import marks\nprint(marks.listening())\n", environment={"PERFCI_MARKS": "1"}
    )
    assert done.stdout.strip() == "False"  # under the runner the driver says when


def test_the_sidecar_is_never_seen_half_written(measured, monkeypatch):
    seen = []
    real = os.replace

    def spy(source, target):
        seen.append(json.loads(Path(source).read_text())["status"])
        real(source, target)

    monkeypatch.setattr(os, "replace", spy)
    measured(warmup=1, wall=1)
    list(phases.loop(range(5)))
    assert seen[0] == "aborted"
    assert seen[-1] == "complete"


@pytest.mark.torch
def test_the_functions_of_torch_that_the_gpu_path_calls_exist():
    """No GPU here: at least the names are held against the installed torch (a CPU build has them all)."""
    torch = pytest.importorskip("torch")
    assert callable(torch.cuda.nvtx.range_push)
    assert callable(torch.cuda.nvtx.range_pop)
    for name in [
        "cudart",
        "check_error",
        "synchronize",
        "is_initialized",
        "Event",
        "current_device",
        "get_device_properties",
    ]:
        assert callable(getattr(torch.cuda, name))
    for name in ["max_memory_allocated", "max_memory_reserved"]:
        assert callable(getattr(torch.cuda, name))
    assert callable(torch.cuda.Event.elapsed_time)
