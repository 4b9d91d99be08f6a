"""Reads a trace of torch.profiler (Kineto) into raw columns.

The format is what ``libkineto/src/output_json.cpp`` of https://github.com/pytorch/kineto writes. Events of the host
bear process and thread, events of a GPU bear device and stream in their place; a correlation number joins a CUDA call
to the operations that it launched. One file holds one process.
"""

import re
from array import array
from collections.abc import Hashable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from perfci.errors import TraceError
from perfci.model.run import Note
from perfci.model.timeline import Int32, Int64, OperationKind
from perfci.model.trace import TraceInfo
from perfci.trace.calls import launches_work
from perfci.trace.checked import LARGEST_BYTES
from perfci.trace.columns import NO_CORRELATION, UNFINISHED, Calls, GpuOperations, Marks, Overheads, RawTrace, Threads
from perfci.trace.kernels import call_identity
from perfci.trace.kineto_json import KinetoFile
from perfci.trace.nsys_sqlite import rank_of_file

MARK_PREFIX = "perfci:"
"""What perfci.phases puts in front of the names of its ranges; the rest is percent-encoded (perfci/phases/marks.py)."""
TORCH_VERSION = "perfci_torch_version"
"""Fact that perfci.phases adds to the trace: Kineto itself does not say which torch it belongs to."""

_BACKWARD = "autograd::engine::evaluate_function: "
"""Beginning of the names of operators that a backward pass runs, on whatever thread."""
_THREAD_NAME = re.compile(r"thread \d+ \((.*)\)", re.DOTALL)
_COPY = re.compile(r"Memcpy (\w+) \((.+) -> (.+)\)")
_COPY_KINDS = {
    **dict.fromkeys(("HtoD", "HtoA"), OperationKind.H2D),
    **dict.fromkeys(("DtoH", "AtoH"), OperationKind.D2H),
    **dict.fromkeys(("DtoD", "AtoA", "AtoD", "DtoA", "PtoP"), OperationKind.D2D),
}
_OPERATION_KINDS = {
    "kernel": OperationKind.KERNEL,
    "gpu_memcpy": OperationKind.OTHER_COPY,
    "gpu_memset": OperationKind.MEMSET,
}
_FURTHEST_NS = 1 << 62
_FIRST_PLAUSIBLE_EPOCH_NS = 10**18
"""September 2001: smaller times are not counted from the epoch."""
_CUDA_HINT = (
    "run without nsys or any other tool that uses CUPTI, and with a torch built for CUDA whose Kineto has CUPTI "
    "(torch.profiler.supported_activities() must list CUDA)"
)


def read_kineto(path: Path) -> RawTrace:
    """All that perfci needs of one trace file. TraceError when it is none, is cut or damaged, or holds no marks."""
    columns = _Columns()
    file = KinetoFile(path)
    try:
        for event in file.events():
            columns.add(event)
        return _checked(columns.trace(path, file.facts))
    except _ImpossibleError as error:
        raise TraceError(
            f"{path} is not a trace of torch.profiler, or is damaged: {error}",
            wanted="events as export_chrome_trace writes them",
        ) from error


class _ImpossibleError(ValueError):
    """A value that no trace holds."""


def nanoseconds(microseconds: object) -> int:
    """Exact nanoseconds of a time in microseconds as the JSON reader gives it: an int, or the text of a number with a
    fraction. What is finer than a nanosecond is cut off."""
    if type(microseconds) is int:
        value = microseconds * 1000
    elif isinstance(microseconds, str):
        whole, _, fraction = microseconds.partition(".")
        try:
            # The usual form, three digits after the point, needs no decimal arithmetic.
            plain = len(fraction) == 3 and whole.isdigit() and fraction.isdigit()
            value = int(whole + fraction) if plain else _from_decimal(Decimal(microseconds))
        except (ArithmeticError, ValueError) as error:
            raise _ImpossibleError(f"{microseconds[:40]!r} is no time") from error
    else:
        raise _ImpossibleError(f"{microseconds!r} is no time")
    if abs(value) >= _FURTHEST_NS:
        raise _ImpossibleError(f"{str(microseconds)[:40]} is no time in microseconds")
    return value


