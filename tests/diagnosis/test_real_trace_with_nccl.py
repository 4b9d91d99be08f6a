"""The rules about communication on a recorded DDP training of one rank, into which the NCCL kernels that a second rank
would bring are written: read, attributed and diagnosed as any export."""

import gzip
import shutil
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from perfci.diagnosis import rules
from perfci.diagnosis.pair import compare_findings
from perfci.trace.extract import read_timeline

TRACE = Path(__file__).parents[1] / "traces" / "h200_gpt_ddp_1rank_nccl.sqlite.gz"
KERNEL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)"
NCCL_STREAM = 9_999
STEPS = 8
NAMED = """
    (select n.rowid as id, n.*, coalesce(n.text, s.value) as label
     from NVTX_EVENTS n left join StringIds s on s.id = n.textId)
"""
US = 1000


@pytest.fixture
def recorded(tmp_path):
    """Makes the export: ``accumulate`` joins so many steps to one with one optimizer, ``reduce_in`` are the micro-steps
    whose calls of ncclAllReduce launch a kernel of ``long_us``. DDP calls it twice in a backward."""

    def make(*, accumulate: int = 1, reduce_in: tuple[int, ...] = (0, 1), long_us: int = 20) -> Path:
        path = tmp_path / f"{accumulate}-{reduce_in}-{long_us}.sqlite"
        with gzip.open(TRACE) as source, path.open("wb") as target:
            shutil.copyfileobj(source, target)
        with closing(sqlite3.connect(path)) as connection:
            _launch_nccl(connection, micro_steps=[i for i in range(STEPS) if i % accumulate in reduce_in], us=long_us)
            _join_steps(connection, accumulate)
            connection.commit()
        return path

    return make


def _launch_nccl(connection: sqlite3.Connection, *, micro_steps: list[int], us: int) -> None:
    """A launch call of the autograd thread in each chosen ncclAllReduce, and its kernel on a stream of its own."""
    connection.execute("insert into StringIds values (9000001, ?)", (KERNEL,))
    backwards = connection.execute(f"select start, end from {NAMED} where label = 'backward' order by start").fetchall()
    calls = connection.execute(f"select start, globalTid from {NAMED} where label = 'ncclAllReduce' order by start")
    for number, (start, thread) in enumerate(calls.fetchall()):
        if not any(backwards[i][0] <= start < backwards[i][1] for i in micro_steps):
            continue
        correlation = 80_000_000 + number
        _copy(
            connection, "CUPTI_ACTIVITY_KIND_RUNTIME",
            "nameId = (select id from StringIds where value like 'cudaLaunchKernel%' limit 1)",
            start=start + 1 * US, end=start + 3 * US, globalTid=thread, correlationId=correlation,
        )  # fmt: skip
        _copy(
            connection, "CUPTI_ACTIVITY_KIND_KERNEL", "1", start=start + 5 * US, end=start + (5 + us) * US,
            streamId=NCCL_STREAM, correlationId=correlation, demangledName=9000001, shortName=9000001,
        )  # fmt: skip


def _copy(connection: sqlite3.Connection, table: str, where: str, **changed: int) -> None:
    cursor = connection.execute(f"select * from {table} where {where} limit 1")
    row = dict(zip((column[0] for column in cursor.description), cursor.fetchone(), strict=True)) | changed
    marks = ", ".join("?" * len(row))
    connection.execute(f"insert into {table} ({', '.join(row)}) values ({marks})", tuple(row.values()))


def _join_steps(connection: sqlite3.Connection, accumulate: int) -> None:
    """Every so many steps become one: it ends with the last of them, and only that one has `optimizer` and `log`."""
    for label in ("step", "optimizer", "log"):
        ranges = connection.execute(
            f"select id, start, end from {NAMED} where label = ? order by start", (label,)
        ).fetchall()
        for first in range(0, STEPS, accumulate):
            *others, last = ranges[first : first + accumulate]
            if label == "step" and others:
                connection.execute("update NVTX_EVENTS set start = ? where rowid = ?", (others[0][1], last[0]))
            connection.executemany("delete from NVTX_EVENTS where rowid = ?", [(one[0],) for one in others])


def diagnosed(path: Path) -> dict:
    return {finding.rule: finding for finding in rules.find(read_timeline([path]))}


def evidence(finding) -> dict[str, float]:
    return {quantity.name: quantity.value for quantity in finding.evidence}


def test_gradients_that_travel_in_every_micro_step(recorded):
    """As under the fault `sync-each-micro-step`; the clean twin reduces in the last micro-step only."""
    planted, clean = diagnosed(recorded(accumulate=2)), diagnosed(recorded(accumulate=2, reduce_in=(1,)))
    finding = planted["communication-every-microstep"]
    assert finding.phase == "backward"
    assert finding.title == "gradients are reduced in each of 2 micro-steps of gradient accumulation"
    seen = evidence(finding)
    assert seen["NCCL time of the needless reductions per step"] == 2 * 20 * US  # two buckets in the first of two
    assert seen["optimizer steps seen"] == STEPS / 2
    assert "communication-every-microstep" not in clean
    new = [f.rule for f in compare_findings(tuple(clean.values()), tuple(planted.values())) if f.new]
    assert new == ["communication-every-microstep"]


@pytest.mark.parametrize(("accumulate", "reduce_in"), [(1, (0,)), (4, (3,)), (4, ())])
def test_reductions_once_per_optimizer_step_are_meant(recorded, accumulate, reduce_in):
    assert "communication-every-microstep" not in diagnosed(recorded(accumulate=accumulate, reduce_in=reduce_in))


def test_communication_that_the_computation_does_not_hide(recorded):
    path = recorded(long_us=900)
    finding = diagnosed(path)["exposed-communication"]
    assert finding.phase == "backward"
    assert evidence(finding)["NCCL kernels per step"] == 2
    assert evidence(finding)["NCCL time not hidden per step"] == pytest.approx(exposed_ns(path) / STEPS)


def exposed_ns(path: Path) -> int:
    """Time of NCCL kernels outside all other kernels, by brute force on the export."""
    with closing(sqlite3.connect(path)) as connection:
        sql = "select start, end from CUPTI_ACTIVITY_KIND_KERNEL where streamId {} ? order by start"
        nccl, others = (connection.execute(sql.format(sign), (NCCL_STREAM,)).fetchall() for sign in ("=", "!="))
    total = 0
    for start, end in nccl:
        edges = sorted({start, end, *(t for pair in others for t in pair if start < t < end)})
        for left, right in pairwise(edges):
            total += (right - left) * (not any(a <= left and right <= b for a, b in others))
    return total


def test_short_communication_is_fine(recorded):
    assert "exposed-communication" not in diagnosed(recorded(long_us=20))
