"""What a log and a terminal show of long work. The alarm rings when the test says so."""

import io
import sys

import pytest

from perfci.cli.progress import QUIET_S, StderrProgress


class Alarms:
    """Alarms that were set, the last one on top."""

    def __init__(self):
        self.set = []

    def __call__(self, seconds, ring):
        assert seconds == QUIET_S
        self.set.append(self.Alarm(ring))
        return self.set[-1]

    class Alarm:
        daemon = False

        def __init__(self, ring):
            self.ring = ring
            self.state = "set"

        def start(self):
            assert self.daemon  # it must not keep the process from ending
            self.state = "started"

        def cancel(self):
            self.state = "cancelled"


def test_a_log_tells_a_status_only_after_silence(capsys):
    alarms = Alarms()
    progress = StderrProgress(alarms)
    progress.status("launch 1")
    assert capsys.readouterr().err == ""
    progress.line("launch 1 done")
    assert alarms.set[0].state == "cancelled"
    alarms.set[0].ring()  # it was about to: too late
    assert capsys.readouterr().err == "launch 1 done\n"
    progress.status("launch 2")
    assert alarms.set[1].state == "started"
    alarms.set[1].ring()
    alarms.set[1].ring()
    progress.line("launch 2 done")
    assert capsys.readouterr().err == "now: launch 2\nlaunch 2 done\n"


def test_a_newer_status_takes_the_place_of_the_older(capsys):
    alarms = Alarms()
    progress = StderrProgress(alarms)
    progress.status("a")
    progress.status("b")
    assert [alarm.state for alarm in alarms.set] == ["cancelled", "started"]
    alarms.set[1].ring()
    assert capsys.readouterr().err == "now: b\n"


def test_a_terminal_replaces_the_status(monkeypatch: pytest.MonkeyPatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    alarms = Alarms()
    progress = StderrProgress(alarms)
    progress.status("x" * 1000)
    progress.line("done")
    first, last = sys.stderr.getvalue().split("\r\x1b[2K")
    assert set(first) == {"x"}
    assert len(first) < 1000
    assert last == "done\n"
    assert alarms.set == []


def test_what_a_launch_printed_is_no_command_of_the_runner(capsys):
    StderrProgress(Alarms()).line("t: given up: failed\n    ::add-mask::e")
    assert capsys.readouterr().err == "t: given up: failed\n    : :add-mask::e\n"
