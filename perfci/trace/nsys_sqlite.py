"""Reads an SQLite export of nsys into raw columns."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from perfci.errors import TraceError
from perfci.model.run import Note
from perfci.model.timeline import Int32, Int64, OperationKind
from perfci.model.trace import TraceInfo
from perfci.trace import schema
from perfci.trace.calls import launches_work
from perfci.trace.columns import UNFINISHED, Calls, GpuOperations, Marks, Overheads, RawTrace, Threads
from perfci.trace.kernels import call_identity
from perfci.trace.schema import Catalog, Column
from perfci.trace.sqlite_file import checked_sqlite

_ROWS_AT_ONCE = 1 << 16
_TODO_EXPORT = "export the report again: nsys export --type=sqlite REPORT.nsys-rep"


def read_nsys(path: Path) -> RawTrace:
    """All that perfci needs of one export. TraceError when it is none, is damaged, or lacks what all have."""
    with checked_sqlite(path) as file, _connected(file, path) as connection:
        try:
            return _read(connection, path)
        except schema.MissingColumnError as error:
            raise TraceError(
                f"{path}: {error}", wanted="an export of nsys 2022.4 or newer", todo=_TODO_EXPORT
            ) from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise TraceError(
                f"{path} is damaged: {error}", wanted="a complete SQLite export of nsys", todo=_TODO_EXPORT
            ) from error


@contextmanager
def _connected(file: Path, shown: Path) -> Iterator[sqlite3.Connection]:
    uri = f"file:{quote(str(file.resolve()))}?mode=ro&immutable=1"
    try:
        connection = sqlite3.connect(uri, uri=True)
    except sqlite3.Error as error:
        raise TraceError(f"{shown} cannot be opened: {error}") from error
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        yield connection
    finally:
        connection.close()


def _read(connection: sqlite3.Connection, path: Path) -> RawTrace:
    catalog = schema.catalog_of(connection)
    if not any(catalog.has(name) for name in schema.KNOWN):
        some = ", ".join(sorted(catalog.tables)[:6]) or "none"
        raise TraceError(
            f"{path} is an SQLite database, but not an export of nsys (its tables: {some})",
            wanted=f"at least one of the tables {', '.join(schema.KNOWN)}",
            todo=_TODO_EXPORT,
        )
    return _Reader(connection, catalog).trace(path)


class _Reader:
    """Collects columns and the strings and threads that they refer to."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog) -> None:
        self._connection = connection
        self._catalog = catalog
        self._notes: list[Note] = []
        self._strings: list[str] = []
        self._string_at: dict[str, int] = {}

    def trace(self, path: Path) -> RawTrace:
        notes = self._notes
        call = self._table(schema.CALLS, schema.CALL_COLUMNS)
        mark, mark_text = self._mark_rows()
        overhead = self._table(schema.OVERHEADS, schema.OVERHEAD_COLUMNS)
        thread_name = self._table(schema.THREADS, schema.THREAD_COLUMNS)
        operations, operation_process = self._operations()

        thread_ids = np.unique(np.concatenate([call["globalTid"], mark["globalTid"], overhead["globalTid"]]))
        process_ids = np.unique(np.r_[thread_ids & ~schema.THREAD_MASK, operation_process])
        call_name = self._names(call["nameId"])
        names_of_threads = np.full(len(thread_ids), -1, dtype=np.int32)
        known = np.isin(thread_name["globalTid"], thread_ids)
        names_of_threads[np.searchsorted(thread_ids, thread_name["globalTid"][known])] = self._names(
            thread_name["nameId"][known]
        )
        trace = RawTrace(
            label=path.name,
            info=self._info(),
            traced_gpu=any(
                self._catalog.has(t)
                for t in (schema.CALLS, schema.KERNELS, schema.COPIES, schema.MEMSETS, schema.GRAPHS)
            ),
            processes=self._process_names(process_ids),
            threads=Threads(
                process=np.searchsorted(process_ids, thread_ids & ~schema.THREAD_MASK).astype(np.int32),
                name=names_of_threads,
            ),
            marks=Marks(
                start_ns=mark["start"],
                end_ns=_not_before(mark["start"], mark["end"], notes, "ranges", unfinished=True),
                thread=np.searchsorted(thread_ids, mark["globalTid"]).astype(np.int32),
                name=mark_text,
            ),
            calls=Calls(
                start_ns=call["start"],
                end_ns=_not_before(call["start"], call["end"], notes, "CUDA calls"),
                thread=np.searchsorted(thread_ids, call["globalTid"]).astype(np.int32),
                name=call_name,
                correlation=call["correlationId"],
            ),
            operations=self._finish_operations(operations, np.searchsorted(process_ids, operation_process)),
            overheads=Overheads(
                start_ns=overhead["start"],
                end_ns=_not_before(overhead["start"], overhead["end"], notes, "profiler overheads"),
                thread=np.searchsorted(thread_ids, overhead["globalTid"]).astype(np.int32),
                name=self._names(overhead["nameId"]),
            ),
            strings=tuple(self._strings),
            notes=tuple(notes),
            rank=rank_of_file(path),
        )
        return self._check_gpu(trace)

    def _table(self, table: str, columns: tuple[Column, ...], *, where: str = "") -> dict[str, Int64]:
        names = [column.name for column in columns]
        if not self._catalog.has(table):
            return {name: np.empty(0, dtype=np.int64) for name in names}
        statement = self._catalog.select(table, columns, where=where)
        cursor = self._connection.execute(statement)
        blocks = []
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            blocks.append(np.array(rows, dtype=np.int64).T)
        if not blocks:
            return {name: np.empty(0, dtype=np.int64) for name in names}
        return {name: np.concatenate([block[at] for block in blocks]) for at, name in enumerate(names)}

    def _mark_rows(self) -> tuple[dict[str, Int64], Int32]:
        names = [column.name for column in schema.NVTX_COLUMNS]
        nothing = {name: np.empty(0, dtype=np.int64) for name in names}
        if not self._catalog.has(schema.NVTX):
            return nothing, np.empty(0, dtype=np.int32)
        statement = self._catalog.select(schema.NVTX, schema.NVTX_COLUMNS, where=schema.RANGES_WHERE, more=("text",))
        cursor = self._connection.execute(statement)
        numbers, texts = [], []
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            numbers.append(np.array([row[:-1] for row in rows], dtype=np.int64).T)
            texts.append(
                np.fromiter((-1 if r[-1] is None else self._intern(r[-1]) for r in rows), np.int32, count=len(rows))
            )
        if not numbers:
            return nothing, np.empty(0, dtype=np.int32)
        table = {name: np.concatenate([block[at] for block in numbers]) for at, name in enumerate(names)}
        text = np.concatenate(texts)
        registered = self._names(table["textId"])
        name = np.where(text >= 0, text, registered).astype(np.int32)
        own = self._own_domain(table["domainId"], name)
        return {key: column[own] for key, column in table.items()}, name[own]

    def _own_domain(self, domain: Int64, name: Int32) -> Int64:
        """Rows of the program's own marks: those of the default domain, or of all domains when it holds none."""
        named = name >= 0
        default = named & (domain == 0)
        return np.flatnonzero(default if default.any() else named)

    def _check_gpu(self, trace: RawTrace) -> RawTrace:
        """GPU work must be there when calls launched some; when there is no CUDA record at all, the profiler must not
        have said that it failed to trace CUDA."""
        hint = "run without torch.profiler or any other tool that uses CUPTI, then trace again"
        if trace.traced_gpu and len(trace.operations.start_ns) == 0:
            launches = [trace.strings[at] for at in np.unique(trace.calls.name).tolist() if at >= 0]
            if any(launches_work(call_identity(name)) for name in launches):
                raise TraceError(
                    f"{trace.label}: CUDA calls launched GPU work, but no GPU operation was recorded",
                    wanted="kernels and copies",
                    todo=hint,
                )
        if trace.traced_gpu or not trace.info.gpu_models:
            return trace
        complaint = schema.cuda_complaint(self._connection, self._catalog)
        if complaint:
            raise TraceError(
                f"{trace.label} holds no CUDA records; the profiler said: {complaint}",
                wanted="a trace with kernels",
                todo=hint,
            )
        note = Note(
            code="no-cuda-records",
            text="the machine has a GPU, but the trace holds no CUDA record: GPU metrics are not known. If the program "
            "uses CUDA, another profiler (torch.profiler) was active or nsys ran without --trace=cuda",
        )
        return replace(trace, notes=(*trace.notes, note))

    def _operations(self) -> tuple[list[dict[str, Int64]], Int64]:
        tables = []
        for table, columns, kind in (
            (schema.KERNELS, schema.KERNEL_COLUMNS, OperationKind.KERNEL),
            (schema.COPIES, schema.COPY_COLUMNS, OperationKind.OTHER_COPY),
            (schema.MEMSETS, schema.MEMSET_COLUMNS, OperationKind.MEMSET),
            (schema.GRAPHS, schema.GRAPH_COLUMNS, OperationKind.GRAPH),
        ):
            rows = self._table(table, columns)
            rows["kind"] = np.full(len(rows["start"]), int(kind), dtype=np.int64)
            tables.append(rows)
        return tables, np.concatenate([rows["globalPid"] for rows in tables])

    def _finish_operations(self, tables: list[dict[str, Int64]], process: Int64) -> GpuOperations:
        kernels, copies, _, _ = tables
        for direction, kinds in (
            (OperationKind.H2D, schema.COPY_H2D),
            (OperationKind.D2H, schema.COPY_D2H),
            (OperationKind.D2D, schema.COPY_D2D),
        ):
            copies["kind"][np.isin(copies["copyKind"], kinds)] = int(direction)
        h2d, d2h = copies["kind"] == OperationKind.H2D, copies["kind"] == OperationKind.D2H
        pageable = (h2d & (copies["srcKind"] == schema.PAGEABLE)) | (d2h & (copies["dstKind"] == schema.PAGEABLE))

        def joined(name: str, absent: int = 0) -> Int64:
            return np.concatenate([t.get(name, np.full(len(t["start"]), absent, dtype=np.int64)) for t in tables])

        name = np.full(len(process), -1, dtype=np.int32)
        name[: len(kernels["start"])] = self._names(kernels["demangledName"])
        flags = np.zeros(len(process), dtype=np.bool_)
        flags[len(kernels["start"]) : len(kernels["start"]) + len(pageable)] = pageable
        start, end = joined("start"), joined("end")
        untimed = int(np.count_nonzero((start == 0) & (end == 0)))
        if untimed:
            text = f"{untimed} GPU operations have no times in the trace; they are counted with no duration"
            self._notes.append(Note(code="operations-without-times", text=text))
        return GpuOperations(
            start_ns=start,
            end_ns=_not_before(start, end, self._notes, "GPU operations"),
            process=process.astype(np.int32),
            device=joined("deviceId").astype(np.int32),
            stream=joined("streamId"),
            kind=joined("kind").astype(np.uint8),
            name=name,
            moved_bytes=joined("bytes"),
            pageable=flags,
            correlation=joined("correlationId"),
        )

    def _intern(self, text: str) -> int:
        at = self._string_at.get(text)
        if at is None:
            at = self._string_at[text] = len(self._strings)
            self._strings.append(text)
        return at

    def _names(self, ids: Int64) -> Int32:
        """StringIds numbers → indexes of RawTrace.strings; -1 for an id that is not there."""
        if len(ids) == 0:
            return np.empty(0, dtype=np.int32)
        distinct, inverse = np.unique(ids, return_inverse=True)
        known: dict[int, str] = {}
        if self._catalog.has(schema.STRINGS):
            real, _ = self._catalog.tables[schema.STRINGS]
            wanted = [int(i) for i in distinct if i >= 0]
            for at in range(0, len(wanted), 500):
                part = wanted[at : at + 500]
                marks = ",".join("?" * len(part))
                known.update(
                    self._connection.execute(f'SELECT id, value FROM "{real}" WHERE id IN ({marks})', part)  # noqa: S608
                )
        at_of = [self._intern(known[i]) if known.get(i) is not None else -1 for i in map(int, distinct)]
        return np.array(at_of, dtype=np.int32)[inverse]

    def _process_names(self, process_ids: Int64) -> tuple[str, ...]:
        names: dict[int, str] = {}
        if self._catalog.has(schema.PROCESSES):
            real, _ = self._catalog.tables[schema.PROCESSES]
            names = dict(self._connection.execute(f'SELECT globalPid, name FROM "{real}"'))  # noqa: S608
        return tuple(
            f"{Path(names.get(i) or 'process').name} ({(i >> 24) & schema.THREAD_MASK})" for i in map(int, process_ids)
        )

    def _info(self) -> TraceInfo:
        facts = schema.export_facts(self._connection, self._catalog)
        cuda = facts.get("cuda")
        if cuda and cuda.isdecimal():
            cuda = f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}"
        started = facts.get("started_utc_ns")
        return TraceInfo(
            collector="nsys",
            collector_version=facts.get("version", "unknown"),
            gpu_models=schema.gpu_models(self._connection, self._catalog),
            driver=facts.get("driver"),
            cuda=cuda,
            started_at_utc_ns=int(started) if started else None,
        )


def _not_before(start: Int64, end: Int64, notes: list[Note], what: str, *, unfinished: bool = False) -> Int64:
    """``end`` where it is possible, else ``start``, with a note: an impossible time is never a duration."""
    bad = end < start
    if unfinished:
        bad &= end != UNFINISHED
    count = int(np.count_nonzero(bad))
    if count == 0:
        return end
    notes.append(
        Note(code="impossible-times", text=f"{count} {what} end before they start; they are counted with no duration")
    )
    return np.where(bad, start, end)


def rank_of_file(path: Path) -> int | None:
    """The rank that a file's name states: ``run.rank3.sqlite``, ``report_rank-12.sqlite.gz``. None: it states none."""
    found = re.search(r"(?:^|[^a-zA-Z])rank[._=-]?(\d+)(?!\d)", path.name)
    return int(found[1]) if found else None
