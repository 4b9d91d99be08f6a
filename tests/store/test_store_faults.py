"""What breaks databases: many writers, killed writers, old and new schemas, no space, no right, no server."""

import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from stored_runs import commit, make_run

from perfci.errors import BackendError, ExitCode, UsageError
from perfci.store import schema
from perfci.store.engine import connect
from perfci.store.store import open_store
from perfci.store.tables import Base

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def start(job: Callable[..., object], *arguments: object) -> tuple[BaseProcess, Connection]:
    """Run a function in another process (forked: starting a new Python costs more than the test)."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        theirs.send(job(*arguments))

    process = context.Process(target=child)
    process.start()
    theirs.close()
    return process, ours


def finish(started: tuple[BaseProcess, Connection]) -> object:
    """What the function gave, or None when its process died."""
    process, answer = started
    try:
        result = answer.recv()
    except EOFError:
        result = None
    process.join(60)
    return result


def write_three_times(url: str, number: int) -> int:
    inserted = 0
    for turn in range(3):
        with open_store(url) as store:
            own = [make_run(1000 * number + 10 * turn + k) for k in (1, 2)]
            shared = make_run(turn, workload="shared", phase=f"p{turn}")  # all writers write this one
            inserted += store.add_runs([*own, shared])
    return inserted


def test_twelve_writers_at_once_on_a_database_that_none_of_them_found(url: str) -> None:
    writers = [start(write_three_times, url, number) for number in range(1, 13)]
    inserted = [finish(writer) for writer in writers]
    assert sum(inserted) == 12 * 3 * 2 + 3  # each shared run is counted by exactly one writer
    with open_store(url) as store:
        assert len(store.history("gpt", "step", "wall_ns")) == 12 * 3 * 2
        assert len(store.history("shared", "step", "wall_ns")) == 3


def write_until_killed(url: str) -> None:
    with open_store(url) as store:
        seen = []

        @event.listens_for(Engine, "after_cursor_execute")
        def kill(connection, cursor, statement, *rest) -> None:
            seen.append("INSERT INTO samples" in statement)
            if sum(seen) == 2:  # one run is complete, the second one has its samples, nothing is committed
                os.kill(os.getpid(), signal.SIGKILL)

        store.add_runs([make_run(n) for n in range(4)])


def test_a_writer_killed_in_the_middle_leaves_nothing(url: str) -> None:
    with open_store(url) as store:
        store.add_runs([make_run(99)])
    killed = start(write_until_killed, url)
    finish(killed)
    assert killed[0].exitcode == -signal.SIGKILL
    with open_store(url) as store:
        assert [p.label for p in store.history("gpt", "step", "wall_ns")] == ["r99"]
        assert store.add_runs([make_run(n) for n in range(4)]) == 4
    if url.startswith("sqlite"):
        with sqlite3.connect(make_url(url).database) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_an_error_in_the_middle_of_a_transaction_leaves_nothing(url: str, monkeypatch) -> None:
    with open_store(url) as store:
        before, calls = store._add_run, []

        def fails(connection, packed, series):
            calls.append(packed)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return before(connection, packed, series)

        monkeypatch.setattr(store, "_add_run", fails)
        with pytest.raises(KeyboardInterrupt):
            store.add_runs([make_run(1), make_run(2)])
        monkeypatch.undo()
        assert store.workloads() == ()
        assert store.add_runs([make_run(1)]) == 1


# Schema


def test_migrations_and_tables_say_the_same(url: str) -> None:
    with open_store(url) as store, store._database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "version_table": schema.VERSION_TABLE}
        )
        assert compare_metadata(context, Base.metadata) == []


def test_migrations_form_one_line() -> None:
    script = schema.migrations()
    line = [step.revision for step in script.walk_revisions()]
    assert line == sorted(line, reverse=True)
    assert len(script.get_heads()) == 1


def downgrade_to_first(url: str) -> None:
    """Make the database what the first version of perfci would have left: migrated to 0001 only, with a run."""
    from alembic import command  # noqa: PLC0415

    database = connect(url, busy_timeout_s=5)
    with database.engine.connect() as connection, connection.begin():
        config = schema._config()
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    database.engine.dispose()


def test_an_older_database_is_migrated_after_a_copy_and_keeps_its_data(url: str, tmp_path: Path) -> None:
    downgrade_to_first(url)
    old_insert = "INSERT INTO environments (id, key_hash, entries) VALUES ('e', 'k', '[]')"
    database = connect(url, busy_timeout_s=5)
    with database.engine.begin() as connection:
        connection.execute(text(old_insert))
    database.engine.dispose()
    with open_store(url) as store:
        assert store.comparisons() == ()
        assert store.add_runs([make_run(1)]) == 1
    with open_store(url) as store, store._database.engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM environments")).scalar() == 2
    if url.startswith("sqlite"):
        (copy,) = tmp_path.glob("perfci.db.0001*.bak")
        with sqlite3.connect(copy) as connection:
            assert connection.execute("SELECT id FROM environments").fetchall() == [("e",)]
            assert connection.execute("SELECT name FROM sqlite_master WHERE name = 'comparisons'").fetchall() == []
    assert len(list(tmp_path.glob("*.bak"))) <= 1  # an up-to-date database is not copied again


def test_a_migration_that_fails_changes_nothing(url: str, monkeypatch) -> None:
    downgrade_to_first(url)
    from perfci.store.migrations.versions import v0002_decisions  # noqa: PLC0415

    real = schema.command.upgrade

    def breaks(config, target):
        real(config, target)
        raise BackendError("the power fails before the commit")

    monkeypatch.setattr(schema.command, "upgrade", breaks)
    with pytest.raises(BackendError, match="power"):
        open_store(url)
    monkeypatch.undo()
    database = connect(url, busy_timeout_s=5)
    with database.engine.connect() as connection:
        assert schema._version(connection) == v0002_decisions.down_revision
    database.engine.dispose()
    open_store(url).close()


def test_a_newer_database_is_refused_and_left_alone(url: str) -> None:
    open_store(url).close()
    database = connect(url, busy_timeout_s=5)
    with database.engine.begin() as connection:
        connection.execute(text(f"UPDATE {schema.VERSION_TABLE} SET version_num = '9041'"))
    with pytest.raises(BackendError, match="9041, which is newer than this perfci") as caught:
        open_store(url)
    assert caught.value.exit_code is ExitCode.BACKEND
    with pytest.raises(BackendError, match="9041, which is newer than this perfci"):
        schema.look_at(url)
    with database.engine.connect() as connection:
        assert connection.execute(text(f"SELECT version_num FROM {schema.VERSION_TABLE}")).scalar() == "9041"
    database.engine.dispose()


# Files


READER = f"""
import sys
sys.path[:0] = [{str(HERE)!r}, {str(ROOT)!r}]
from perfci.errors import PerfciError
from perfci.store.store import open_store
from stored_runs import make_run
try:
    with open_store(sys.argv[1]) as store:
        print(store.read_only, [p.label for p in store.history("gpt", "step", "wall_ns")])
        store.add_runs([make_run(2)])
