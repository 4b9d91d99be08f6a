"""Properties of all rules together on random timelines."""

from dataclasses import fields, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_builder import AUTOGRAD, MAIN, TimelineBuilder

from perfci.diagnosis import rules
from perfci.model.timeline import OperationKind, SyncKind, Timeline

PHASES = st.sampled_from(["data", "forward", "backward", "optimizer", "log", "validation"])
THREADS = st.sampled_from([MAIN, AUTOGRAD, "pin_memory"])
CALLS = st.sampled_from(["cudaMemcpyAsync_v3020", "cudaStreamSynchronize", "cuModuleLoadData", "cudaStreamIsCapturing"])


@st.composite
def timelines(draw) -> Timeline:
    """Steps that repeat one random pattern, so that habits occur; each event may be left out of a step."""
    made = TimelineBuilder()
    count, ranks = draw(st.integers(0, 10)), draw(st.integers(1, 2))
    moments = st.integers(0, 199)
    phases = draw(st.lists(st.tuples(PHASES, moments, st.integers(0, 150)), max_size=5))
    waits = draw(
        st.lists(st.tuples(CALLS, moments, st.integers(0, 60), st.sampled_from(SyncKind), THREADS), max_size=5)
    )
    work = draw(
        st.lists(
            st.tuples(
                st.sampled_from(OperationKind), moments, moments, st.integers(0, 90), THREADS, st.booleans(),
                st.sampled_from([0, 4, 1 << 20]),
            ),
            max_size=10,
        )
    )  # fmt: skip
    missing = draw(st.sets(st.integers(0, 200), max_size=10))
    for rank in range(ranks):
        for number in range(count):
            at = number * 200
            made.step(at, at + 200, rank=rank)
            for name, begin, length in phases:
                made.phase(name, at + begin, at + begin + length, rank=rank)
            for name, begin, length, sync, thread in waits:
                if len(made.calls) not in missing:
                    made.call(name, at + begin, at + begin + length, sync=sync, thread=thread, rank=rank)
            for kind, asked, begin, length, thread, flag, size in work:
                launch = made.call("cudaLaunchKernel", at + asked, at + asked + 3, thread=thread, rank=rank)
                nccl = flag and kind is OperationKind.KERNEL
                made.operation(
                    kind, at + begin, at + begin + length, launch=launch, nccl=nccl, moved_bytes=size,
                    pageable=flag and not nccl, name="ncclDevKernel_AllReduce" if nccl else "gemm_backward",
                )  # fmt: skip
    return made.build()


def shifted(timeline: Timeline, by_ns: int) -> Timeline:
    moved = {}
    for name in ("operations", "api_calls", "ranges", "steps"):
        table = getattr(timeline, name)
        times = {f.name: getattr(table, f.name) + by_ns for f in fields(table) if f.name in ("start_ns", "end_ns")}
        moved[name] = replace(table, **times)
    return replace(timeline, **moved)


@settings(max_examples=100, deadline=None)
@given(timelines())
def test_rules_accept_any_timeline_and_know_no_absolute_time(timeline):
    found = rules.find(timeline)
    keys = [(finding.rule, finding.phase, finding.subject) for finding in found]
    assert len(keys) == len(set(keys))
    for finding in found:
        assert finding.title
        assert finding.advice
        assert all(quantity.value >= 0 for quantity in finding.evidence)
        shares = [quantity.value for quantity in finding.evidence if quantity.unit == "ratio"]
        if finding.rule in ("starving-loader", "periodic-stalls", "outlier-step"):  # GPU work may outlast the steps
            assert all(share <= 1 + 1e-9 for share in shares)
    assert rules.find(shifted(timeline, 10**15)) == found


@settings(max_examples=60, deadline=None)
@given(timelines(), st.integers(2, 4))
def test_times_scale_with_the_trace(timeline, factor):
    """Twice the time in everything: findings without an absolute threshold stay, with times that are twice as long."""
    scaled = {}
    for name in ("operations", "api_calls", "ranges", "steps"):
        table = getattr(timeline, name)
        scaled[name] = replace(table, start_ns=table.start_ns * factor, end_ns=table.end_ns * factor)
    before = {f.rule: f for f in rules.find(timeline) if f.rule != "many-small-kernels"}
    after = {f.rule: f for f in rules.find(replace(timeline, **scaled)) if f.rule != "many-small-kernels"}
    assert before.keys() == after.keys()
    for rule, finding in before.items():
        for old, new in zip(finding.evidence, after[rule].evidence, strict=True):
            np.testing.assert_allclose(new.value, old.value * (factor if old.unit == "ns" else 1), rtol=1e-9)
