"""The lock against real processes: waiting, killing, other users."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from perfci.capture.lock import hold_machine, lock_directory
from perfci.errors import MeasurementError

GPU = "GPU-11111111-2222-3333-4444-555555555555"
OTHER = "GPU-99999999-2222-3333-4444-555555555555"

HOLDER = """
    import os, sys, time
    from pathlib import Path
    from perfci.capture.lock import hold_machine
    folder = Path(sys.argv[1])
    if len(sys.argv) > 3:
        with hold_machine([], job="load all modules: another user may not", say=print, directory=folder.parent):
            pass
        "".encode("ascii")
        os.setgid(int(sys.argv[3])); os.setuid(int(sys.argv[3])); os.umask(0o077)
    with hold_machine(sys.argv[2].split(), job="compare main..topic", say=print, timeout_s=30, directory=folder):
        print("held", flush=True)
        time.sleep(60)
"""


def holder(folder, *gpus, uid=None):
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLDER), str(folder), " ".join(gpus), *([str(uid)] if uid else [])],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


@pytest.fixture
def said():
    return []


def test_a_second_job_waits_and_names_the_holder(tmp_path, said):
    first = holder(tmp_path, GPU)
    with (
        pytest.raises(MeasurementError) as caught,
        hold_machine([GPU], job="nightly", say=said.append, timeout_s=0.3, directory=tmp_path),
    ):
        pytest.fail("two jobs on one GPU")
    for words in (f"pid {first.pid}", "compare main..topic", "since 20", "gave up after 0.3 s"):
        assert words in str(caught.value)
    assert len(said) == 1
    assert f"pid {first.pid}" in said[0]
    first.kill()
    first.wait()


def test_killing_the_holder_frees_the_lock_at_once_and_is_told(tmp_path, said):
    first = holder(tmp_path, GPU)
    first.kill()
    first.wait()
    started = time.monotonic()
    with hold_machine([GPU], job="b", say=said.append, directory=tmp_path) as died:
        assert [(h.pid, h.job) for h in died] == [(first.pid, "compare main..topic")]
    assert time.monotonic() - started < 1
    assert said == []
    with hold_machine([GPU], job="c", say=said.append, directory=tmp_path) as died:
        assert died == ()  # b let go properly


def test_a_waiting_job_gets_the_lock_when_the_holder_dies(tmp_path, said):
    first = holder(tmp_path, GPU)

    def say(message):
        said.append(message)
        first.kill()

    with hold_machine([GPU], job="b", say=say, timeout_s=30, directory=tmp_path):
        assert len(said) == 1
    first.wait()


def test_other_gpus_are_free_and_the_machine_lock_is_its_own(tmp_path, said):
    with (
        hold_machine([GPU], job="a", say=said.append, timeout_s=0, directory=tmp_path),
        hold_machine([OTHER], job="b", say=said.append, timeout_s=0, directory=tmp_path),
        hold_machine([], job="c", say=said.append, timeout_s=0, directory=tmp_path),
    ):
        with pytest.raises(MeasurementError, match="this machine is in use"):
            hold_machine([], job="d", say=said.append, timeout_s=0, directory=tmp_path).__enter__()
        with pytest.raises(MeasurementError, match="GPU GPU-11111111 is in use"):
            hold_machine([OTHER[:3], GPU], job="d", say=said.append, timeout_s=0, directory=tmp_path).__enter__()
        with hold_machine([OTHER[:3]], job="e", say=said.append, timeout_s=0, directory=tmp_path):
            pass  # the half that the failed attempt had taken was given back


def test_jobs_that_want_the_same_gpus_in_another_order_do_not_deadlock(tmp_path, said):
    script = textwrap.dedent(HOLDER).replace("time.sleep(60)", "time.sleep(0.05)")
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), gpus], stdout=subprocess.DEVNULL)
        for gpus in (f"{GPU} {OTHER}", f"{OTHER} {GPU}", f"{GPU} {OTHER} {GPU}")
    ]
    assert [process.wait(timeout=30) for process in started] == [0, 0, 0]


@pytest.mark.parametrize("note", ["", "{", "[]", '{"pid": "x"}', '{"pid": 1}', "\0" * 9000])
def test_a_broken_note_about_the_holder_harms_nothing(tmp_path, said, note):
    with hold_machine([], job="a", say=said.append, directory=tmp_path):
        (tmp_path / "perfci-machine.holder").write_text(note)
        with pytest.raises(MeasurementError, match="a process that left no name"):
            hold_machine([], job="b", say=said.append, timeout_s=0, directory=tmp_path).__enter__()
    with hold_machine([], job="c", say=said.append, directory=tmp_path) as died:
        assert died == ()


def test_control_characters_in_a_note_do_not_reach_the_terminal(tmp_path, said):
    note = {"pid": 1, "user": "u", "job": "\x1b[2J\n" + "x" * 999, "since": "s"}
    with hold_machine([], job="a", say=said.append, directory=tmp_path):
        (tmp_path / "perfci-machine.holder").write_text(json.dumps(note))
        with pytest.raises(MeasurementError) as caught:
            hold_machine([], job="b", say=said.append, timeout_s=0, directory=tmp_path).__enter__()
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_links_are_not_followed(tmp_path, said):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "perfci-machine.holder").symlink_to(victim)
    with hold_machine([], job="a", say=said.append, directory=tmp_path):
        pass
    (tmp_path / "perfci-machine.lock").unlink()
    (tmp_path / "perfci-machine.lock").symlink_to(victim)
    with pytest.raises(MeasurementError, match="cannot use the lock file"):
        hold_machine([], job="a", say=said.append, directory=tmp_path).__enter__()
    assert victim.read_text() == "precious"


def test_an_unusable_folder_is_a_clear_error(tmp_path, said):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for folder in ("file", "link", "file/below"):
        with pytest.raises(MeasurementError, match="PERFCI_LOCK_DIR"):
            hold_machine([], job="a", say=said.append, directory=tmp_path / folder).__enter__()


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become other users")
def test_two_users_share_a_lock(said):
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which is closed to other users
        Path(folder).chmod(0o755)
        _share(Path(folder) / "shared", said)


def _share(shared, said):
    Path(shared.parent).chmod(0o777)
    first = holder(shared, GPU, uid=23456)
    with pytest.raises(MeasurementError, match=f"pid {first.pid}"):
        hold_machine([GPU], job="root", say=said.append, timeout_s=0, directory=shared).__enter__()
    first.kill()
    first.wait()
    second = holder(shared, GPU, uid=23457)
    with pytest.raises(MeasurementError, match=f"pid {second.pid}"):
        hold_machine([GPU], job="root", say=said.append, timeout_s=0, directory=shared).__enter__()
    second.kill()
    second.wait()
    with hold_machine([GPU], job="root", say=said.append, directory=shared) as died:
        assert [h.pid for h in died] == [second.pid]


def test_the_folder_is_the_same_for_all_users(monkeypatch, tmp_path, said):
    monkeypatch.setenv("PERFCI_LOCK_DIR", str(tmp_path))
    assert lock_directory() == tmp_path / "perfci"
    with hold_machine([], job="a", say=said.append):
        assert lock_directory().stat().st_mode & 0o1777 == 0o777
    monkeypatch.delenv("PERFCI_LOCK_DIR")
    assert lock_directory().parent.stat().st_mode & 0o002