except PerfciError as error:
    print(int(error.exit_code), error)
"""


def read_bound_by_permissions(url: str) -> str:
    """What READER says in a process that file permissions bind, also when the tests run as root."""
    command = [sys.executable, "-c", READER, url]
    if os.getuid() == 0:
        bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
        if not shutil.which("setpriv") or subprocess.run([*bound, "true"], check=False).returncode:
            pytest.skip("permissions do not bind root, and its capabilities cannot be taken away here")
        command = [*bound, *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def public_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose permissions are put back at the end."""
    yield tmp_path
    tmp_path.chmod(0o755)


@pytest.mark.parametrize("folder_mode", [0o555, 0o777])
def test_a_read_only_file_can_be_read(public_folder: Path, folder_mode: int) -> None:
    file = public_folder / "perfci ü#%20%.db"  # taken as it is, without escapes
    url = f"sqlite:///{file}"
    with open_store(url) as store:
        store.add_runs([make_run(1)])
    assert file.exists()
    file.chmod(0o444)
    public_folder.chmod(folder_mode)
    out = read_bound_by_permissions(url)
    assert out.startswith("True ['r1']\n6 the database ")
    assert "read-only" in out


def test_a_read_only_file_with_an_unfinished_log_is_not_read_without_it(public_folder: Path) -> None:
    file = public_folder / "perfci.db"
    with open_store(f"sqlite:///{file}") as store:
        store.add_runs([make_run(1)])
        copy = public_folder / "copy.db"  # what a backup by `cp` of a database in use looks like
        for name in ("", "-wal"):
            shutil.copy(f"{file}{name}", f"{copy}{name}")
    Path(f"{copy}-wal").chmod(0o444)
    copy.chmod(0o444)
    public_folder.chmod(0o555)
    out = read_bound_by_permissions(f"sqlite:///{copy}")
    assert out.startswith(f"6 the database sqlite:///{copy} cannot be opened"), out
    assert "permissions of the file and of its folder" in out


