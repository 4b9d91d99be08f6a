"""The sidecar is written by the measured program: the reader believes nothing and invents nothing."""

import copy
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.capture.sidecar import facts_of, parse_sidecar, read_sidecar
from perfci.errors import MeasurementError
from perfci.model.metrics import METRICS, RUN, STEP, Source
from perfci.model.sidecar import SidecarStatus

WHOLE = {
    "schema_version": 1,
    "status": "complete",
    "reason": "",
    "pid": 4,
    "rank": 0,
    "world_size": 1,
    "collector": "cuda",
    "marks": "torch-nvtx",
    "asked": {"warmup_steps": 2, "warmup_cap": 30, "wall_steps": 4, "capture_steps": 2},
    "steady": True,
    "windows": {
        "warmup": {"clock": "host", "steps": 2, "step_wall_ns": [900, 500], "samples": 16},
        "wall": {"clock": "cuda-events", "steps": 4, "step_wall_ns": [100, 110, 90, 100], "samples": 32},
        "capture": {"clock": "cuda-events", "steps": 2, "step_wall_ns": [150, 150], "samples": 16},
    },
    "losses": [3.0, 2.5, None, 2.0],
    "not_finite_losses": [],
    "versions": {"python": "3.11.7", "torch": "2.6.0", "cuda": "12.4", "cudnn": "90100"},
    "gpu": {"model": "NVIDIA H200", "uuid": "x"},
    "time_to_first_step_ns": 5_000,
    "energy_uj": 4001,
    "cpu_instructions": 400,
    "peak_allocated_bytes": 1000,
    "peak_reserved_bytes": 2000,
}


def changed(path, value):
    content = copy.deepcopy(WHOLE)
    place = content
    *parents, last = path.split(".")
    for name in parents:
        place = place[name]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return content


def parsed(content=WHOLE):
    return parse_sidecar(json.dumps(content))


def by_name(facts):
    return {series.metric: (series.phase, series.values) for series in facts.series}


def test_every_value_of_a_whole_sidecar():
    facts = facts_of([parsed()])
    assert by_name(facts) == {
        "unprofiled_wall_ns": (STEP, (100, 110, 90, 100)),
        "peak_allocated_bytes": (RUN, (1000,)),
        "peak_reserved_bytes": (RUN, (2000,)),
        "time_to_first_step_ns": (RUN, (5000,)),
        "throughput_per_s": (RUN, (32 / 400e-9,)),
        "energy_per_step_uj": (RUN, (1000,)),
        "cpu_instructions_per_step": (RUN, (100,)),
        "profiling_overhead_ratio": (RUN, (0.5,)),
    }
    assert {METRICS[s.metric].source for s in facts.series} <= {Source.SIDECAR, Source.SAMPLER}
    assert dict(facts.environment) == {
        "python": "3.11.7",
        "torch": "2.6.0",
        "cuda": "12.4",
        "cudnn": "90100",
        "gpu_model": "NVIDIA H200",
        "world_size": "1",
    }
    assert facts.losses == (3.0, 2.5)
    assert facts.notes == ()


def test_what_the_process_did_not_know_is_absent_not_zero():
    content = copy.deepcopy(WHOLE)
    for name in ("gpu", "energy_uj", "cpu_instructions", "peak_allocated_bytes", "peak_reserved_bytes"):
        del content[name]
    del content["time_to_first_step_ns"]
    content["windows"]["wall"]["samples"] = 0
    assert set(by_name(facts_of([parsed(content)]))) == {"unprofiled_wall_ns", "profiling_overhead_ratio"}
    del content["windows"]["wall"], content["windows"]["capture"]
    assert facts_of([parsed(content)]).series == ()


