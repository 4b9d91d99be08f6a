"""Running a program and leaving nothing of it behind."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from perfci.capture.supervise import MARKER, end_left_over, supervise

ESCAPED = (
    "import os, time\n"
    "if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    if os.fork() == 0:\n"
    "        time.sleep(300)\n"
    "    os._exit(0)\n"
    "os.wait()\n"
    "print('parent ends', flush=True)\n"
)


@pytest.fixture
def run(tmp_path):
    def run(source, *, timeout_s=30.0, argv=None, **more):
        marker = uuid.uuid4().hex
        outcome = supervise(
            argv or [sys.executable, "-S", "-c", source],
            environment={"PATH": os.environ["PATH"]},
            directory=tmp_path,
            log_path=tmp_path / "log",
            timeout_s=timeout_s,
            marker=marker,
            **more,
        )
        assert living(marker) == []
        return outcome, (tmp_path / "log").read_bytes()

    return run


def living(marker):
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"{MARKER}={marker}".encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_what_a_killed_supervisor_launched_is_ended_in_its_folder_only(tmp_path):
    """Nobody else would: its time limit died with the supervisor, and the machine's lock is free."""
    marker = uuid.uuid4().hex
    folders = [tmp_path / "stale", tmp_path / "stale-but-another"]
    children = []
    for number, folder in enumerate(folders):
        folder.mkdir()
        daemon = "import os\nif os.fork() == 0:\n    os.setsid()\n    os.chdir('/')\nimport time; time.sleep(300)\n"
        environment = {"PATH": os.environ["PATH"], MARKER: f"{marker}-{number}"}
        command = [sys.executable, "-S", "-c", daemon]
        children.append(subprocess.Popen(command, cwd=folder, env=environment))
    while len(living(f"{marker}-0") + living(f"{marker}-1")) < 4:
        time.sleep(0.02)
    assert end_left_over(folders[0]) == 2
    children[0].wait(timeout=10)
    assert living(f"{marker}-0") == []
    assert len(living(f"{marker}-1")) == 2
    assert end_left_over(folders[1]) == 2
    children[1].wait(timeout=10)


def test_output_and_exit_code(run):
    outcome, log = run("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(7)")
    assert (outcome.exit_code, outcome.left_behind, outcome.dropped_bytes) == (7, 0, 0)
    assert log == b"out\nerr\n"
    assert outcome.duration_ns > 0


def test_a_signal_is_told(run):
    assert run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")[0].exit_code == -9


def test_a_program_that_ignores_sigterm_is_killed(run, monkeypatch):
    monkeypatch.setattr("perfci.capture.supervise._TERMINATE_S", 0.5)
    start = time.monotonic()
    outcome, log = run(
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(300)", timeout_s=1
    )
    assert outcome.exit_code is None
    assert log == b"on\n"
    assert time.monotonic() - start < 15


def test_a_child_that_left_the_session_is_found_by_its_marker(run, monkeypatch):
    monkeypatch.setattr("perfci.capture.supervise._LINGER_S", 0.5)
    outcome, log = run(ESCAPED)
    assert outcome.exit_code == 0
    assert outcome.left_behind == 1
    assert log == b"parent ends\n[perfci: processes that outlived the program: 1, ended]\n"


def test_the_log_keeps_head_and_tail(run, monkeypatch):
    monkeypatch.setattr("perfci.capture.supervise._HEAD_BYTES", 1000)
    monkeypatch.setattr("perfci.capture.supervise._TAIL_BYTES", 100)
    outcome, log = run("import sys\nfor i in range(50_000): sys.stdout.write(f'{i:07}\\n')")
    head, _, tail = log.partition(b"\n[perfci: ")
    assert head == b"".join(b"%07d\n" % i for i in range(125))
    assert tail.endswith(b"0049999\n")
    assert len(log) < 1000 + 100 + (64 << 10) + 100
    assert f"{outcome.dropped_bytes} bytes of output left out".encode() in log
    assert (
        len(log)
        - log.count(b"[perfci") * (len(f"\n[perfci: {outcome.dropped_bytes} bytes of output left out here]\n"))
        + (outcome.dropped_bytes)
        == 50_000 * 8
    )


def test_a_disk_that_is_full_does_not_stop_the_program(run, tmp_path):
    (tmp_path / "log").symlink_to("/dev/full")
    marker = uuid.uuid4().hex
    outcome = supervise(
        [sys.executable, "-S", "-c", "print('x' * 1_000_000)"],
        environment={},
        directory=tmp_path,
        log_path=tmp_path / "log",
        timeout_s=20,
        marker=marker,
    )
    assert outcome.exit_code == 0
    assert outcome.disk_full


def test_a_named_pipe_feeds_the_log_too(run, tmp_path):
    pipe = tmp_path / "pipe"
    outcome, log = run("", argv=["/bin/sh", "-c", f"echo direct; sh -c 'echo piped >{pipe}'"], output_pipe=pipe)
    assert outcome.exit_code == 0
    assert sorted(log.split()) == [b"direct", b"piped"]
    assert not pipe.exists()


def test_a_program_that_cannot_be_started(run, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        run("", argv=["/no/such/program"])