def test_no_permission_at_all(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    out = read_bound_by_permissions(f"sqlite:///{public_folder}/new/perfci.db")
    assert out.startswith("6 cannot use the folder")
    locked = public_folder.parent / "locked"
    locked.mkdir(mode=0)
    out = read_bound_by_permissions(f"sqlite:///{locked}/perfci.db")
    assert out.startswith("6 cannot use the folder"), out
    out = read_bound_by_permissions(f"sqlite:///{public_folder}/perfci.db")
    assert out.startswith("6 the database")
    assert "permissions" in out


def write_beyond_the_quota(url: str) -> tuple[int, str, int]:
    stored = 0
    with open_store(url) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))  # writes beyond fail
        try:
            for number in range(100):
                stored += store.add_runs([make_run(1000 * number + k) for k in range(20)])
        except BackendError as error:
            return int(error.exit_code), str(error), stored
    return 0, "", stored


def test_a_full_disk_is_said_and_loses_nothing_that_was_stored(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/perfci.db"
    code, said, stored = finish(start(write_beyond_the_quota, url))
    assert code == 6
    assert said.startswith(f"the database {url} ")
    assert "nothing was stored" in said
    assert stored > 0
    with open_store(url) as store:
        assert len(store.history("gpt", "step", "wall_ns")) == stored
        assert store.add_runs([make_run(10**6)]) == 1


def test_no_space_left_is_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/perfci.db"
    with open_store(url) as store:
        store.add_runs([make_run(0)])
        with store._database.engine.connect() as connection:  # the pool gives this connection again
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BackendError, match="no space left; nothing was stored") as caught:
            store.add_runs([make_run(n) for n in range(1, 300)])
        assert "free some space" in caught.value.todo
        assert len(store.history("gpt", "step", "wall_ns")) == 1


def test_a_locked_database_is_said_after_the_timeout(tmp_path: Path) -> None:
    file = tmp_path / "perfci.db"
    url = f"sqlite:///{file}"
    with open_store(url, busy_timeout_s=0.1) as store:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert store.workloads() == ()  # readers do not wait for a writer
        with pytest.raises(BackendError, match="locked by another process"):
            store.add_runs([make_run(1)])
        other.execute("ROLLBACK")
        other.close()
        assert store.add_runs([make_run(1)]) == 1


@pytest.mark.parametrize(
    ("content", "error", "why"),
    [
        (b"this is a text file and no database" * 50, BackendError, "not a SQLite database"),
        (b"SQLite format 3\x00" + b"\x10\x00\x01\x01\x00" + b"\xff" * 4000, BackendError, "damaged|refuses|not a"),
    ],
)
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes, error: type, why: str) -> None:
    file = tmp_path / "x.db"
    file.write_bytes(content)
    with pytest.raises(error, match=why):
        open_store(f"sqlite:///{file}")
    assert file.read_bytes() == content


