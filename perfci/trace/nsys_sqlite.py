"""Reads an SQLite export of nsys into raw columns."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from perfci.errors import TraceError
from perfci.model.run import Note
from perfci.model.timeline import Int32, Int64, OperationKind, UInt8
from perfci.model.trace import TraceInfo
from perfci.trace import schema
from perfci.trace.calls import launches_work
from perfci.trace.checked import ends_of, integers, sizes_of, text_of
from perfci.trace.columns import Calls, GpuOperations, Marks, Overheads, RawTrace, Threads
from perfci.trace.kernels import call_identity
from perfci.trace.schema import Catalog, Column, Table
from perfci.trace.sqlite_file import checked_sqlite
from perfci.trace.sqlite_pages import NO_CODES, Coded, Place, UnsupportedTableError, coded, read_integers

_ROWS_AT_ONCE = 1 << 16
_OPERATION_TABLES = {
    schema.KERNELS: schema.KERNEL_COLUMNS,
    schema.COPIES: schema.COPY_COLUMNS,
    schema.MEMSETS: schema.MEMSET_COLUMNS,
    schema.GRAPHS: schema.GRAPH_COLUMNS,
}
_NO_PERMISSION = re.compile("privilege|permission", re.IGNORECASE)
_TODO_PERMISSION = "see `perfci doctor`; in a container, start it with the profiling capabilities of the GPU driver"
_TODO_EXPORT = "export the report again: nsys export --type=sqlite REPORT.nsys-rep"


def read_nsys(path: Path) -> RawTrace:
    """All that perfci needs of one export. TraceError when it is none, is damaged, or lacks what all have."""
    with checked_sqlite(path) as file, _connected(file, path) as connection:
        try:
            return _read(connection, file, path)
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


def _read(connection: sqlite3.Connection, file: Path, path: Path) -> RawTrace:
    catalog = schema.catalog_of(connection)
    if not any(catalog.has(name) for name in schema.KNOWN):
        some = ", ".join(sorted(catalog.tables)[:6]) or "none"
        raise TraceError(
            f"{path} is an SQLite database, but not an export of nsys (its tables: {some})",
            wanted=f"at least one of the tables {', '.join(schema.KNOWN)}",
            todo=_TODO_EXPORT,
        )
    return _Reader(connection, catalog, file).trace(path)


@dataclass(slots=True)
class _Rows:
    """Columns of one table: numbers, and identifiers as codes."""

    count: int = 0
    numbers: dict[str, Int64] = field(default_factory=dict)
    coded: dict[str, Coded] = field(default_factory=dict)

    def __getitem__(self, column: str) -> Int64:
        return self.numbers[column]


class _Reader:
    """Collects columns and the strings and threads that they refer to."""

    def __init__(self, connection: sqlite3.Connection, catalog: Catalog, file: Path) -> None:
        self._connection = connection
        self._catalog = catalog
        self._file = file
        self._notes: list[Note] = []
        self._strings: list[str] = []
        self._string_at: dict[str, int] = {}

    def trace(self, path: Path) -> RawTrace:
        notes = self._notes
        call = self._table(schema.CALLS, schema.CALL_COLUMNS)
        mark, mark_name = self._mark_rows()
        overhead = self._table(schema.OVERHEADS, schema.OVERHEAD_COLUMNS)
        operations = self._operations()

        used = [rows.coded["globalTid"].values for rows in (call, mark, overhead)]
        thread_ids = np.unique(np.concatenate(used))
        of_operations = [rows.coded["globalPid"].values for rows in operations]
        process_ids = np.unique(np.concatenate([thread_ids & ~schema.THREAD_MASK, *of_operations]))
        trace = RawTrace(
            label=path.name,
            info=self._info(),
            traced_gpu=any(self._catalog.has(table) for table in (schema.CALLS, *_OPERATION_TABLES)),
            processes=self._process_names(process_ids),
            threads=Threads(
                process=np.searchsorted(process_ids, thread_ids & ~schema.THREAD_MASK).astype(np.int32),
                name=self._thread_names(thread_ids),
            ),
            marks=Marks(
                start_ns=mark["start"],
                end_ns=ends_of(mark["start"], mark["end"], notes, "ranges", unfinished=True),
                thread=_places(mark.coded["globalTid"], thread_ids),
                name=mark_name,
            ),
            calls=Calls(
                start_ns=call["start"],
                end_ns=ends_of(call["start"], call["end"], notes, "CUDA calls"),
                thread=_places(call.coded["globalTid"], thread_ids),
                name=self._names(call.coded["nameId"]),
                correlation=call["correlationId"],
            ),
            operations=self._joined_operations(operations, process_ids),
            overheads=Overheads(
                start_ns=overhead["start"],
                end_ns=ends_of(overhead["start"], overhead["end"], notes, "profiler overheads"),
                thread=_places(overhead.coded["globalTid"], thread_ids),
                name=self._names(overhead.coded["nameId"]),
            ),
            strings=tuple(self._strings),
            notes=tuple(notes),
            rank=rank_of_file(path),
        )
        return self._check_gpu(trace)

    def _table(self, table: str, columns: tuple[Column, ...]) -> _Rows:
        rows = _Rows()
        if not self._catalog.has(table):
            read: list[Int64 | Coded] = [NO_CODES if column.few else np.empty(0, dtype=np.int64) for column in columns]
        else:
            found = self._catalog.tables[table]
            try:
                read = self._from_pages(found, columns)
            except UnsupportedTableError:
                read = self._from_sqlite(table, columns)
        for column, values in zip(columns, read, strict=True):
            if isinstance(values, Coded):
                rows.coded[column.name] = values
            else:
                rows.numbers[column.name] = values
        rows.count = len(rows["start"]) if "start" in rows.numbers else len(rows.coded["nameId"].codes)
        return rows

    def _from_pages(self, table: Table, columns: tuple[Column, ...]) -> list[Int64 | Coded]:
        if table.root_page is None:
            raise UnsupportedTableError(table.name)
        present = [column for column in columns if column.name in table.columns]
        absent = {column.name: schema.default_of(table, column) for column in columns if column not in present}
        places = [
            Place(
                index=table.columns.index(column.name),
                null=column.default,
                coded=column.few,
            )
            for column in present
        ]
        found = dict(
            zip([column.name for column in present], read_integers(self._file, table.root_page, places), strict=True)
        )
        count = len(found[present[0].name])
        for column in columns:
            if column.name in absent:
                full = np.full(count, absent[column.name], dtype=np.int64)
                found[column.name] = coded(full) if column.few else full
        return [found[column.name] for column in columns]

    def _from_sqlite(self, table: str, columns: tuple[Column, ...]) -> list[Int64 | Coded]:
        cursor = self._connection.execute(self._catalog.select(table, columns))
        blocks = []
        while rows := cursor.fetchmany(_ROWS_AT_ONCE):
            blocks.append(integers(rows, self._catalog.tables[table].name))
        table_ = np.concatenate(blocks, axis=1) if blocks else np.empty((len(columns), 0), dtype=np.int64)
        return [coded(values) if column.few else values for column, values in zip(columns, table_, strict=True)]

    def _mark_rows(self) -> tuple[_Rows, Int32]:
        rows = self._table(schema.NVTX, schema.NVTX_COLUMNS)
        name = self._names(rows.coded["textId"])
        kept = np.isin(rows["eventType"], schema.RANGES)
        unregistered = np.flatnonzero(kept & (name < 0))
        if len(unregistered):
            name[unregistered] = self._texts()[unregistered]
        own = np.flatnonzero(kept)
        own = own[self._own_domain(rows["domainId"][own], name[own])]
        thread = rows.coded["globalTid"]
        marks = _Rows(
            count=len(own),
            numbers={"start": rows["start"][own], "end": rows["end"][own]},
            coded={"globalTid": Coded(codes=thread.codes[own], values=thread.values)},
        )
        return marks, name[own]

    def _texts(self) -> Int32:
        """Texts of all rows of the table of ranges, in the order in which ``_table`` reads rows; -1 where none is."""
        cursor = self._connection.execute(self._catalog.select(schema.NVTX, (), more=("text",)))
        parts = [np.empty(0, dtype=np.int32)]
        while part := cursor.fetchmany(_ROWS_AT_ONCE):
            numbers = (-1 if text is None else self._intern(text_of(text)) for (text,) in part)
            parts.append(np.fromiter(numbers, np.int32, count=len(part)))
        return np.concatenate(parts)

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
                todo=_TODO_PERMISSION if _NO_PERMISSION.search(complaint) else hint,
            )
        note = Note(
            code="no-cuda-records",
            text="the machine has a GPU, but the trace holds no CUDA record: GPU metrics are not known. If the program "
            "uses CUDA, another profiler (torch.profiler) was active or nsys ran without --trace=cuda",
        )
        return replace(trace, notes=(*trace.notes, note))

    def _operations(self) -> list[_Rows]:
        return [self._table(table, columns) for table, columns in _OPERATION_TABLES.items()]

    def _joined_operations(self, tables: list[_Rows], process_ids: Int64) -> GpuOperations:
        kernels, copies, memsets, _ = tables
        total = sum(rows.count for rows in tables)
        start, end = _stacked([rows["start"] for rows in tables]), _stacked([rows["end"] for rows in tables])
        untimed = int(np.count_nonzero((start == 0) & (end == 0)))
        if untimed:
            text = f"{untimed} GPU operations have no times in the trace; they are counted with no duration"
            self._notes.append(Note(code="operations-without-times", text=text))
        copy_rows = slice(kernels.count, kernels.count + copies.count)
        kind = np.repeat(
            np.array(
                [OperationKind.KERNEL, OperationKind.OTHER_COPY, OperationKind.MEMSET, OperationKind.GRAPH],
                dtype=np.uint8,
            ),
            [rows.count for rows in tables],
        )
        kind[copy_rows] = _copy_kinds(copies["copyKind"])
        name = np.full(total, -1, dtype=np.int32)
        name[: kernels.count] = self._names(kernels.coded["demangledName"])
        moved = np.zeros(total, dtype=np.int64)
        moved[copy_rows] = sizes_of(copies["bytes"], schema.COPIES)
        moved[copy_rows.stop : copy_rows.stop + memsets.count] = sizes_of(memsets["bytes"], schema.MEMSETS)
        pageable = np.zeros(total, dtype=np.bool_)
        to_device, to_host = kind[copy_rows] == OperationKind.H2D, kind[copy_rows] == OperationKind.D2H
        pageable[copy_rows] = (to_device & (copies["srcKind"] == schema.PAGEABLE)) | (
            to_host & (copies["dstKind"] == schema.PAGEABLE)
        )
        return GpuOperations(
            start_ns=start,
            end_ns=ends_of(start, end, self._notes, "GPU operations"),
            process=_stacked([_places(rows.coded["globalPid"], process_ids) for rows in tables]),
            device=_stacked([rows.numbers.pop("deviceId").astype(np.int32) for rows in tables]),
            stream=_stacked([rows["streamId"] for rows in tables]),
            kind=kind,
            name=name,
            moved_bytes=moved,
            pageable=pageable,
            correlation=_stacked([rows["correlationId"] for rows in tables]),
        )

    def _thread_names(self, thread_ids: Int64) -> Int32:
        named = self._table(schema.THREADS, schema.THREAD_COLUMNS)
        names = np.full(len(thread_ids), -1, dtype=np.int32)
        of_row, name = named.coded["globalTid"].decoded(), named.coded["nameId"].decoded()
        known = np.isin(of_row, thread_ids)
        names[np.searchsorted(thread_ids, of_row[known])] = self._names(coded(name[known]))
        return names

    def _intern(self, text: str) -> int:
        at = self._string_at.get(text)
        if at is None:
            at = self._string_at[text] = len(self._strings)
            self._strings.append(text)
        return at

    def _names(self, ids: Coded) -> Int32:
        """StringIds numbers → indexes of RawTrace.strings; -1 for an id that is not there."""
        known: dict[int, str] = {}
        if self._catalog.has(schema.STRINGS):
            real = self._catalog.tables[schema.STRINGS].name
            wanted = [number for number in ids.values.tolist() if number >= 0]
            for at in range(0, len(wanted), 500):
                part = wanted[at : at + 500]
                marks = ",".join("?" * len(part))
                known.update(
                    self._connection.execute(f'SELECT id, value FROM "{real}" WHERE id IN ({marks})', part)  # noqa: S608
                )
        at_of = [self._intern(text_of(known[i])) if known.get(i) is not None else -1 for i in ids.values.tolist()]
        return ids.mapped(np.array(at_of, dtype=np.int32))

    def _process_names(self, process_ids: Int64) -> tuple[str, ...]:
        names: dict[int, str] = {}
        if self._catalog.has(schema.PROCESSES):
            real = self._catalog.tables[schema.PROCESSES].name
            names = dict(self._connection.execute(f'SELECT globalPid, name FROM "{real}"'))  # noqa: S608
        return tuple(
            f"{Path(text_of(names.get(i) or 'process')).name} ({(i >> 24) & schema.THREAD_MASK})"
            for i in map(int, process_ids)
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


def _stacked(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """One column after the other; no copy when only one has rows."""
    some = [column for column in columns if len(column)]
    return some[0] if len(some) == 1 else np.concatenate(columns)


def _places(ids: Coded, ordered: Int64) -> Int32:
    """For each row the place of its identifier in ``ordered``."""
    return ids.mapped(np.searchsorted(ordered, ids.values).astype(np.int32))


def _copy_kinds(copy_kind: Int64) -> UInt8:
    kinds = np.full(len(copy_kind), int(OperationKind.OTHER_COPY), dtype=np.uint8)
    for direction, numbers in (
        (OperationKind.H2D, schema.COPY_H2D),
        (OperationKind.D2H, schema.COPY_D2H),
        (OperationKind.D2D, schema.COPY_D2D),
    ):
        kinds[np.isin(copy_kind, numbers)] = int(direction)
    return kinds


def rank_of_file(path: Path) -> int | None:
    """The rank that a file's name states: ``run.rank3.sqlite``, ``report_rank-12.sqlite.gz``. None: it states none."""
    found = re.search(r"(?:^|[^a-zA-Z])rank[._=-]?(\d+)(?!\d)", path.name)
    return int(found[1]) if found else None
