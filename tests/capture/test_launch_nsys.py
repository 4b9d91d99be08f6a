"""One launch under the real nsys: what a good one leaves, and what every way of failing says."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

import perfci.capture.launch as launch_module
from perfci.capture.export import export_sqlite
from perfci.capture.nsys import NsysTool
from perfci.errors import ExitCode, MeasurementError

pytestmark = [pytest.mark.nsys, pytest.mark.usefixtures("nsys")]

GOOD = """
import time
from perfci import phases
for i in phases.loop(range(1000)):
    with phases.phase("forward"):
        time.sleep(0.001)
    phases.log_loss(1.0 / (1 + i))
    phases.samples(4)
"""
LOOP = "from perfci import phases\nfor i in phases.loop(range(1000)):\n    "


def ranges(export):
    with closing(sqlite3.connect(export)) as database:
        rows = database.execute(
            "SELECT coalesce(text, value), count(*) FROM NVTX_EVENTS LEFT JOIN StringIds ON id = textId GROUP BY 1"
        )
        return dict(rows.fetchall())


def processes_with(text):
    """Living processes whose environment holds ``text``."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                if text.encode() in (folder / "environ").read_bytes():
                    found.append(folder.name)
            except OSError:
                continue
    return found


def failure(measure, source, **more):
    with pytest.raises(MeasurementError) as caught:
        measure(source, **more)
    error = caught.value
    assert error.exit_code == ExitCode.MEASUREMENT
    assert error.todo
    return error


def test_a_good_launch_leaves_exactly_the_asked_steps(measure, nsys, tmp_path, monkeypatch):
    """The program's Python has neither perfci nor nvtx: both are lent, nothing else is, and no secret gets in."""
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_planted")
    monkeypatch.setenv("WANDB_API_KEY", "key_planted")
    monkeypatch.setenv("UNLISTED", "unlisted_planted")
    monkeypatch.setenv("LISTED", "listed-value")
    check = "import os, sys\nassert os.environ['LISTED'] == 'listed-value' and os.environ['OWN'] == 'own-value'\n"
    check += f"assert not any(folder.startswith({sys.prefix!r}) for folder in sys.path), 'perfci leaked its packages'\n"
    launched = measure(check + GOOD, tool=nsys, allow=["LISTED", "WANDB_*"], environment=[("OWN", "own-value")])
    (export,) = launched.trace_paths
    assert ranges(export) == {"perfci_capture": 1, "step": 5, "data": 5, "forward": 5}
    (sidecar,) = launched.sidecars
    assert (len(sidecar.wall.step_wall_ns), len(sidecar.capture.step_wall_ns)) == (2, 5)
    assert sidecar.marks == "nvtx"
    assert sidecar.wall.sample_count == 8
    assert min(sidecar.wall.step_wall_ns) >= 1_000_000
    assert launched.duration_ns > 0
    assert launched.started_at.tzinfo is not None
    kept = {path.name for path in launched.log_path.parent.iterdir()}
    assert kept == {"launch.log", "report.nsys-rep", "sidecar.json", "trace.sqlite"}
    for file in (launched.report_path, export):
        content = file.read_bytes()
        assert b"planted" not in content
    scrubbed = export.read_bytes()
    for private in (str(tmp_path), str(Path.home()), "listed-value", "own-value"):
        assert private.encode() not in scrubbed


def test_other_processes_of_the_machine_stay_out_of_the_export(measure, nsys):
    with subprocess.Popen(["sleep", "60"], executable="/bin/sleep") as stranger:
        try:
            (export,) = measure(GOOD, tool=nsys).trace_paths
        finally:
            stranger.kill()
    with closing(sqlite3.connect(export)) as database:
        tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master")}
        names = [row[0] for row in database.execute("SELECT name FROM PROCESSES")] if "PROCESSES" in tables else []
        threads = database.execute("SELECT count(DISTINCT globalTid & ~0xFFFFFF) FROM ThreadNames").fetchone()[0]
    assert len(names) <= 1
    assert threads == 1


def test_a_workload_without_a_loop_never_reaches_the_window(measure, nsys):
    error = failure(measure, "print('trained')", tool=nsys)
    assert "never entered phases.loop" in error.seen
    assert "launch.log" in error.seen
    assert "trained" in error.seen