def test_a_database_cut_in_the_middle(tmp_path: Path) -> None:
    file = tmp_path / "perfci.db"
    with open_store(f"sqlite:///{file}") as store:
        store.add_runs([make_run(n) for n in range(50)])
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])

    def read_all() -> None:
        with open_store(f"sqlite:///{file}") as store:
            for n in range(50):
                store.runs("gpt", commit(n))

    with pytest.raises(BackendError, match="damaged"):
        read_all()


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "export.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    before = file.read_bytes()
    with pytest.raises(UsageError, match=r"another program .* 'StringIds'"):
        open_store(f"sqlite:///{file}")
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("StringIds",)]
    assert len(before) == file.stat().st_size


def test_a_server_may_be_shared_unless_names_collide(postgres_url: str) -> None:
    database = connect(postgres_url, busy_timeout_s=5)
    with database.engine.begin() as connection:
        connection.execute(text("CREATE TABLE alembic_version (version_num TEXT)"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('of another program')"))
    open_store(postgres_url).close()
    with database.engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {schema.VERSION_TABLE}"))
    database.engine.dispose()
    with pytest.raises(UsageError, match="another program"):
        open_store(postgres_url)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(BackendError, match="cannot use the folder"):
        open_store(f"sqlite:///{tmp_path}/x/perfci.db")


def test_a_folder_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        open_store(f"sqlite:///{tmp_path}")


def test_a_damaged_document_is_said(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/perfci.db"
    with open_store(url) as store:
        store.add_runs([make_run(1)])
        with create_engine(url).begin() as connection:
            connection.execute(text("UPDATE runs SET document = x'00'"))
        with pytest.raises(BackendError, match="damaged document"):
            store.runs("gpt", commit(1))


# Servers and URLs


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:s3cr3t@127.0.0.1:1/perfci",
        "postgresql+psycopg://ada:s3cr3t@127.0.0.1:1/perfci?application_name=x",
        "postgresql://ada@127.0.0.1:1/perfci?password=s3cr3t",
        "postgresql://ada:s3cr3t@no-such-host.invalid/perfci",
        "postgres://ada:s3cr3t@127.0.0.1:1/perfci",
    ],
)
def test_an_unreachable_server_is_said_without_the_password(url: str) -> None:
    with pytest.raises(BackendError, match="cannot be reached") as caught:
        open_store(url)
    assert "s3cr3t" not in str(caught.value)
    assert "ada" in str(caught.value)
    assert caught.value.exit_code is ExitCode.BACKEND


def test_a_database_that_the_server_does_not_have(postgres_server: str) -> None:
    with pytest.raises(BackendError, match="does not exist"):
        open_store(f"postgresql://perfci@/nobody?host={postgres_server}")


def test_a_server_that_goes_away_in_between(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        with create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg")).connect() as admin:
            others = "pid <> pg_backend_pid() AND datname = current_database()"
            admin.execute(text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"))
        assert store.add_runs([make_run(1)]) == 1  # the pool notices and connects again


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("mysql://ada:s3cr3t@host/db", "cannot use a database of kind 'mysql'"),
        ("not a url", "cannot be read"),
        ("postgresql://ada:s3cr3t@host:port/db", "cannot be read"),
        ("sqlite:///x.db?mode=ro", "no address of a SQLite file"),
        ("sqlite://x.db", "no address of a SQLite file"),
        ("oracle://ada:s3cr3t@host/db", "cannot use a database of kind 'oracle'"),
        ("", "cannot be read"),
    ],
)
def test_a_wrong_url_is_a_usage_error_without_the_password(url: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        open_store(url)
    assert "s3cr3t" not in str(caught.value)
