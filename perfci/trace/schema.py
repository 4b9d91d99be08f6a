"""Every table, column and statement of nsys' SQLite exports that perfci relies on. No other file knows them.

Tables exist only when they have rows, columns come and go between versions, newer exports may add ``_V2`` or ``_V3``
to a table's name, and the order of rows is not promised. Sources: the export schema that NVIDIA documents at
https://docs.nvidia.com/nsight-systems/ (Exporter schema) and exports of 2022.4 and 2025.3.
"""

import re
import sqlite3
from dataclasses import dataclass

RANGES = (59, 60)
"""NVTX_EVENTS.eventType of push/pop and of start/end ranges; 75 announces a domain."""

NULL_END = -(2**63)
NULL_ID = -1

THREAD_MASK = 0xFFFFFF
"""Low bits of a globalTid: the thread. The rest, and the whole globalPid, is the process."""

COPY_H2D, COPY_D2H, COPY_D2D = (1, 3), (2, 4), (5, 6, 7, 8, 10)
"""MEMCPY.copyKind by direction; the others (host to host, unified memory migrations) have no direction of their own."""
PAGEABLE = 0
"""MEMCPY.srcKind and dstKind of pageable host memory."""

NVTX = "NVTX_EVENTS"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
THREADS = "ThreadNames"
PROCESSES = "PROCESSES"
OVERHEADS = "PROFILER_OVERHEAD"
STRINGS = "StringIds"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"

EXPORT_FACTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
"""What made the export: the second name until 2022."""

KNOWN = (STRINGS, *EXPORT_FACTS, NVTX, CALLS, KERNELS)
"""A database with none of these is not an nsys export."""