def test_a_capture_that_ends_before_the_asked_steps(measure, nsys):
    error = failure(measure, GOOD.replace("range(1000)", "range(4), warmup=0"), tool=nsys)
    assert "before the asked steps: the data ended after 2 of 5 capture steps" in error.seen
    assert "5 capture steps" in error.wanted


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("import os; os.abort()", "SIGABRT"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("raise RuntimeError('CUDA out of memory')", "RuntimeError: CUDA out of memory"),
    ],
    ids=["signal", "exit code", "exception"],
)
def test_a_workload_that_crashes(measure, nsys, body, told):
    error = failure(measure, LOOP + body, tool=nsys)
    assert told in error.seen
    assert "the workload failed with" in error.seen


def test_a_good_capture_does_not_hide_a_crash_after_it(measure, nsys):
    error = failure(measure, GOOD + "\nraise SystemExit(9)", tool=nsys)
    assert "exit code 9" in error.seen


def test_a_workload_that_hangs_is_ended_with_all_its_children(measure, nsys, monkeypatch):
    source = "import subprocess, time\nsubprocess.Popen(['sleep', '500'])\n" + LOOP + "time.sleep(500)"
    monkeypatch.setenv("CUDA_HANG_TEST", "perfci-hang-1")
    start = time.monotonic()
    error = failure(measure, source, tool=nsys, timeout_s=6)
    assert time.monotonic() - start < 40
    assert "ended after 6 s" in error.seen
    assert not [p for p in processes_with("CUDA_HANG_TEST=perfci-hang-1") if p != str(os.getpid())]
    listed = subprocess.run([nsys.path, "sessions", "list"], capture_output=True, text=True, check=False).stdout
    assert "program" not in listed
    assert "python" not in listed


def test_a_daemon_that_the_workload_leaves_behind_holds_nothing_up(measure, nsys, monkeypatch):
    monkeypatch.setenv("CUDA_DAEMON_TEST", "perfci-daemon-1")
    source = "import subprocess\nsubprocess.Popen(['sleep', '500'], start_new_session=True)\n" + GOOD
    start = time.monotonic()
    launched = measure(source, tool=nsys)
    assert time.monotonic() - start < 45
    assert ranges(launched.trace_paths[0])["step"] == 5
    assert processes_with("CUDA_DAEMON_TEST=perfci-daemon-1") == []


def test_forked_children_do_not_disturb(measure, nsys):
    source = GOOD.replace(
        "    with",
        "    import os\n"
        "    if os.fork() == 0:\n"
        "        with phases.phase('decode'): os._exit(0)\n"
        "    os.wait()\n"
        "    with",
    )
    found = ranges(measure(source, tool=nsys).trace_paths[0])
    assert found["step"] == 5
    assert "decode" not in found


def test_a_workload_that_prints_without_end_neither_blocks_nor_fills_the_disk(measure, nsys):
    source = "import os\nblock = b'x' * (1 << 20)\nfor _ in range(200): os.write(1, block)\nprint('the end')\n" + GOOD
    launched = measure(source, tool=nsys)
    assert launched.log_path.stat().st_size < 9 << 20
    log = launched.log_path.read_text()
    assert "bytes of output left out here" in log
    assert "the end" in log
    assert b"xxxxxxxxxxxxxxxx" not in launched.trace_paths[0].read_bytes()
    assert launched.report_path.stat().st_size < 1 << 20


