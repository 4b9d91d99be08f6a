"""The scrubbing tool lets through events and what they refer to, and nothing else."""

import gzip
import importlib.util
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from nsys_builder import training

from perfci.trace.extract import extract

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "scrub_trace.py"
_spec = importlib.util.spec_from_file_location("scrub_trace", SCRIPT)
scrub_trace = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(scrub_trace)

SECRET = "GITHUB_TOKEN=ghp_0123456789"


def private_export(tmp_path):
    export = training()
    export.string(f"HOME=/root\x00{SECRET}")
    export.name_thread((99, 99), "secret-daemon")
    export.add("PROCESSES", globalPid=(1 << 48) | (7 << 24), pid=7, name="/home/ada/venv/bin/python3")
    export.add("PROCESSES", globalPid=(1 << 48) | (99 << 24), pid=99, name="/usr/bin/secret-daemon")
    export.add("META_DATA_EXPORT", name="EXPORT_HOST", value="runner-17.example.org")
    export.add("DIAGNOSTIC_EVENT", text="see /home/ada/log")
    export.add("TARGET_INFO_GPU", id=0, name="NVIDIA H200")
    path = export.write(tmp_path / "in.sqlite")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (name TEXT, value TEXT)")
        rows = [("Hostname", "runner-17"), ("NvDriverVersion", "580.1")]
        database.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?)", rows)
        database.execute("CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)")
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT', ?)", (SECRET,))
        database.commit()
    return path


def run(source, target):
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(source), str(target)], capture_output=True, text=True, check=False
    )


def test_nothing_private_is_left_and_the_numbers_are_the_same(tmp_path):
    source, target = private_export(tmp_path), tmp_path / "out.sqlite.gz"
    assert run(source, target).returncode == 0
    content = gzip.decompress(target.read_bytes())
    for word in (b"ghp_", b"runner-17", b"home/ada", b"secret-daemon", b"HOME="):
        assert word in source.read_bytes()
        assert word not in content
    before, after = extract([source]), extract([target])
    assert before == after
    assert after.trace.driver == "580.1"


def test_text_that_looks_private_stops_the_tool(tmp_path):
    export = training()
    export.mark("load /home/ada/data", 1010, 1020)
    source, target = export.write(tmp_path / "in.sqlite"), tmp_path / "out.sqlite.gz"
    done = run(source, target)
    assert done.returncode == 1
    assert "/home/ada/data" in done.stderr
    assert not target.exists()


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "traces").glob("*.sqlite.gz")), ids=lambda p: p.name)
def test_recorded_exports_are_scrubbed(path, tmp_path):
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    assert list(scrub_trace.suspicious(plain)) == []
    with closing(sqlite3.connect(plain)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
    assert not tables & {"META_DATA_CAPTURE", "ProcessStreams", "ANALYSIS_DETAILS", "DIAGNOSTIC_EVENT"}