_CUDA_COMPLAINT = re.compile(
    r"CUPTI.*(?:error|fail|subscriber|not supported)|CUDA.*(?:could not|not be|fail)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column to read. ``default`` stands for NULL and for a column that this export lacks; None: it must exist.
    ``few``: the column holds few different values (names, threads), so they are numbered while reading."""

    name: str
    default: int | None = None

    @property
    def few(self) -> bool:
        """True for columns of identifiers."""
        return self.name in _IDENTIFIERS


_IDENTIFIERS = {"globalTid", "globalPid", "nameId", "demangledName", "textId"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of one export. ``root_page`` is where its rows start in the file; None where only SQLite can read it."""

    name: str
    columns: tuple[str, ...]
    root_page: int | None


def _columns(*names: str, **defaults: int) -> tuple[Column, ...]:
    return tuple(Column(name=n) for n in names) + tuple(Column(name=n, default=d) for n, d in defaults.items())


CALL_COLUMNS = _columns("start", "end", "globalTid", "nameId", correlationId=NULL_ID)
_OPERATION = ("start", "end", "globalPid")
KERNEL_COLUMNS = _columns(*_OPERATION, deviceId=0, streamId=0, correlationId=NULL_ID, demangledName=NULL_ID)
COPY_COLUMNS = _columns(
    *_OPERATION, deviceId=0, streamId=0, correlationId=NULL_ID, bytes=0, copyKind=0, srcKind=NULL_ID, dstKind=NULL_ID
)
MEMSET_COLUMNS = _columns(*_OPERATION, deviceId=0, streamId=0, correlationId=NULL_ID, bytes=0)
GRAPH_COLUMNS = _columns(*_OPERATION, deviceId=0, streamId=0, correlationId=NULL_ID)
THREAD_COLUMNS = _columns("globalTid", "nameId")
OVERHEAD_COLUMNS = _columns("start", "end", globalTid=NULL_ID, nameId=NULL_ID)
NVTX_COLUMNS = _columns("start", "eventType", end=NULL_END, globalTid=NULL_ID, textId=NULL_ID, domainId=0)


class MissingColumnError(Exception):
    """A table lacks a column that cannot be done without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalog:
    """The tables of one export: logical name → the table's real name and columns."""

    tables: dict[str, Table]

    def has(self, table: str) -> bool:
        """True when the export holds this table under any version suffix."""
        return table in self.tables

    def select(self, table: str, columns: tuple[Column, ...], *, more: tuple[str, ...] = ()) -> str:
        """A SELECT of the columns of all rows, NULL and absent ones replaced by their defaults, in the order in which
        the rows are stored. ``more`` are raw text columns, NULL where absent."""
        found = self.tables[table]
        parts = [self._expression(found, column) for column in columns]
        parts += [f'"{name}"' if name in found.columns else "NULL" for name in more]
        # Only names from this file and from the file's own catalog, quoted, go into the text.
        order = " ORDER BY rowid" if found.root_page is not None else ""
        return f'SELECT {", ".join(parts)} FROM "{found.name}"' + order  # noqa: S608

    @staticmethod
    def _expression(table: Table, column: Column) -> str:
        if column.name not in table.columns:
            return str(default_of(table, column))
        return f'"{column.name}"' if column.default is None else f'coalesce("{column.name}", {column.default})'


def default_of(table: Table, column: Column) -> int:
    """What stands for a column that the table lacks. MissingColumnError where nothing can."""
    if column.default is None:
        raise MissingColumnError(f"table {table.name} has no column {column.name}")
    return column.default


def catalog_of(connection: sqlite3.Connection) -> Catalog:
    """Read the catalog. Of several versions of a table the newest (highest suffix) counts."""
    found: dict[str, tuple[int, str, int, str]] = {}
    statement = "SELECT name, rootpage, coalesce(sql, '') FROM sqlite_master WHERE type IN ('table', 'view')"
    for name, root, definition in connection.execute(statement):
        match = re.fullmatch(r"(.+?)(?:_V(\d+))?", name)
        assert match is not None
        version = int(match[2] or 1)
        if version > found.get(match[1], (0,))[0]:
            found[match[1]] = (version, name, root or 0, definition)
    return Catalog(
        tables={
            logical: _table(connection, name, root, definition)
            for logical, (_, name, root, definition) in found.items()
        }
    )


def _table(connection: sqlite3.Connection, name: str, root: int, definition: str) -> Table:
    quoted = name.replace('"', '""')
    rows = connection.execute(f'PRAGMA table_xinfo("{quoted}")').fetchall()
    # A primary key or a generated column is stored in another way than the order of columns says.
    plain = root > 0 and "WITHOUT" not in definition.upper() and not any(row[5] or row[6] for row in rows)
    return Table(name=name, columns=tuple(row[1] for row in rows), root_page=root if plain else None)


def export_facts(connection: sqlite3.Connection, catalog: Catalog) -> dict[str, str]:
    """Facts of the capture by stable names: ``version``, ``driver``, ``cuda``, ``started_utc_ns``. Absent: unknown."""
    facts: dict[str, str] = {}
    for table in EXPORT_FACTS:
        if catalog.has(table):
            facts |= _named(connection, catalog, table, {"EXPORT_PRODUCT_VERSION": "version"})
    if catalog.has("TARGET_INFO_SYSTEM_ENV"):
        wanted = {"NvDriverVersion": "driver", "CudaDriverVersion": "cuda"}
        facts |= _named(connection, catalog, "TARGET_INFO_SYSTEM_ENV", wanted)
    if catalog.has("TARGET_INFO_SESSION_START_TIME"):
        real = catalog.tables["TARGET_INFO_SESSION_START_TIME"].name
        row = connection.execute(f'SELECT utcEpochNs FROM "{real}" LIMIT 1').fetchone()  # noqa: S608
        if row and isinstance(row[0], int):
            facts["started_utc_ns"] = str(row[0])
    return facts


def _named(connection: sqlite3.Connection, catalog: Catalog, table: str, wanted: dict[str, str]) -> dict[str, str]:
    """Values of a name-value table; without those that stand for nothing."""
    real = catalog.tables[table].name
    rows = connection.execute(f'SELECT name, value FROM "{real}"')  # noqa: S608
    return {wanted[name]: str(value) for name, value in rows if name in wanted and value not in (None, "", "0")}


def gpu_models(connection: sqlite3.Connection, catalog: Catalog) -> tuple[str, ...]:
    """Names of the GPUs that the profiler saw, in its order."""
    if not catalog.has("TARGET_INFO_GPU"):
        return ()
    real, columns = catalog.tables["TARGET_INFO_GPU"].name, catalog.tables["TARGET_INFO_GPU"].columns
    if "name" not in columns:
        return ()
    return tuple(str(name) for (name,) in connection.execute(f'SELECT name FROM "{real}"') if name)  # noqa: S608


def cuda_complaint(connection: sqlite3.Connection, catalog: Catalog) -> str | None:
    """What the profiler said about its failure to trace CUDA, or None."""
    if not catalog.has(DIAGNOSTICS) or "text" not in catalog.tables[DIAGNOSTICS].columns:
        return None
    real = catalog.tables[DIAGNOSTICS].name
    for (text,) in connection.execute(f'SELECT "text" FROM "{real}"'):  # noqa: S608
        if text and _CUDA_COMPLAINT.search(str(text)):
            return str(text).strip()
    return None
