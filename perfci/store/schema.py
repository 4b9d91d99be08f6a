"""The schema of a database: which version it has, and bringing it to this program's version when it is opened."""

import sqlite3
import time
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, inspect, select

from perfci.errors import BackendError, UsageError
from perfci.store.engine import WRITES, Database, connect, explained
from perfci.store.tables import Base

VERSION_TABLE = "perfci_schema_version"
"""Own name, so that the database may be shared with another program that uses Alembic."""

_LOCK = 0x7065726663
"""Number of the PostgreSQL advisory lock under which one process migrates."""
_WAL_ATTEMPTS = 50


def migrations() -> ScriptDirectory:
    """The migrations inside the package."""
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    return config


def prepare(database: Database) -> None:
    """Check the version, create the tables of an empty database, migrate an older one.

    A SQLite file is copied beside itself before it is migrated (``NAME.VERSION.bak``). BackendError for a database that
    is newer than this program, or older and read-only; UsageError for a database of another program.
    """
    head = migrations().get_current_head()
    with database.engine.connect() as connection:
        version = _version(connection)
    if version == head:
        return
    if database.read_only:
        if version is not None:
            _refuse_unknown(database, version)
        raise BackendError(
            f"the database {database.name} is read-only and "
            + ("empty" if version is None else f"has the older schema {version}, wanted {head}"),
            todo="open it once where it can be written",
        )
    if database.file is not None:
        _write_ahead(database.file)
    with database.engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        version = _version(connection)  # another process may have been faster
        if version == head:
            return
        if version is None:
            _refuse_foreign(database, connection)
        else:
            _refuse_unknown(database, version)
            if database.file is not None:
                _back_up(database.file, version)
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def look_at(url: str, *, busy_timeout_s: float = 5.0) -> str:
    """Whether a database (for SQLite: a file that exists) can be used, in words. Changes nothing; raises what
    ``open_store`` raises for one that cannot."""
    database = connect(url, busy_timeout_s=busy_timeout_s)
    try:
        with explained(database), database.engine.connect() as connection:
            version = _version(connection)
            if version is None:
                _refuse_foreign(database, connection)
            else:
                _refuse_unknown(database, version)
    finally:
        database.engine.dispose()
    if version is None:
        return f"{database.name} is empty"
    return f"{database.name} has schema {version}"


def _version(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _refuse_unknown(database: Database, version: str) -> None:
    known = {script.revision for script in migrations().walk_revisions()}
    if version not in known:
        raise BackendError(
            f"the database {database.name} has schema {version[:40]}, which is newer than this perfci "
            f"(it knows up to {migrations().get_current_head()})",
            todo="update perfci, or name another database with --db",
        )


def _refuse_foreign(database: Database, connection: Connection) -> None:
    present = set(inspect(connection).get_table_names())
    ours = set(Base.metadata.tables)
    # A server's schema may be shared with other programs as long as the names differ; a file is one program's own.
    foreign = present if database.file is not None else present & ours
    if foreign:
        raise UsageError(
            f"{database.name} is a database of another program (it has a table {min(foreign)[:60]!r})",
            wanted="an empty database or one made by perfci",
            todo="name another database with --db; a trace is read with `perfci import`",
        )


def _write_ahead(file: Path) -> None:
    """Switch to write-ahead logging, so that readers and a writer do not wait for each other. Where the file system
    cannot do it, SQLite stays as it is and the database still works.

    SQLite does not wait for its turn here, whatever the busy timeout, so this tries again.
    """
    for attempt in range(_WAL_ATTEMPTS):
        connection = sqlite3.connect(file, timeout=1, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or attempt == _WAL_ATTEMPTS - 1:
                raise
            time.sleep(0.02)
        else:
            return
        finally:
            connection.close()


def _back_up(file: Path, version: str) -> None:
    copy = file.with_name(f"{file.name}.{version}.bak")
    number = 1
    while copy.exists():
        number += 1
        copy = file.with_name(f"{file.name}.{version}.{number}.bak")
    source = sqlite3.connect(file)
    target = sqlite3.connect(copy)
    try:
        source.backup(target)
    finally:
        target.close()
        source.close()
