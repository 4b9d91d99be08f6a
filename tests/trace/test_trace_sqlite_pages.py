"""Decoding pages against SQLite itself: equal, or refused so that SQLite reads the table."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfci.trace.sqlite_pages import Place, UnsupportedTableError, coded, read_integers

EDGES = [
    0,
    1,
    -1,
    127,
    128,
    -128,
    -129,
    2**15,
    -(2**15) - 1,
    2**23,
    2**31,
    -(2**31) - 1,
    2**47,
    2**47 - 1,
    2**63 - 1,
    -(2**63),
]
integers = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1) | st.none()


def table(path, rows, *, columns="a, b, c, d", page=4096, extra=""):
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA page_size = {page}")
        database.execute("PRAGMA synchronous = OFF")
        database.execute(f"CREATE TABLE t ({columns}) {extra}")
        if rows:
            database.executemany(f"INSERT INTO t VALUES ({','.join('?' * len(rows[0]))})", rows)
        database.commit()
    return path


def root_of(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT rootpage FROM sqlite_master WHERE name = 't'").fetchone()[0]


def by_sqlite(path, null=-7):
    with closing(sqlite3.connect(path)) as database:
        return [
            list(r)
            for r in zip(*database.execute(f"SELECT coalesce(a,{null}), coalesce(c,{null}) FROM t"), strict=True)
        ]


PLACES = [Place(index=0, null=-7), Place(index=2, null=-7)]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        # Below 58 bytes in the second column: longer texts before a wanted column are refused.
        st.tuples(integers, st.one_of(integers, st.text(max_size=14)), integers, st.text(max_size=90)),
        max_size=90,
    ),
    st.sampled_from([512, 1024, 4096]),
    st.sets(st.integers(1, 90)),
)
def test_any_rows_are_read_as_sqlite_reads_them(rows, page, deleted):
    with tempfile.TemporaryDirectory() as folder:
        path = table(Path(folder) / "t.sqlite", rows, page=page)
        with closing(sqlite3.connect(path)) as database:
            database.executemany("DELETE FROM t WHERE rowid = ?", [(at,) for at in deleted])
            database.commit()
        found = [column.tolist() for column in read_integers(path, root_of(path), PLACES)]
        assert found == (by_sqlite(path) or [[], []])
        in_code = read_integers(path, root_of(path), [Place(index=0, null=-7, coded=True)])[0]
        assert in_code.decoded().tolist() == found[0]


def test_many_rows_need_several_levels_of_pages(tmp_path):
    rows = [(at * 3, None, at * at * at, "x" * (at % 50)) for at in range(60_000)]
    path = table(tmp_path / "t.sqlite", rows, page=512)
    found = [column.tolist() for column in read_integers(path, root_of(path), PLACES)]
    assert found == by_sqlite(path)


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 2, 3.5, "")],
        [(1, 2, "three", "")],
        [(1, "x" * 100, 3, "")],
        [(1, 2, 3, "x" * 10_000)],
        [(1, 2, b"three", "")],
    ],
)
def test_what_is_not_handled_is_refused(rows, tmp_path):
    path = table(tmp_path / "t.sqlite", rows)
    with pytest.raises(UnsupportedTableError):
        read_integers(path, root_of(path), PLACES)


def test_null_where_a_value_must_be_is_refused(tmp_path):
    path = table(tmp_path / "t.sqlite", [(None, 1, 2, "")])
    with pytest.raises(UnsupportedTableError, match="NULL"):
        read_integers(path, root_of(path), [Place(index=0, null=None)])


def test_a_write_ahead_log_is_refused(tmp_path):
    path = table(tmp_path / "t.sqlite", [(1, 2, 3, "")])
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("INSERT INTO t VALUES (4, 5, 6, '')")
        database.commit()
    with pytest.raises(UnsupportedTableError):
        read_integers(path, 2, PLACES)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_never_crashes(data):
    with tempfile.TemporaryDirectory() as folder:
        path = table(Path(folder) / "t.sqlite", [(at, at, at * 1000, "xyz") for at in range(300)], page=512)
        root = root_of(path)
        content = bytearray(path.read_bytes())
        for _ in range(data.draw(st.integers(1, 20))):
            content[data.draw(st.integers(512, len(content) - 1))] = data.draw(st.integers(0, 255))
        path.write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) - 700]))])
        try:
            columns = read_integers(path, root, PLACES)
        except UnsupportedTableError:
            return
        assert len({len(column) for column in columns}) == 1


def test_coded_columns():
    column = np.array([5, -1, 5, 9], dtype=np.int64)
    assert coded(column).decoded().tolist() == column.tolist()
    assert coded(column).mapped(np.array([7, 8, 9], dtype=np.int32)).tolist() == [8, 7, 8, 9]