def _from_decimal(microseconds: Decimal) -> int:
    if microseconds.adjusted() > 18:  # an integer with as many digits as the exponent says might not fit into memory
        raise ValueError("too large")
    return int(microseconds * 1000)


def _number(value: object, absent: int = 0) -> int:
    """An integer field; ``absent`` for what is missing or no integer of 64 bits."""
    return value if type(value) is int and abs(value) < _FURTHEST_NS else absent


class _Columns:
    """Collects the events as they come. Only what is kept costs memory: some dozens of bytes per event."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._threads: dict[tuple[Hashable, Hashable], int] = {}
        self._thread_names: dict[tuple[Hashable, Hashable], str] = {}
        self._process_names: dict[str, str] = {}
        self._backward: set[tuple[Hashable, Hashable]] = set()
        self._impossible = 0
        self._marks = [array("q") for _ in range(5)]
        self._calls = [array("q") for _ in range(5)]
        self._operations = [array("q") for _ in range(9)]

    def add(self, event: dict[str, Any]) -> None:
        """Take what is needed from one event."""
        kind = event.get("ph")
        if kind == "M":
            self._add_names(event)
        if kind != "X":
            return
        category = event.get("cat")
        if category == "cpu_op":
            if str(event.get("name")).startswith(_BACKWARD):
                self._backward.add(_thread_of(event))
        elif category == "user_annotation":
            self._add_mark(event)
        elif category in ("cuda_runtime", "cuda_driver"):
            self._add_call(event)
        elif isinstance(category, str) and category in _OPERATION_KINDS:
            self._add_operation(event, _OPERATION_KINDS[category])

    def _add_names(self, event: dict[str, Any]) -> None:
        name = str(_arguments(event).get("name"))
        if event.get("name") == "process_name":
            self._process_names[str(event.get("pid"))] = name
        elif event.get("name") == "thread_name":
            match = _THREAD_NAME.fullmatch(name)
            if match is not None:  # streams have names too, of another form
                self._thread_names[_thread_of(event)] = match[1]

    def _add_mark(self, event: dict[str, Any]) -> None:
        name = str(event.get("name"))
        own = name.startswith(MARK_PREFIX)
        if own:
            name = unquote(name[len(MARK_PREFIX) :])
        start = _start(event)
        end = self._end(event, start) if "dur" in event else UNFINISHED
        _append(self._marks, start, end, self._thread(event), self._string(name), own)

    def _add_call(self, event: dict[str, Any]) -> None:
        start = _start(event)
        end = self._end(event, start)
        correlation = _number(_arguments(event).get("correlation"), NO_CORRELATION)
        _append(self._calls, start, end, self._thread(event), self._string(str(event.get("name"))), correlation)

    def _add_operation(self, event: dict[str, Any], kind: OperationKind) -> None:
        start = _start(event)
        end = self._end(event, start)
        facts = _arguments(event)
        text = str(event.get("name"))
        name, pageable = -1, False
        if kind is OperationKind.KERNEL:
            name = self._string(text)
        elif kind is OperationKind.OTHER_COPY and (copy := _COPY.fullmatch(text)) is not None:
            kind = _COPY_KINDS.get(copy[1], kind)
            host = {OperationKind.H2D: copy[2], OperationKind.D2H: copy[3]}.get(kind)
            pageable = host == "Pageable"
        # Device numbers are small; the mask keeps any other number in 32 bits.
        device = _number(facts.get("device", facts.get("inDevice", event.get("pid")))) & 0x7FFFFFFF
        stream = _number(facts.get("stream", event.get("tid")))
        moved = 0 if kind is OperationKind.KERNEL else _number(facts.get("bytes"))
        if not 0 <= moved <= LARGEST_BYTES:
            raise _ImpossibleError(f"a copy moves {moved} bytes")
        correlation = _number(facts.get("correlation"), NO_CORRELATION)
        _append(self._operations, start, end, device, stream, int(kind), name, moved, pageable, correlation)

    def _end(self, event: dict[str, Any], start: int) -> int:
        duration = nanoseconds(event.get("dur", 0))
        if duration < 0:
            self._impossible += 1
        return start + max(duration, 0)

    def _thread(self, event: dict[str, Any]) -> int:
        return self._threads.setdefault(_thread_of(event), len(self._threads))

    def _string(self, text: str) -> int:
        return self._strings.setdefault(text, len(self._strings))

    def trace(self, path: Path, facts: dict[str, Any]) -> RawTrace:
        """What was collected, on a clock that begins with the first event of the host."""
        marks, calls, operations = map(_arrays, (self._marks, self._calls, self._operations))
        processes = sorted({str(pid) for pid, _ in self._threads})
        if len(processes) > 1:
            raise TraceError(
                f"{path} holds the events of {len(processes)} processes", wanted="one file per process (one per rank)"
            )
        if len(marks[0]) == 0:
            raise _no_marks(path, is_kineto=bool(self._backward or len(calls[0]) or "deviceProperties" in facts))
        start, end, thread, name, own = marks
        kept = np.flatnonzero(own) if own.any() else np.arange(len(own))
        origin = min(int(column.min()) for column in (start, calls[0]) if len(column))
        thread_names = self._names_of_threads(marked=set(np.unique(thread[kept]).tolist()))
        notes = []
        if self._impossible:
            text = f"{self._impossible} events end before they start; they are counted with no duration"
            notes.append(Note(code="impossible-times", text=text))
        untimed = (operations[0] == 0) & (operations[1] == 0)
        if untimed.any():
            count = np.count_nonzero(untimed)
            text = f"{count} GPU operations have no times in the trace; they are counted with no duration"
            notes.append(Note(code="operations-without-times", text=text))
            operations[0][untimed] = operations[1][untimed] = origin
        return RawTrace(
            label=path.name,
            info=_info(facts, origin),
            traced_gpu=bool(len(calls[0]) or len(operations[0])),
            strings=tuple(self._strings),
            processes=(f"{self._process_names.get(processes[0], 'process')} ({processes[0]})",),
            threads=Threads(process=np.zeros(len(self._threads), dtype=np.int32), name=thread_names),
            marks=Marks(
                start_ns=start[kept] - origin,
                end_ns=np.where(end == UNFINISHED, UNFINISHED, end - origin)[kept],
                thread=thread[kept].astype(np.int32),
                name=name[kept].astype(np.int32),
            ),
            calls=Calls(
                start_ns=calls[0] - origin,
                end_ns=calls[1] - origin,
                thread=calls[2].astype(np.int32),
                name=calls[3].astype(np.int32),
                correlation=calls[4],
            ),
            operations=_operations(operations, origin),
            overheads=_no_overheads(),
            notes=tuple(notes),
            rank=_rank(facts, path),
        )

    def _names_of_threads(self, *, marked: set[int]) -> Int32:
        """Names as the operating system has them. A thread that runs backward operators and is not the program's own
        (it marks nothing) is an autograd thread whatever its name, and gets a name as PyTorch gives to such threads."""
        names = np.full(len(self._threads), -1, dtype=np.int32)
        for key, at in self._threads.items():
            name = self._thread_names.get(key)
            if key in self._backward and at not in marked and not (name or "").startswith("pt_autograd_"):
                name = f"pt_autograd_{key[1] if isinstance(key[1], int) else at}"
            if name is not None:
                names[at] = self._string(name)
        return names


def _key(value: object) -> Hashable:
    return value if isinstance(value, int | str) else str(value)


def _thread_of(event: dict[str, Any]) -> tuple[Hashable, Hashable]:
    return _key(event.get("pid")), _key(event.get("tid"))


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("args", {})
    if not isinstance(found, dict):
        raise _ImpossibleError(f"the arguments of an event are {str(found)[:40]!r}")
    return found


def _start(event: dict[str, Any]) -> int:
    start = nanoseconds(event.get("ts"))
    if start < 0:
        raise _ImpossibleError(f"an event starts at {start} ns, before the clock does")
    return start


def _append(table: "list[array[int]]", *row: int) -> None:
    for column, value in zip(table, row, strict=True):
        column.append(value)


def _arrays(table: "list[array[int]]") -> list[Int64]:
    return [np.array(column, dtype=np.int64) for column in table]


def _operations(columns: list[Int64], origin: int) -> GpuOperations:
    start, end, device, stream, kind, name, moved, pageable, correlation = columns
    return GpuOperations(
        start_ns=start - origin,
        end_ns=end - origin,
        process=np.zeros(len(start), dtype=np.int32),
        device=device.astype(np.int32),
        stream=stream,
        kind=kind.astype(np.uint8),
        name=name.astype(np.int32),
        moved_bytes=moved,
        pageable=pageable.astype(np.bool_),
        correlation=correlation,
    )


def _no_overheads() -> Overheads:
    """Kineto's records of its own overhead name no thread, and perfci starts and stops it outside of any step."""
    none: Int64 = np.empty(0, dtype=np.int64)
    return Overheads(start_ns=none, end_ns=none, thread=none.astype(np.int32), name=none.astype(np.int32))


