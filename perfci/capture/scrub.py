"""Taking out of an nsys export what is nobody's business: environments, paths, host names, other processes."""

import re
import socket
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from perfci.errors import MeasurementError

_OUTPUT_TABLE = "ProcessStreams"
"""Output of the program: it may print anything, and perfci keeps its own log."""

_ENVIRONMENT_NAMES = ("%ENVIRONMENT%", "%HOSTNAME%", "%COMMAND%LINE%", "%NICINFO%")
"""Rows of name-value tables that hold environments, host names and command lines, by name, upper case."""

_ASSIGNMENTS = re.compile(r"(?:^|\0)[A-Za-z_][A-Za-z0-9_]*=")
_EVENT_TABLES = ("NVTX_EVENTS", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER")


def looks_like_environment(text: str) -> bool:
    """Whether a string is a recorded environment: several ``NAME=value`` entries set apart by NUL bytes."""
    return "\0" in text and _ASSIGNMENTS.search(text) is not None


def replacements(*, checkout: Path, out_dir: Path, tool: Path | None) -> tuple[tuple[str, str], ...]:
    """(what, by what) for paths and names of this machine, longest first so that a folder goes before its parent."""
    pairs = {
        str(checkout): "<checkout>",
        str(checkout.resolve()): "<checkout>",
        str(out_dir): "<out>",
        str(out_dir.resolve()): "<out>",
        str(Path.home()): "<home>",
        socket.gethostname(): "<host>",
    }
    if tool is not None:
        pairs[str(tool.resolve().parents[1])] = "<nsys>"
    usable = {what: by for what, by in pairs.items() if len(what) > 3}  # never `/` or a host named `gpu`
    return tuple(sorted(usable.items(), key=lambda pair: -len(pair[0])))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _tables(database: sqlite3.Connection) -> list[str]:
    return [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]


def _columns(database: sqlite3.Connection, table: str) -> dict[str, str]:
    rows = database.execute(f"PRAGMA table_info({_quoted(table)})")
    return {row[1]: str(row[2]).upper() for row in rows}


def _drop_strangers(database: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Forget processes that are not part of the launch: nsys lists every process of the machine with its threads."""
    with_threads = [t for t in tables if t in _EVENT_TABLES and "globalTid" in _columns(database, t)]
    if not with_threads:
        return
    ours = " UNION ".join(f"SELECT globalTid & ~0xFFFFFF FROM {t}" for t in with_threads)  # noqa: S608  (own names)
    if "ThreadNames" in tables:
        database.execute(f"DELETE FROM ThreadNames WHERE globalTid & ~0xFFFFFF NOT IN ({ours})")  # noqa: S608
    if "PROCESSES" in tables:
        database.execute(f"DELETE FROM PROCESSES WHERE globalPid & ~0xFFFFFF NOT IN ({ours})")  # noqa: S608


def scrub_export(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Scrub the SQLite export at ``path`` in place. ``pairs`` as `replacements` gives them.

    What was deleted is overwritten, not only unlinked. MeasurementError when the file is no database.
    """
    try:
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA secure_delete = ON")
            database.execute("PRAGMA journal_mode = OFF")
            database.create_function("is_environment", 1, lambda text: int(looks_like_environment(str(text))))
            tables = _tables(database)
            if _OUTPUT_TABLE in tables:
                _drop_output(database)
                tables.remove(_OUTPUT_TABLE)
            _drop_strangers(database, tables)
            for table in tables:
                if table.startswith("ENUM_"):
                    continue
                _scrub_table(database, table, pairs)
            database.commit()
            database.execute("VACUUM")
    except sqlite3.DatabaseError as error:
        raise MeasurementError(
            f"the export {path} cannot be scrubbed: {error}", wanted="a SQLite export of nsys", todo=f"delete {path}"
        ) from error


def _drop_output(database: sqlite3.Connection) -> None:
    for column in {"filenameId", "contentId"} & set(_columns(database, _OUTPUT_TABLE)):
        database.execute(f"UPDATE StringIds SET value = '' WHERE id IN (SELECT {column} FROM {_OUTPUT_TABLE})")  # noqa: S608
    database.execute(f"DROP TABLE {_OUTPUT_TABLE}")


def _scrub_table(database: sqlite3.Connection, table: str, pairs: Sequence[tuple[str, str]]) -> None:
    columns = _columns(database, table)
    texts = [name for name, kind in columns.items() if kind in ("TEXT", "")]
    if "name" in columns and "value" in columns:
        for pattern in _ENVIRONMENT_NAMES:
            database.execute(f"DELETE FROM {_quoted(table)} WHERE upper(name) LIKE ?", (pattern,))  # noqa: S608
    for column in texts:
        name = _quoted(column)
        database.execute(
            f"UPDATE {_quoted(table)} SET {name} = '' "  # noqa: S608  (names from the schema, quoted)
            f"WHERE typeof({name}) = 'text' AND instr(CAST({name} AS BLOB), x'00') > 0 AND is_environment({name})"
        )
        for what, by in pairs:
            database.execute(
                f"UPDATE {_quoted(table)} SET {name} = replace({name}, ?, ?) "  # noqa: S608
                f"WHERE typeof({name}) = 'text' AND instr({name}, ?) > 0",
                (what, by, what),
            )


def scrub_text(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """Replace paths and names in a text file (a Chrome trace), line by line: it may be large."""
    scrubbed = path.with_name(f"{path.name}.part")
    with path.open(encoding="utf-8", errors="replace") as source, scrubbed.open("w", encoding="utf-8") as target:
        for line in source:
            text = line
            for what, by in pairs:
                text = text.replace(what, by)
            target.write(text)
    scrubbed.replace(path)
