"""What must not stay in a stored export does not, and what the reader needs does."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perfci.capture.scrub import looks_like_environment, replacements, scrub_export
from perfci.errors import MeasurementError

OURS, STRANGER = 7 << 24, 9 << 24


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "trace.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            f"""
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
            INSERT INTO StringIds VALUES (1, 'forward'), (2, 'TOKEN=ghs_1' || char(0) || 'HOME=/home/u'),
              (3, 'see /srv/ci/checkout/log'), (4, 'printed a secret'), (5, 'volta_sgemm<a=b>'), (6, 'stranger thread');
            CREATE TABLE NVTX_EVENTS (start INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
            INSERT INTO NVTX_EVENTS VALUES (1, 'at /srv/ci/checkout', NULL, {OURS + 7}), (2, NULL, 1, {OURS + 7});
            CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
            INSERT INTO ProcessStreams VALUES ({OURS}, 3, 4);
            CREATE TABLE ThreadNames (nameId INTEGER, globalTid INTEGER);
            INSERT INTO ThreadNames VALUES (1, {OURS + 7}), (6, {STRANGER + 9});
            CREATE TABLE PROCESSES (globalPid INTEGER, name TEXT);
            INSERT INTO PROCESSES VALUES ({OURS}, 'python'), ({STRANGER}, 'payroll');
            CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT);
            INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES ('DeviceEnvironment', 'A=1' || char(0) || 'B=2'),
              ('Hostname', 'runner-7.corp'), ('CpuDescription', 'EPYC');
            CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
            INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_ENVIRONMENT_0', 'TOKEN=ghs_1'), ('CAPTURE_VERSION', '3');
            """
        )
    return path


def rows(path, query):
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def test_private_things_go_and_measured_ones_stay(export):
    pairs = (("/srv/ci/checkout", "<checkout>"),)
    scrub_export(export, pairs)
    content = export.read_bytes()
    for private in (b"ghs_1", b"printed a secret", b"payroll", b"runner-7", b"/srv/ci", b"HOME="):
        assert private not in content
    assert rows(export, "SELECT value FROM StringIds WHERE id IN (1, 5) ORDER BY id") == [
        ("forward",),
        ("volta_sgemm<a=b>",),
    ]
    assert rows(export, "SELECT text FROM NVTX_EVENTS WHERE start = 1") == [("at <checkout>",)]
    assert rows(export, "SELECT globalTid FROM ThreadNames") == [(OURS + 7,)]
    assert rows(export, "SELECT name FROM PROCESSES") == [("python",)]
    assert rows(export, "SELECT name FROM TARGET_INFO_SYSTEM_ENV") == [("CpuDescription",)]
    assert rows(export, "SELECT name FROM META_DATA_CAPTURE") == [("CAPTURE_VERSION",)]


def test_scrubbing_twice_changes_nothing_more(export):
    pairs = (("/srv/ci/checkout", "<checkout>"),)
    scrub_export(export, pairs)
    once = export.read_bytes()
    scrub_export(export, pairs)
    with closing(sqlite3.connect(export)) as database:
        again = list(database.iterdump())
    export.write_bytes(once)
    with closing(sqlite3.connect(export)) as database:
        assert list(database.iterdump()) == again


def test_a_file_that_is_no_database(tmp_path):
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"no database" * 200)
    with pytest.raises(MeasurementError, match="cannot be scrubbed"):
        scrub_export(path, ())


def test_what_counts_as_an_environment():
    assert looks_like_environment("A=1\0B=2")
    assert not looks_like_environment("void gemm<a=b>(int)")
    assert not looks_like_environment("a\0b")


def test_longer_paths_are_replaced_before_their_parents(tmp_path):
    pairs = replacements(checkout=tmp_path / "a", out_dir=tmp_path / "a" / "out", tool=None)
    names = [what for what, _ in pairs]
    assert names.index(str(tmp_path / "a" / "out")) < names.index(str(tmp_path / "a"))
    assert str(Path.home()) in names
    assert "/" not in names
