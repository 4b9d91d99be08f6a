"""Joins the attributed ranks of all files into one Timeline."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfci.errors import TraceError
from perfci.model.run import Note
from perfci.model.timeline import ApiCalls, Int32, Int64, OperationKind, Operations, PhaseRanges, Steps, Timeline
from perfci.model.trace import TraceInfo
from perfci.trace.attribution import NO_CALL, PhaseNames, RankAttribution
from perfci.trace.calls import sync_kinds, wait_of
from perfci.trace.columns import RawTrace
from perfci.trace.kernels import call_identity, is_nccl, kernel_identity

_OPERATION_NAMES = {
    OperationKind.KERNEL: "(kernel without a name)",
    OperationKind.H2D: "memcpy host to device",
    OperationKind.D2H: "memcpy device to host",
    OperationKind.D2D: "memcpy device to device",
    OperationKind.OTHER_COPY: "memcpy",
    OperationKind.MEMSET: "memset",
    OperationKind.GRAPH: "CUDA graph",
}

_Columns = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Part:
    """One file with its attributed ranks."""

    raw: RawTrace
    ranks: tuple[RankAttribution, ...]


@dataclass(slots=True)
class _Numbering:
    """Numbers names in the order in which they are met."""

    names: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


@dataclass(slots=True)
class _Tables:
    """Columns of all ranks, one list entry per rank."""

    operations: list[_Columns] = field(default_factory=list)
    calls: list[_Columns] = field(default_factory=list)
    ranges: list[_Columns] = field(default_factory=list)
    steps: list[_Columns] = field(default_factory=list)


def assemble(parts: Sequence[Part], phase_names: PhaseNames) -> Timeline:
    """One timeline of all ranks. Rank numbers come from the file names where each file states one and holds one rank;
    else ranks are counted in the order of files and processes. Files are put on one clock by their starts of recording
    where all state it."""
    ranks, notes = _rank_numbers(parts)
    names, threads, tables = _Numbering(), _Numbering(), _Tables()
    at, step_base, call_base = 0, 0, 0
    for part, shift in zip(parts, _clock_shifts(parts), strict=True):
        notes += part.raw.notes
        for rank in part.ranks:
            notes += rank.notes
            _add_rank(tables, part.raw, rank, names, threads, rank_number=ranks[at], several=len(ranks) > 1)
            _shift(tables, time=shift, step=step_base, call=call_base)
            step_base += len(rank.step_start_ns)
            call_base += len(rank.call_phase)
            at += 1
        notes += _other_processes(part)
    calls, call_place = _in_order(_joined(tables.calls))
    operations, _ = _in_order(_joined(tables.operations))
    if call_place is not None:
        operations["launch"] = np.r_[call_place, NO_CALL][operations["launch"]]
    return Timeline(
        info=_info(parts, len(ranks)),
        names=tuple(names.names),
        phases=tuple(phase_names.names),
        threads=tuple(threads.names),
        operations=Operations(**operations),
        api_calls=ApiCalls(**calls),
        ranges=PhaseRanges(**_in_order(_joined(tables.ranges))[0]),
        steps=Steps(**_joined(tables.steps)),
        notes=tuple(dict.fromkeys(notes)),
        dropped_step_count=max(rank.dropped_step_count for part in parts for rank in part.ranks),
        traced_gpu=any(part.raw.traced_gpu for part in parts),
    )


def _add_rank(
    tables: _Tables,
    raw: RawTrace,
    rank: RankAttribution,
    names: _Numbering,
    threads: _Numbering,
    *,
    rank_number: int,
    several: bool,
) -> None:
    rows = rank.operation_rows
    source = raw.operations
    kind = source.kind[rows]
    number_of = _kernel_numbers(raw, source.name[rows], names)
    name = number_of[source.name[rows]]
    nameless = source.name[rows] < 0
    for one in np.flatnonzero(np.bincount(kind[nameless])):
        name[(kind == one) & nameless] = names.number(_OPERATION_NAMES[OperationKind(int(one))])
    nccl = np.array([is_nccl(text) for text in names.names], dtype=np.bool_)
    pageable = source.pageable[rows]
    tables.operations.append(
        {
            "start_ns": source.start_ns[rows],
            "end_ns": source.end_ns[rows],
            "device": source.device[rows],
            "stream": source.stream[rows],
            "kind": kind,
            "name": name,
            "moved_bytes": source.moved_bytes[rows],
            "pageable": pageable,
            "nccl": nccl[name] if len(name) else np.empty(0, dtype=np.bool_),
            "phase": rank.operation_phase,
            "step": rank.operation_step,
            "rank": _constant(rank_number, len(kind)),
            "launch": rank.operation_call,
        }
    )
    waiting = (kind == OperationKind.D2H) & pageable & (rank.operation_call != NO_CALL)
    tables.calls.append(
        _call_columns(
            raw,
            rank,
            names,
            threads,
            rank_number=rank_number,
            several=several,
            copies_waiting=rank.operation_call[waiting],
        )
    )
    tables.ranges.append(
        {
            "start_ns": rank.range_start_ns,
            "end_ns": rank.range_end_ns,
            "phase": rank.range_phase,
            "step": rank.range_step,
            "rank": np.full(len(rank.range_start_ns), rank_number, dtype=np.int32),
        }
    )
    count = len(rank.step_start_ns)
    tables.steps.append(
        {
            "start_ns": rank.step_start_ns,
            "end_ns": rank.step_end_ns,
            "index": np.arange(count, dtype=np.int32),
            "rank": np.full(count, rank_number, dtype=np.int32),
        }
    )


def _call_columns(
    raw: RawTrace,
    rank: RankAttribution,
    names: _Numbering,
    threads: _Numbering,
    *,
    rank_number: int,
    several: bool,
    copies_waiting: Int64,
) -> _Columns:
    rows = rank.call_rows
    start, end, thread = raw.calls.start_ns[rows], raw.calls.end_ns[rows], raw.calls.thread[rows]
    raw_name = raw.calls.name[rows]
    number_of = np.full(len(raw.strings) + 1, -1, dtype=np.int32)
    for at in np.flatnonzero(np.bincount(raw_name + 1)) - 1:
        text = raw.strings[at] if at >= 0 else "(call without a name)"
        number_of[at] = names.number(call_identity(text))
    name = number_of[raw_name]
    wait = np.array([int(wait_of(text)) for text in names.names], dtype=np.uint8)
    thread_number = np.zeros(len(raw.threads.process), dtype=np.int32)
    for at in np.flatnonzero(np.bincount(thread)):
        text = raw.strings[raw.threads.name[at]] if raw.threads.name[at] >= 0 else f"thread {at}"
        thread_number[at] = threads.number(f"rank {rank_number} {text}" if several else text)
    return {
        "start_ns": start,
        "end_ns": end,
        "name": name,
        "thread": thread_number[thread],
        "sync": sync_kinds(
            wait_by_name=wait, name=name, start_ns=start, end_ns=end, thread=thread, copies_waiting=copies_waiting
        ),
        "phase": rank.call_phase,
        "step": rank.call_step,
        "rank": _constant(rank_number, len(start)),
    }


def _constant(value: int, count: int) -> Int32:
    """A column of equal values that takes no memory."""
    return np.broadcast_to(np.int32(value), (count,))


def _kernel_numbers(raw: RawTrace, used: Int32, names: _Numbering) -> Int32:
    number_of = np.full(len(raw.strings) + 1, -1, dtype=np.int32)
    for at in np.flatnonzero(np.bincount(used + 1)) - 1:
        if at >= 0:
            number_of[at] = names.number(kernel_identity(raw.strings[at]))
    return number_of


def _shift(tables: _Tables, *, time: int, step: int, call: int) -> None:
    """Move the last rank's rows to the common clock and to their places among all ranks."""
    for table in (tables.operations, tables.calls, tables.ranges, tables.steps):
        columns = table[-1]
        if time:
            columns["start_ns"] = columns["start_ns"] + time
            columns["end_ns"] = columns["end_ns"] + time
        if step and "step" in columns:
            columns["step"] = np.where(columns["step"] >= 0, columns["step"] + step, columns["step"]).astype(np.int32)
    if call:
        launch = tables.operations[-1]["launch"]
        tables.operations[-1]["launch"] = np.where(launch != NO_CALL, launch + call, launch)