def test_ctrl_c_leaves_no_process_and_no_session(measure, nsys, tmp_path):
    """Interrupt perfci itself, in a process of its own, in the middle of a launch."""
    script = tmp_path / "interrupted.py"
    script.write_text(
        "import sys; from pathlib import Path\n"
        "from perfci.capture.launch import launch; from perfci.capture.nsys import find_nsys\n"
        "from perfci.model.settings import *\n"
        "folder = Path(sys.argv[1])\n"
        "launch(WorkloadSpec(name='w', command=(sys.executable, 'hang.py')), MeasureSettings(),\n"
        "       checkout=folder, out_dir=folder / 'out', tool=find_nsys(), has_cuda=False)\n"
    )
    (tmp_path / "hang.py").write_text("import pathlib, time\npathlib.Path('started').touch()\ntime.sleep(500)\n")
    environment = {**os.environ, "CUDA_INTERRUPT_TEST": "perfci-interrupt-1"}
    with subprocess.Popen([sys.executable, script, tmp_path], env=environment, stderr=subprocess.PIPE) as perfci:
        end = time.monotonic() + 40
        while not (tmp_path / "started").exists() and time.monotonic() < end:
            time.sleep(0.1)
        perfci.send_signal(signal.SIGINT)
        _, errors = perfci.communicate(timeout=40)
    assert b"KeyboardInterrupt" in errors
    assert (tmp_path / "started").exists()
    assert processes_with("CUDA_INTERRUPT_TEST=perfci-interrupt-1") == []


@pytest.fixture
def broken_nsys(nsys, tmp_path):
    """The installed nsys without its importer, so that only the raw recording comes out."""
    whole = nsys.path.resolve().parents[1]
    broken = tmp_path / "nsight"
    try:
        shutil.copytree(whole, broken, copy_function=os.link, symlinks=True)
    except OSError as error:
        pytest.skip(f"cannot link a copy of nsys: {error}")
    importers = list((broken / "host-linux-x64").glob("QdstrmImporter"))
    if not importers:
        pytest.skip("this nsys has no separate importer")
    importers[0].unlink()
    return NsysTool(path=broken / "target-linux-x64" / "nsys", version=nsys.version, options=nsys.options)


def test_an_importer_that_fails_leaves_the_raw_recording_and_says_so(measure, broken_nsys, tmp_path):
    error = failure(measure, GOOD, tool=broken_nsys)
    assert "could not import it; the raw recording is kept" in error.seen
    assert (tmp_path / "out" / "report.qdstrm").stat().st_size > 0


def test_an_option_that_nsys_does_not_know_in_its_own_words(measure, nsys, monkeypatch):
    real = launch_module.profile_argv

    def with_future_option(*args, **kwargs):
        argv = real(*args, **kwargs)
        return (*argv[:2], "--from-the-future=true", *argv[2:])

    monkeypatch.setattr(launch_module, "profile_argv", with_future_option)
    error = failure(measure, GOOD, tool=nsys)
    assert "does not know the option --from-the-future" in error.seen


def test_the_cuda_window_on_a_machine_without_cuda(measure, nsys):
    error = failure(measure, GOOD, tool=nsys, has_cuda=True)
    assert "torch with CUDA" in error.seen


def test_a_disk_that_fills_up_during_the_launch(measure, nsys, tmp_path, monkeypatch):
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk needs root")
    monkeypatch.setattr(launch_module, "MIN_FREE_BYTES", 1 << 16)
    try:
        error = failure(
            measure, "print('x' * 400_000, flush=True)\n" + GOOD, tool=nsys, timeout_s=20, out_dir=disk / "out"
        )
    finally:
        subprocess.run(["umount", "--lazy", disk], check=True)
    assert "the disk filled up" in error.seen


def test_a_report_that_is_none_cannot_be_exported(nsys, tmp_path):
    report = tmp_path / "report.nsys-rep"
    report.write_bytes(b"this is no report" * 1000)
    with pytest.raises(MeasurementError, match="cannot export") as caught:
        export_sqlite(nsys, report, tmp_path / "out.sqlite")
    assert nsys.version in caught.value.wanted
    assert not (tmp_path / "out.sqlite").exists()


def test_a_report_cut_in_the_middle_cannot_be_exported(measure, nsys, tmp_path):
    launched = measure(GOOD, tool=nsys)
    whole = launched.report_path.read_bytes()
    report = tmp_path / "cut.nsys-rep"
    report.write_bytes(whole[: len(whole) // 3])
    with pytest.raises(MeasurementError):
        export_sqlite(nsys, report, tmp_path / "out.sqlite")
    assert not (tmp_path / "out.sqlite").exists()
    again = tmp_path / "again.sqlite"
    export_sqlite(nsys, launched.report_path, again)
    assert ranges(again)["step"] == 5