def _info(facts: dict[str, Any], origin: int) -> TraceInfo:
    """``displayTimeUnit`` is left aside: it tells viewers how to print times, which are microseconds in any case."""
    started = _number(facts.get("baseTimeNanoseconds")) + origin
    cuda = _number(facts.get("cuda_driver_version"))
    devices = facts.get("deviceProperties")
    return TraceInfo(
        collector="torch",
        collector_version=str(facts.get(TORCH_VERSION, "unknown")),
        gpu_models=tuple(
            str(device["name"])
            for device in (devices if isinstance(devices, list) else ())
            if isinstance(device, dict) and device.get("name")
        ),
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        started_at_utc_ns=started if started >= _FIRST_PLAUSIBLE_EPOCH_NS else None,
    )


def _rank(facts: dict[str, Any], path: Path) -> int | None:
    distributed = facts.get("distributedInfo")
    stated = distributed.get("rank") if isinstance(distributed, dict) else None
    return stated if type(stated) is int and stated >= 0 else rank_of_file(path)


def _no_marks(path: Path, *, is_kineto: bool) -> TraceError:
    if not is_kineto:
        return TraceError(
            f"{path} is a Chrome trace, but not one of torch.profiler", wanted="a trace that export_chrome_trace wrote"
        )
    return TraceError(
        f"{path} holds no ranges",
        wanted="ranges around the training steps and their phases",
        todo="mark the script with perfci.phases; or with torch.profiler.record_function, and name the range that is "
        "one step (ProfilerStep)",
    )


def _checked(trace: RawTrace) -> RawTrace:
    """GPU work must be there when calls launched some."""
    if len(trace.operations.start_ns) == 0:
        used = [trace.strings[at] for at in np.unique(trace.calls.name).tolist()]
        if any(launches_work(call_identity(name)) for name in used):
            raise TraceError(
                f"{trace.label}: CUDA calls launched GPU work, but no GPU operation was recorded",
                wanted="kernels and copies",
                todo=_CUDA_HINT,
            )
    if trace.traced_gpu or not trace.info.gpu_models:
        return trace
    note = Note(
        code="no-cuda-records",
        text="the machine has a GPU, but the trace holds no CUDA record: GPU metrics are not known. If the program "
        f"uses CUDA, {_CUDA_HINT}",
    )
    return replace(trace, notes=(*trace.notes, note))
