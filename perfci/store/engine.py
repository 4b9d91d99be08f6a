"""Connections: from a database URL to an engine, and from what drivers raise to errors that say what to do."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from perfci.errors import BackendError, PerfciError, UsageError

CONNECT_TIMEOUT_S = 10
WRITES = "perfci_writes"
"""Execution option of connections that will write."""

_ELSEWHERE = "or name another database with --db"
_SECRET_OPTIONS = ("password", "passfile", "sslkey", "sslpassword")


@dataclass(frozen=True, slots=True, kw_only=True)
class Database:
    """An opened engine. ``name`` is the URL without secrets; ``file`` the SQLite file, None for servers and memory."""

    engine: Engine
    name: str
    file: Path | None = None
    read_only: bool = False


def connect(url: str, *, busy_timeout_s: float) -> Database:
    """An engine for the URL; touches the network only when it is used. A SQLite file's folder is created.

    UsageError for a URL that is none, another kind of database, or a missing driver; BackendError when the folder
    cannot be made.
    """
    if _is_sqlite(url):
        return _sqlite(url, busy_timeout_s)
    parsed = _parse(url)
    try:
        engine = create_engine(
            parsed,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "perfci"},
            pool_pre_ping=True,
        )
    except ModuleNotFoundError:
        raise UsageError(
            f"the driver for {redacted(parsed)} is not installed", todo="pip install 'perfci[postgres]'"
        ) from None
    return Database(engine=engine, name=redacted(parsed))


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, ValueError):
        # The text may hold a password in a place where nobody looks for it: it is not repeated.
        raise UsageError(
            "the database URL cannot be read",
            wanted="for example sqlite:///.perfci/perfci.db or postgresql+psycopg://user@host/perfci",
        ) from None
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise UsageError(
        f"perfci cannot use a database of kind {backend[:40]!r}",
        wanted="sqlite or postgresql",
        todo="see docs/store.md",
    )


def redacted(url: URL) -> str:
    """The URL without password and other secrets: safe for logs."""
    hidden = {key: "***" for key in url.query if key in _SECRET_OPTIONS}
    return url.update_query_dict(hidden).render_as_string(hide_password=True) if hidden else url.render_as_string()


def missing_file(url: str) -> Path | None:
    """The file of a SQLite URL that does not exist; None when it does, and for memory and servers. UsageError for a
    SQLite URL that is none."""
    file = _sqlite_file(url) if _is_sqlite(url) else None
    return None if file is None or file.exists() else file


def _is_sqlite(url: str) -> bool:
    return url.partition(":")[0] in ("sqlite", "sqlite+pysqlite")


def _sqlite_file(url: str) -> Path | None:
    """The file of a SQLite URL, None for a database in memory."""
    # The path is taken as it is written: SQLAlchemy 2.1 reads escapes in it, 2.0 does not.
    authority, _, path = url.partition("://")[2].partition("/")
    if "?" in path or authority:
        raise UsageError(
            "the URL is no address of a SQLite file",
            wanted="sqlite:///relative.db or sqlite:////absolute/path.db, without options",
        )
    return None if path in ("", ":memory:") else Path(path).absolute()


def _sqlite(url: str, busy_timeout_s: float) -> Database:
    file = _sqlite_file(url)
    if file is None:
        engine = create_engine("sqlite://")
        _configure_sqlite(engine, busy_timeout_s)
        return Database(engine=engine, name="sqlite://")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        read_only = file.exists() and not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK))
        is_folder = file.is_dir()
    except OSError as error:
        raise BackendError(
            f"cannot use the folder {file.parent} ({error.strerror})",
            todo=f"make it, or its parent, accessible and writable, {_ELSEWHERE}",
        ) from None
    if is_folder:
        raise UsageError(f"{file} is a folder", wanted="a database file")
    mode = "rwc"
    if read_only:
        log = file.with_name(file.name + "-wal")
        complete = not log.exists() or log.stat().st_size == 0
        # SQLite reads a WAL database only when it can write beside it, except when told that nobody else does.
        mode = "ro&immutable=1" if complete and not os.access(file.parent, os.W_OK) else "ro"
    address = f"file:{quote(os.fsencode(file))}?mode={mode}"

    def open_file() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=busy_timeout_s, check_same_thread=False)

    engine = create_engine(URL.create("sqlite", database=str(file)), creator=open_file)
    _configure_sqlite(engine, busy_timeout_s)
    return Database(engine=engine, name=f"sqlite:///{file}", file=file, read_only=read_only)


def _configure_sqlite(engine: Engine, busy_timeout_s: float) -> None:
    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        # Python's module would begin transactions late and not around CREATE TABLE; here SQLAlchemy begins them.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {int(busy_timeout_s * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A writer takes its lock at once: a reader that turns writer cannot wait for its turn, SQLite refuses it.
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def explained(database: Database) -> Iterator[None]:
    """Turn what SQLAlchemy and drivers raise inside into BackendError with what to do, without secrets."""
    try:
        yield
    except PerfciError:
        raise
    except DBAPIError as error:
        raise _explain(database, error.orig if error.orig is not None else error) from None
    except SQLAlchemyError as error:
        raise BackendError(f"the database {database.name} refuses: {_first_line(database, error)}") from None
    except sqlite3.Error as error:
        raise _explain(database, error) from None


@dataclass(frozen=True, slots=True)
class _Explanation:
    """What a message of a driver means: the first one of which a needle is in the message speaks."""

    needles: tuple[str, ...]
    said: str
    todo: str = ""


_SQLITE = (
    _Explanation(("locked", "busy"), "is locked by another process", "wait until it is done, then run again"),
    _Explanation(("readonly", "read-only"), "is read-only", f"make it writable, {_ELSEWHERE}"),
    _Explanation(("disk is full",), "has no space left; nothing was stored", "free some space, then run again"),
    _Explanation(
        ("disk i/o error",),
        "cannot be written or read (disk I/O error); nothing was stored",
        "look at free space, quotas and the health of the disk",
    ),
    _Explanation(
        ("not a database", "malformed", "encrypted"),
        "is not a SQLite database, or is damaged",
        f"restore it from a backup, {_ELSEWHERE}",
    ),
    _Explanation(("unable to open",), "cannot be opened", "look at the permissions of the file and of its folder"),
)
_SERVER = (
    _Explanation(("read-only transaction",), "is read-only", "ask for the right to write, or use the primary server"),
    _Explanation(("no space left",), "has no space left; nothing was stored", "free some space on the server"),
    _Explanation(("permission denied for",), "refuses", "give this user the right to create and use tables"),
    _Explanation(
        ("connect", "resolve", "timeout", "authentication", "closed"),
        "cannot be reached",
        "look at host, port, user and password in the URL, and at the server",
    ),
)


def _explain(database: Database, error: BaseException) -> BackendError:
    text = _first_line(database, error)
    for entry in _SQLITE if isinstance(error, sqlite3.Error) else _SERVER:
        if any(needle in text.lower() for needle in entry.needles):
            return BackendError(f"the database {database.name} {entry.said} ({text})", todo=entry.todo)
    return BackendError(f"the database {database.name} refuses ({text})")


def _first_line(database: Database, error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    text = lines[0][:300] if lines else type(error).__name__
    secrets = [database.engine.url.password, *(database.engine.url.query.get(key) for key in _SECRET_OPTIONS)]
    for secret in secrets:
        if isinstance(secret, str) and secret:
            text = text.replace(secret, "***")
    return text
