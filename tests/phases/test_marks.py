"""Marks: cheap when nobody listens, balanced whatever starts and stops in between."""

import asyncio
import subprocess
import sys
import threading
import timeit
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci import phases
from perfci.phases import marks

ROOT = Path(__file__).parents[2]


def test_ranges_nest_in_order(listener):
    marks.activate(listener.marks)
    with phases.epoch(3), phases.step(), phases.phase("forward"):
        pass
    assert listener.events == [
        ("open", "epoch 3"),
        ("open", "step"),
        ("open", "forward"),
        *[("close", "")] * 3,
    ]


def test_nothing_is_marked_when_nobody_listens(listener):
    with phases.step(), phases.phase("forward"):
        pass
    assert listener.events == []


def test_a_step_inside_a_step_is_the_same_step(listener):
    marks.activate(listener.marks)
    with phases.step():
        with phases.step(), phases.phase("forward"):
            pass
        with phases.phase("optimizer"):
            pass
    assert listener.opened == ["step", "forward", "optimizer"]
    assert listener.depth == 0


def test_a_phase_nests_in_itself(listener):
    marks.activate(listener.marks)
    with phases.phase("forward"), phases.phase("forward"):
        pass
    assert listener.opened == ["forward", "forward"]
    assert listener.depth == 0


def test_an_exception_closes_its_ranges(listener):
    marks.activate(listener.marks)
    with pytest.raises(KeyError), phases.step(), phases.phase("forward"):
        raise KeyError
    assert listener.depth == 0


def test_decorators_keep_name_result_and_arguments(listener):
    @phases.phase("forward")
    def forward(a, *, b):
        """Doc."""
        return a + b

    @phases.step()
    async def train():
        return forward(1, b=2)

    assert forward.__name__ == "forward"
    assert forward.__doc__ == "Doc."
    marks.activate(listener.marks)
    assert asyncio.run(train()) == 3
    assert listener.opened == ["step", "forward"]
    assert listener.depth == 0


def test_a_generator_cannot_be_decorated():
    def batches():
        yield 1

    with pytest.raises(TypeError, match="generator"):
        phases.phase("data")(batches)


@pytest.mark.parametrize("name", ["", "step", "run", "background", "unmarked"])
def test_names_with_another_meaning_are_refused(name):
    with pytest.raises(ValueError, match="is no name for a phase"):
        phases.phase(name)


def test_a_name_must_be_text():
    with pytest.raises(TypeError, match="a phase name is a string, got int"):
        phases.phase(3)


def test_names_made_from_data_do_not_pile_up():
    for number in range(5000):
        phases.phase(f"made from data {number}")
    assert len(marks._kept) <= 1024
    assert phases.phase("made from data 4999").name == "made from data 4999"


def test_marks_of_threads_do_not_mix():
    opened = threading.local()
    log = []

    def push(name):
        opened.__dict__.setdefault("names", []).append(name)

    def pop():
        log.append((threading.current_thread().name, opened.names.pop()))

    marks.activate(marks.Marks("threads", push, pop))
    barrier = threading.Barrier(2, timeout=10)

    def work(name):
        for _ in range(50):
            with phases.phase(name):
                barrier.wait()

    threads = [threading.Thread(target=work, args=(n,), name=n) for n in ("left", "right")]
    try:
        for thread in threads:
            thread.start()
    finally:
        for thread in threads:
            thread.join()
        marks.deactivate()
    assert len(log) == 100
    assert all(thread == name for thread, name in log)


@given(st.lists(st.sampled_from(["enter step", "enter forward", "exit", "listen", "ignore"]), max_size=60))
def test_starting_and_stopping_anywhere_never_unbalances(actions):
    """``with`` blocks close in order, but a collector may come and go between any two of them."""
    depth = 0
    lowest = 0

    def push(_name):
        nonlocal depth
        depth += 1

    def pop():
        nonlocal depth, lowest
        depth -= 1
        lowest = min(lowest, depth)

    listener = marks.Marks("count", push, pop)
    entered = []
    for action in actions:
        if action == "listen":
            marks.activate(listener)
        elif action == "ignore":
            marks.deactivate()
        elif action == "exit":
            if entered:
                entered.pop().__exit__(None, None, None)
        else:
            mark = phases.step() if action == "enter step" else phases.phase("forward")
            mark.__enter__()
            entered.append(mark)
    while entered:
        entered.pop().__exit__(None, None, None)
    marks.deactivate()
    assert lowest == 0
    if "ignore" not in actions:  # a block that ends unheard leaves its range to the end of the process
        assert depth == 0


def test_importing_needs_only_the_standard_library_and_is_quick():
    """No site-packages at all. The processor time of the best of five imports counts, as the machine may be busy."""
    source = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r}); start = time.process_time(); from perfci import phases\n"
        "cost = time.process_time() - start\n"
        "with phases.step(), phases.phase('forward'): phases.log_loss(1); phases.samples(2)\n"
        "assert list(phases.loop([1, 2])) == [1, 2]\n"
        "assert not {'torch', 'nvtx', 'numpy', 'json'} & set(sys.modules), sorted(sys.modules)\n"
        "print(cost)"
    )
    costs = []
    for _ in range(5):
        done = subprocess.run([sys.executable, "-S", "-c", source], capture_output=True, text=True, check=True)
        costs.append(float(done.stdout))
    assert min(costs) < 0.020


def test_an_idle_mark_costs_about_what_an_empty_context_costs():
    empty = nullcontext()

    def with_mark():
        with phases.phase("forward"):
            pass

    def with_nothing():
        with empty:
            pass

    mark, nothing = (min(timeit.repeat(f, number=20_000, repeat=7)) / 20_000 for f in (with_mark, with_nothing))
    assert mark < 5 * nothing + 100e-9
    assert mark < 1.5e-6
