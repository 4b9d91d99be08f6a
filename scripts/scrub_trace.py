# ruff: noqa: S608  (table and column names come from the database's own catalog and are quoted)
"""Make a publishable copy of an nsys export: only what tests and bug reports need is copied, by an allow-list.

    python scripts/scrub_trace.py IN.sqlite[.gz] OUT.sqlite.gz

Copied are the tables of events (CUDA, NVTX, profiler overhead), the names of threads of traced processes, the GPUs
without their serial numbers, the versions of driver and tool, and of the strings only those that copied rows refer to.
Not copied are environments, command lines, host and user names, paths, output of the program, and every other process
of the machine. Text that the program itself put into range names stays. When any of the text left looks like a path, an
assignment or an address, it is printed and nothing is written.
"""

import argparse
import gzip
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

EVENT_TABLES = re.compile(
    r"(?:NVTX_EVENTS|CUPTI_ACTIVITY_KIND_\w+|CUDA_GRAPH\w*_EVENTS|PROFILER_OVERHEAD)(?:_V\d+)?|ENUM_\w+"
)
TARGET_TABLES = {"TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME", "TARGET_INFO_CUDA_DEVICE"}
FACT_TABLES = {
    "META_DATA_EXPORT": ("EXPORT_PRODUCT%", "EXPORT_SCHEMA_VERSION%"),
    "EXPORT_META_DATA": ("EXPORT_PRODUCT%", "EXPORT_SCHEMA_VERSION%"),
    "TARGET_INFO_SYSTEM_ENV": ("NvDriverVersion", "CudaDriverVersion"),
}
BLANKED_COLUMNS = {"TARGET_INFO_GPU": ("uuid", "luid", "busLocation", "ctxswDevPath", "ctrlDevPath")}
STRING_COLUMNS = re.compile(r"(?:nameId|textId|demangledName|shortName|mangledName|jsonTextId)")
SUSPICIOUS = re.compile(r"(?:^|[\s\"'=:])/[\w.-]+/|\b[A-Z][A-Z0-9_]{2,}=|\b\d{1,3}(?:\.\d{1,3}){3}\b|@[\w-]+\.")


def scrub(source: Path, target: Path) -> None:
    """Write the scrubbed copy of the database ``source`` to ``target`` (a new file)."""
    with closing(sqlite3.connect(target)) as copy:
        copy.execute("ATTACH DATABASE ? AS old", (str(source),))
        tables = dict(copy.execute("SELECT name, sql FROM old.sqlite_master WHERE type = 'table'"))
        for name, statement in tables.items():
            condition = _condition(name)
            if condition is not None:
                copy.execute(statement)
                copy.execute(f'INSERT INTO main."{name}" SELECT * FROM old."{name}" WHERE {condition}')
                for column in _columns(copy, name) & set(BLANKED_COLUMNS.get(name, ())):
                    copy.execute(f'UPDATE main."{name}" SET "{column}" = \'\' WHERE "{column}" IS NOT NULL')
        _copy_of_processes(copy, tables)
        _copy_strings(copy, tables)
        copy.commit()
        copy.execute("DETACH DATABASE old")
        copy.execute("VACUUM")


def _condition(table: str) -> str | None:
    if EVENT_TABLES.fullmatch(table) or table in TARGET_TABLES:
        return "1"
    patterns = FACT_TABLES.get(table)
    return " OR ".join(f"name LIKE '{pattern}'" for pattern in patterns) if patterns else None


def _columns(copy: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in copy.execute(f'PRAGMA main.table_info("{table}")')}


def _copied(copy: sqlite3.Connection) -> list[str]:
    return [name for (name,) in copy.execute("SELECT name FROM main.sqlite_master WHERE type = 'table'")]


def _copy_of_processes(copy: sqlite3.Connection, tables: dict[str, str]) -> None:
    """Threads and processes, of those processes only that have events."""
    events = [table for table in _copied(copy) if "globalTid" in _columns(copy, table)]
    ours = " UNION ".join(f'SELECT globalTid & ~0xFFFFFF FROM main."{table}"' for table in events) or "SELECT 0"
    for table, column in (("ThreadNames", "globalTid"), ("PROCESSES", "globalPid")):
        if table in tables:
            copy.execute(tables[table])
            copy.execute(
                f'INSERT INTO main."{table}" SELECT * FROM old."{table}" WHERE "{column}" & ~0xFFFFFF IN ({ours})'
            )
    if "PROCESSES" in tables:
        copy.create_function("basename", 1, lambda path: str(path).rsplit("/", 1)[-1])
        copy.execute("UPDATE main.PROCESSES SET name = basename(name)")


def _copy_strings(copy: sqlite3.Connection, tables: dict[str, str]) -> None:
    if "StringIds" not in tables:
        return
    used = [
        f'SELECT "{column}" FROM main."{table}" WHERE "{column}" IS NOT NULL'
        for table in _copied(copy)
        for column in _columns(copy, table)
        if STRING_COLUMNS.fullmatch(column)
    ]
    copy.execute(tables["StringIds"])
    copy.execute(
        f"INSERT INTO main.StringIds SELECT * FROM old.StringIds WHERE id IN ({' UNION '.join(used) or 'SELECT 0'})"
    )


def suspicious(database: Path) -> Iterator[tuple[str, str]]:
    """(table, text) of every text left that looks like a path, an environment variable, an address or an e-mail."""
    with closing(sqlite3.connect(database)) as connection:
        for table in _copied(connection):
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield from ((table, cell) for cell in row if isinstance(cell, str) and SUSPICIOUS.search(cell))


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make a publishable copy of an nsys export.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path, help="ends in .sqlite.gz or .sqlite")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain, scrubbed = Path(folder) / "in.sqlite", Path(folder) / "out.sqlite"
        opened = gzip.open if arguments.source.suffix == ".gz" else open
        with opened(arguments.source, "rb") as file, plain.open("wb") as out:
            shutil.copyfileobj(file, out)
        scrub(plain, scrubbed)
        left = list(dict.fromkeys(suspicious(scrubbed)))
        for table, text in left:
            sys.stderr.write(f"{table}: {text[:200]!r}\n")
        if left:
            sys.stderr.write("texts above look private: nothing was written\n")
            return 1
        if arguments.target.suffix == ".gz":
            # A fixed time stamp: the same input gives the same bytes.
            with (
                scrubbed.open("rb") as file,
                arguments.target.open("wb") as out,
                gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=9, mtime=0) as packed,
            ):
                shutil.copyfileobj(file, packed)
        else:
            shutil.copyfile(scrubbed, arguments.target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
