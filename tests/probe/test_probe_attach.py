"""Findings and kernels get a place only where little doubt is left; files of the probe are hostile input."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.errors import MeasurementError
from perfci.model.comparison import KernelChange, KernelChangeKind
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.probe.attach import attach_locations, kernel_location, new_operators
from perfci.probe.locations import Location, LocationKind, read_locations


def at(line, *, kind=LocationKind.SYNC, name="aten::_local_scalar_dense", phases=("log",), path="train.py", **more):
    known = {"text": f"line {line}", "function": "f", "count_per_step": 1.0, "bytes_per_step": 0.0, "steps_ratio": 1.0}
    return Location(kind=kind, name=name, phases=phases, path=path, line=line, **{**known, **more})


def finding(rule="accidental-sync", phase="log", subject="cudaStreamSynchronize", **more):
    cost = (Quantity(name="cost", value=1, unit="ns"),)
    return Finding(
        rule=rule,
        phase=phase,
        title="",
        evidence=cost,
        confidence=Confidence.HIGH,
        advice="",
        subject=subject,
        **more,
    )


def line_for(locations, **more):
    (found,) = attach_locations([finding(**more)], locations)
    return None if found.location is None else found.location.line


def test_the_place_with_the_majority_is_named():
    assert line_for([at(7)]) == 7
    assert line_for([at(7, count_per_step=3.0), at(8, count_per_step=2.0)]) == 7
    assert line_for([at(7, name="aten::equal"), at(7), at(8)]) == 7  # two kinds of read in one line


@pytest.mark.parametrize(
    "locations",
    [
        [],
        [at(7), at(8)],
        [at(7), at(8, path=None)],  # as much comes from nowhere
        [at(7, phases=("forward",))],
        [at(7, steps_ratio=0.5)],  # a log in every second step does not explain a wait in every step
        [at(7, kind=LocationKind.OPERATOR)],
        [at(7, path=None)],
    ],
)
def test_no_place_rather_than_a_wrong_one(locations):
    assert line_for(locations) is None


def test_the_api_tells_waits_apart():
    every = [
        at(1),
        at(2, name="torch.cuda.synchronize"),
        at(3, name="torch.cuda.Event.synchronize"),
    ]
    assert line_for(every) == 1
    assert line_for(every, subject="cudaMemcpyAsync") == 1
    assert line_for(every, subject="cudaDeviceSynchronize") == 2
    assert line_for(every, subject="cuCtxSynchronize") == 2
    assert line_for(every, subject="cudaEventSynchronize") == 3


def test_emptying_the_cache_explains_allocator_churn():
    every = [at(1), at(2, name="torch.cuda.synchronize"), at(3, name="torch.cuda.empty_cache")]
    assert line_for(every, rule="allocator-churn", subject="device memory") == 3
    assert line_for(every, rule="allocator-churn", subject="device memory", phase="forward") is None
    assert line_for(every[:2], rule="allocator-churn", subject="device memory") is None


def test_a_wait_in_some_steps_explains_periodic_waits():
    every = [at(1), at(2, count_per_step=0.1, steps_ratio=0.1)]
    assert line_for(every, rule="periodic-waits", subject="every 10 steps") == 2
    assert line_for(every, rule="periodic-waits", subject="every 10 steps", phase="forward") is None
    assert line_for(every[:1], rule="periodic-waits", subject="every 10 steps") is None


def test_phases():
    inner = at(5, phases=("attention", "forward"))
    assert line_for([inner], phase="attention") == 5
    assert line_for([inner], phase="forward") == 5  # a range that the trace may not know as a phase
    assert line_for([inner, at(6, phases=("forward",))], phase="forward") == 6
    assert line_for([at(7, phases=())], phase="unmarked") == 7
    assert line_for([inner], phase="unmarked") is None
    assert line_for([inner, at(9, phases=(), count_per_step=9.0)], phase="step") == 9


def test_copies_go_by_bytes_and_direction():
    copies = [
        at(1, kind=LocationKind.PAGEABLE_COPY, name="host to device", count_per_step=9.0, bytes_per_step=36.0),
        at(2, kind=LocationKind.PAGEABLE_COPY, name="host to device", bytes_per_step=1e6),
        at(3, kind=LocationKind.PAGEABLE_COPY, name="device to host", bytes_per_step=1e6),
        at(4, kind=LocationKind.COPY, name="host to device", bytes_per_step=1e6),
    ]
    assert line_for(copies, rule="pageable-copies", subject="host to device") == 2
    assert line_for(copies, rule="pageable-copies", subject="device to host") == 3
    assert line_for(copies, rule="copies-not-overlapped", subject="") == 4
    assert line_for(copies, rule="starving-loader", subject="") is None


def test_a_location_that_is_there_stays_and_the_order_too():
    own = finding(location=SourceLocation(path="other.py", line=1))
    first, second = attach_locations([own, finding(phase="forward")], [at(7)])
    assert first is own
    assert second == finding(phase="forward")


@given(st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["a.py", None]), st.floats(0.1, 10)), max_size=8))
def test_a_named_place_holds_more_than_half(rows):
    locations = [at(line, path=path, count_per_step=count) for line, path, count in rows]
    (found,) = attach_locations([finding()], locations)
    shares = {}
    for line, path, count in rows:
        shares[path and (path, line)] = shares.get(path and (path, line), 0) + count
    over = [place for place, share in shares.items() if share > sum(shares.values()) - share]
    if found.location is not None:
        assert [(found.location.path, found.location.line)] == over
    else:
        assert over in ([], [None]) or 2 * max(shares.values()) == pytest.approx(sum(shares.values()))


def op(line, name, phase="forward", text=None, count=1.0):
    return at(
        line, kind=LocationKind.OPERATOR, name=name, phases=(phase,), text=text or f"text {line}", count_per_step=count
    )


def kernel(phase, kind=KernelChangeKind.NEW):
    return KernelChange(
        phase=phase,
        name="gemm",
        kind=kind,
        baseline_count=0,
        candidate_count=1,
        baseline_ns=0,
        candidate_ns=1,
    )


STEP = [op(10, "aten::mm"), op(20, "aten::mm", "backward", "loss.backward()", 2), op(21, "aten::add", "optimizer")]


def moved(locations, by):
    return [op(x.line + by, x.name, x.phases[0], x.text, x.count_per_step) for x in locations]


def test_nothing_new_when_lines_only_moved():
    assert new_operators(STEP, moved(STEP, 5)) == ()


def test_a_new_line_is_found_and_explains_the_backward_too():
    candidate = [
        op(9, "aten::mm", text="x = self.extra(x)"),
        *moved(STEP, 1),
        op(21, "aten::mm", "backward", "loss.backward()", 2),
    ]
    added = new_operators(STEP, candidate)
    assert [(x.phase, x.name, x.growth_per_step, x.location.line, x.new_line) for x in added] == [
        ("backward", "aten::mm", 2, 21, False),
        ("forward", "aten::mm", 1, 9, True),
    ]
    new = SourceLocation(path="train.py", line=9)
    assert kernel_location(kernel("forward"), added) == new
    assert kernel_location(kernel("backward", KernelChangeKind.MORE_LAUNCHES), added) == new
    assert kernel_location(kernel("optimizer"), added) is None  # no operator of that phase grew
    assert kernel_location(kernel("forward", KernelChangeKind.SLOWER), added) is None


def test_an_old_line_that_does_more():
    candidate = [*STEP[:2], op(21, "aten::mul", "optimizer", count=8), op(21, "aten::add", "optimizer", count=8)]
    added = new_operators(STEP, candidate)
    assert kernel_location(kernel("optimizer"), added) == SourceLocation(path="train.py", line=21)


def test_two_new_lines_that_add_as_much_leave_it_open():
    added = new_operators(STEP, [*STEP, op(11, "aten::sin"), op(12, "aten::cos")])
    assert [x.location.line for x in added] == [12, 11]
    assert kernel_location(kernel("forward"), added) is None


def test_an_operator_that_moved_to_another_line_is_not_new():
    assert new_operators([op(10, "aten::mm")], [op(30, "aten::mm", text="somewhere else")]) == ()


ROW = {
    "kind": "sync",
    "name": "aten::nonzero",
    "phases": ["log"],
    "file": "train.py",
    "line": 2,
    "function": "f",
    "count": 8,
    "bytes": 0,
    "steps": 4,
}


def read(tmp_path, *documents):
    (tmp_path / "train.py").write_text("import torch\n    x.nonzero()\n\x0cz = 1\n")
    files = []
    for rank, document in enumerate(documents):
        files.append(tmp_path / f"trace.rank{rank}.json")
        files[-1].write_text(document if isinstance(document, str) else json.dumps(document))
    return read_locations(files, tmp_path)


def document(*rows, steps=4, **more):
    return {"schema_version": 1, "steps": steps, "locations": list(rows), **more}


def test_reading_with_the_source_line(tmp_path):
    (found,) = read(tmp_path, document(ROW))
    assert (found.path, found.line, found.text, found.count_per_step, found.steps_ratio) == (
        "train.py",
        2,
        "x.nonzero()",
        2,
        1,
    )


def test_ranks_add_up(tmp_path):
    (found,) = read(tmp_path, document(ROW), document({**ROW, "steps": 1, "count": 1}, steps=2))
    assert (found.count_per_step, found.steps_ratio) == (2.5, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"file": "../outside.py"},
        {"file": "/etc/passwd"},
        {"file": "missing.py"},
        {"file": "link.py"},
        {"file": "."},
        {"file": ""},
        {"file": "a\0b"},
        {"file": "x" * 5000},
        {"file": None},
        {"line": 0},
        {"line": 99},
    ],
)
def test_a_place_outside_of_the_checkout_is_none(tmp_path, change):
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (tmp_path / "outside.py").write_text("1\n2\n3\n")
    (checkout / "link.py").symlink_to(tmp_path / "outside.py")
    (found,) = read(checkout, document({**ROW, **change}))
    assert (found.path, found.line, found.text, found.function) == (None, 0, "", "")
    assert found.count_per_step == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "null",
        "[" * 100_000,
        json.dumps(document(steps=0)),
        json.dumps(document(steps=True)),
        json.dumps(document(schema_version=2)),
        json.dumps(document(schema_version=1.0)),
        json.dumps(document({**ROW, "kind": "other"})),
        json.dumps(document({**ROW, "count": -1})),
        json.dumps(document({**ROW, "count": 1.5})),
        json.dumps(document({**ROW, "steps": 5})),
        json.dumps(document({**ROW, "phases": "log"})),
        json.dumps(document({**ROW, "name": None})),
        json.dumps(document({**ROW, "bytes": 10**30})),
        json.dumps(document(7)),
        json.dumps({"schema_version": 1, "steps": 4}),
        json.dumps(document(ROW)).replace("8", "NaN"),
    ],
)
def test_other_files_are_errors(tmp_path, text):
    with pytest.raises(MeasurementError, match="no file of the probe"):
        read(tmp_path, text)


def test_bytes_that_are_no_text_and_missing_files(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(MeasurementError, match="no file of the probe"):
        read_locations([tmp_path / "x.json"], tmp_path)
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_locations([tmp_path / "missing.json"], tmp_path)