def test_ranks_are_joined_as_the_metric_table_says():
    ranks = []
    for rank, wall in enumerate([[100, 110, 90, 100], [90, 120, 95, 100]]):
        content = changed("windows.wall.step_wall_ns", wall)
        content |= {"rank": rank, "world_size": 2, "peak_allocated_bytes": 1000 + rank}
        ranks.append(parsed(content))
    found = by_name(facts_of(ranks[::-1]))
    assert found["unprofiled_wall_ns"] == (STEP, (100, 120, 95, 100))  # the slowest rank of each step
    assert found["peak_allocated_bytes"] == (RUN, (1001,))
    assert found["energy_per_step_uj"] == (RUN, (2000,))  # all ranks together
    assert found["throughput_per_s"][1][0] == pytest.approx(32 / 400e-9 + 32 / 405e-9)


def test_a_value_that_one_rank_lacks_is_absent_for_the_run():
    half = changed("energy_uj", None) | {"rank": 1, "world_size": 2}
    found = by_name(facts_of([parsed(dict(WHOLE, world_size=2)), parsed(half)]))
    assert "energy_per_step_uj" not in found
    assert "peak_allocated_bytes" in found


def test_no_sidecar_or_a_rank_twice():
    for sidecars in ([], [parsed(), parsed()]):
        with pytest.raises(ValueError, match="each rank once"):
            facts_of(sidecars)


def test_notes_say_what_a_reader_must_know():
    content = changed("steady", False) | {"losses": [1.0, None, None], "not_finite_losses": [1, 2]}
    notes = {note.code: note for note in facts_of([parsed(content)]).notes}
    assert set(notes) == {"warmup-not-steady", "loss-not-finite"}
    assert "first in step 1" in notes["loss-not-finite"].text


def test_unfinished_ones_are_read_with_their_reason():
    content = changed("status", "short") | {"reason": "the data ended\n\x1b[31m"}
    sidecar = parsed(content)
    assert sidecar.status is SidecarStatus.SHORT
    assert sidecar.reason == "the data ended  [31m"  # nothing that a terminal would obey


BAD = [
    ("schema_version", 2),
    ("schema_version", True),
    ("status", "perfect"),
    ("rank", -1),
    ("rank", 5),
    ("rank", "0"),
    ("world_size", 0),
    ("world_size", 1 << 40),
    ("steady", "yes"),
    ("windows", []),
    ("windows.warmup", None),
    ("windows.wall.step_wall_ns", [1.5]),
    ("windows.wall.step_wall_ns", [-1]),
    ("windows.wall.step_wall_ns", [True]),
    ("windows.wall.step_wall_ns", [1 << 80]),
    ("windows.wall.step_wall_ns", {"0": 1}),
    ("windows.wall.samples", -3),
    ("losses", [1e400]),
    ("losses", ["nan"]),
    ("losses", "none"),
    ("not_finite_losses", [-1]),
    ("versions", ["torch"]),
    ("versions.torch", 2.6),
    ("peak_allocated_bytes", -5),
    ("peak_reserved_bytes", 1.5),
    ("time_to_first_step_ns", "soon"),
    ("gpu", "H200"),
    ("asked", None),
]


@pytest.mark.parametrize(("path", "value"), BAD, ids=lambda x: str(x)[:30])
def test_what_the_schema_forbids_is_refused(path, value, tmp_path):
    file = tmp_path / "sidecar.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(MeasurementError, match="is not valid"):
        read_sidecar(file)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "null", '{"a": NaN}', "[" * 100_000, '"x"', '{"schema_version": Infinity}']
)
def test_what_is_no_json_object_is_refused(text, tmp_path):
    file = tmp_path / "sidecar.json"
    file.write_text(text)
    with pytest.raises(MeasurementError, match="is not valid"):
        read_sidecar(file)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(MeasurementError, match="cannot be read"):
            read_sidecar(path)
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(MeasurementError, match="is not valid"):
        read_sidecar(tmp_path / "latin.json")
    with (tmp_path / "huge.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(MeasurementError, match="larger than"):
        read_sidecar(tmp_path / "huge.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted({path for path, _ in BAD})), JSON)
def test_whatever_a_field_holds_the_answer_is_a_sidecar_or_a_refusal(path, value):
    content = changed(path, value if value is not None else 0)
    try:
        sidecar = parsed(content)
    except ValueError:
        return
    for series in facts_of([sidecar]).series:
        assert series.values