def _joined(tables: list[_Columns]) -> _Columns:
    if len(tables) == 1:
        return tables[0]
    return {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}


def _in_order(columns: _Columns) -> tuple[_Columns, Int64 | None]:
    """The columns sorted by start (stable), and for each old row its new place; None: all stay in place."""
    start = columns["start_ns"]
    if bool((start[1:] >= start[:-1]).all()):
        return columns, None
    order = np.argsort(start, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order), dtype=np.int64)
    return {name: column[order] for name, column in columns.items()}, place


def _rank_numbers(parts: Sequence[Part]) -> tuple[list[int], tuple[Note, ...]]:
    stated = [part.raw.rank for part in parts]
    total = sum(len(part.ranks) for part in parts)
    numbers = [rank for rank in stated if rank is not None]
    if len(parts) < 2 or len(numbers) < len(parts) or total != len(parts):
        return list(range(total)), ()
    if len(set(numbers)) < len(numbers):
        raise TraceError(
            f"several files say that they are the same rank: {', '.join(part.raw.label for part in parts)}",
            wanted="one file per rank of one launch",
        )
    missing = sorted(set(range(max(numbers) + 1)) - set(numbers))
    if not missing:
        return numbers, ()
    text = f"rank {', '.join(map(str, missing))} has no file: the numbers of the whole run are not known"
    return numbers, (Note(code="rank-missing", text=text, spoils=True),)


def _clock_shifts(parts: Sequence[Part]) -> list[int]:
    starts = [part.raw.info.started_at_utc_ns for part in parts]
    known = [start for start in starts if start is not None]
    if len(known) < len(parts):
        return [0] * len(parts)
    return [start - min(known) for start in known]


def _other_processes(part: Part) -> tuple[Note, ...]:
    total = len(part.raw.operations.start_ns)
    other = total - sum(len(rank.operation_phase) for rank in part.ranks)
    if other == 0:
        return ()
    return (
        Note(
            code="other-processes",
            text=f"{other} of {total} GPU operations were launched by processes that mark no steps (loader workers, "
            "servers); they count in no step",
        ),
    )


def _info(parts: Sequence[Part], rank_count: int) -> TraceInfo:
    infos = [part.raw.info for part in parts]
    first = infos[0]
    for name in ("collector", "collector_version", "driver", "cuda"):
        values = sorted({str(getattr(info, name)) for info in infos})
        if len(values) > 1:
            raise TraceError(
                f"the files do not belong to one launch: {name} differs ({', '.join(values)})",
                wanted="one file per rank of one launch",
            )
    models = tuple(model for info in infos for model in info.gpu_models)
    starts = [info.started_at_utc_ns for info in infos if info.started_at_utc_ns is not None]
    return replace(first, gpu_models=models, rank_count=rank_count, started_at_utc_ns=min(starts) if starts else None)
