"""Exports full of ranges, as per-operator annotation leaves them: no join of all pairs, and memory that grows with the
rows only. The whole size of the fault, ten million rows, is measured by benchmarks/trace/many_ranges.py."""

import sqlite3
import tracemalloc
from contextlib import closing

import pytest
from nsys_builder import PUSH_POP, START_END, Export

from perfci.trace.extract import extract

STEPS, STEP_NS = 10, 100_000_000
RANGES, LAUNCHES = 300_000, 20_000
BYTES_PER_RANGE = 400
"""Bound of the peak of memory per range: 165 to 245 were measured, most for names of their own."""


def operators(step_ns, at):
    """One after the other, each with a name of its own."""
    start = step_ns + 1000 + 500 * at
    return start, start + 400, PUSH_POP, f"aten::linear, seq = {at}, op_id = {step_ns + at}"


def few_names(step_ns, at):
    """One after the other, nested in pairs, few names."""
    start = step_ns + 1000 + 500 * at
    return start, start + (400 if at % 2 else 900), PUSH_POP, f"block {at % 40}"


def all_open(step_ns, at):
    """All open at once, crossing each other."""
    return step_ns + 1000 + at, step_ns + STEP_NS - 1000 + at % 7, START_END, f"request {at % 40}"


def export_with(shape, path):
    """``STEPS`` steps of forward with launches in it, and the shape's ranges on the training thread."""
    export = Export()
    for step in range(STEPS):
        begin = step * STEP_NS
        export.mark("step", begin, begin + STEP_NS)
        export.mark("forward", begin + 100, begin + STEP_NS - 100)
        for at in range(LAUNCHES // STEPS):
            start = begin + 2000 + at * (STEP_NS // (LAUNCHES // STEPS) - 10)
            export.launch("gemm", start, start + 5, start + 50)
    export.write(path)
    rows = (
        (*shape(step * STEP_NS, at), Export.tid((7, 7)), 0) for step in range(STEPS) for at in range(RANGES // STEPS)
    )
    with closing(sqlite3.connect(path)) as database:
        columns = "start, end, eventType, text, globalTid, domainId"
        database.executemany(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)
        database.commit()
    return path


@pytest.mark.parametrize("shape", [operators, few_names, all_open])
def test_many_ranges_cost_memory_by_their_number_alone(shape, tmp_path):
    path = export_with(shape, tmp_path / "t.sqlite")
    tracemalloc.start()
    extraction = extract([path])
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < BYTES_PER_RANGE * RANGES
    assert extraction.step_count == STEPS
    counted = {s.phase: s.values for s in extraction.series if s.metric == "kernel_count"}
    assert counted["step"] == (LAUNCHES // STEPS,) * STEPS
    inside = sum(sum(values) for phase, values in counted.items() if phase not in ("step", "background", "unmarked"))
    assert inside == LAUNCHES, "every launch belongs to some phase"
    assert (sum(counted["forward"]) == LAUNCHES) == (shape is operators), "annotation takes no work away, phases do"
