"""Clock locking against a fake GPU whose state lives in a file, so that it outlasts a killed process."""

import signal
import subprocess
import sys
import textwrap

import pytest

from perfci.capture.clocks import clock_to_lock, locked_clocks, restore_left_over
from perfci.capture.nvml import GpuFacts
from perfci.errors import MeasurementError

A, B = "GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"
FAKE = '''
import json
from pathlib import Path
from perfci.capture.nvml import NvmlRefused

class FakeNvml:
    """The clock part of NVML; refuses what ``refuse`` names: (order, uuid) -> permission."""

    def __init__(self, path, refuse=None):
        self.path = Path(path)
        self.refuse = refuse or {}

    def locked(self):
        return json.loads(self.path.read_text()) if self.path.exists() else {}

    def lock_clocks(self, uuid, mhz):
        self._order("lock", uuid)
        self.path.write_text(json.dumps({**self.locked(), uuid: mhz}))

    def release_clocks(self, uuid):
        self._order("release", uuid)
        self.path.write_text(json.dumps({k: v for k, v in self.locked().items() if k != uuid}))

    def _order(self, order, uuid):
        if (order, uuid) in self.refuse:
            raise NvmlRefused("Insufficient Permissions", permission=self.refuse[order, uuid])
'''
exec(FAKE)
FakeNvml = globals()["FakeNvml"]


def gpu(uuid=A, **facts):
    return GpuFacts(index=0, uuid=uuid, model="NVIDIA H200", **{"sm_clock_max_mhz": 1980, **facts})


@pytest.fixture
def nvml(tmp_path):
    return FakeNvml(tmp_path / "gpu.json")


def states(tmp_path):
    return list((tmp_path / "locks").glob("perfci-clocks-*"))


def test_clocks_are_held_inside_and_free_afterwards(nvml, tmp_path):
    with locked_clocks(nvml, [gpu(), gpu(B)], directory=tmp_path / "locks") as held:
        assert held == nvml.locked() == {A: 1485, B: 1485}
        assert len(states(tmp_path)) == 2
    assert nvml.locked() == {}
    assert states(tmp_path) == []


def test_an_exception_frees_them(nvml, tmp_path):
    with pytest.raises(ZeroDivisionError), locked_clocks(nvml, [gpu()], directory=tmp_path / "locks"):
        raise ZeroDivisionError
    assert nvml.locked() == {}
    assert states(tmp_path) == []


def test_the_clock_is_one_that_can_be_held():
    assert clock_to_lock(gpu()) == 1485
    assert clock_to_lock(gpu(sm_clock_default_mhz=1095)) == 1095
    assert clock_to_lock(gpu(sm_clock_default_mhz=1980)) == 1485
    assert clock_to_lock(gpu(sm_clock_max_mhz=None)) is None


@pytest.mark.parametrize(("permission", "todo"), [(True, "run as root"), (False, "without --lock-clocks")])
def test_a_refusal_is_clear_and_leaves_nothing_changed(tmp_path, permission, todo):
    nvml = FakeNvml(tmp_path / "gpu.json", refuse={("lock", B): permission})
    with (
        pytest.raises(MeasurementError, match="cannot lock the clocks of NVIDIA H200 at 1485 MHz") as caught,
        locked_clocks(nvml, [gpu(), gpu(B)], directory=tmp_path / "locks"),
    ):
        pytest.fail("entered")
    assert todo in str(caught.value)
    assert nvml.locked() == {}
    assert states(tmp_path) == []


def test_nothing_is_changed_when_a_crash_could_not_be_mended(nvml, tmp_path):
    (tmp_path / "locks").touch()
    with (
        pytest.raises(MeasurementError, match="a crash would leave the clocks locked"),
        locked_clocks(nvml, [gpu()], directory=tmp_path / "locks"),
    ):
        pytest.fail("entered")
    assert nvml.locked() == {}


def test_when_freeing_fails_the_next_start_tries_again(tmp_path):
    nvml = FakeNvml(tmp_path / "gpu.json", refuse={("release", A): False})
    with pytest.raises(MeasurementError, match="reset-gpu-clocks"), locked_clocks(nvml, [gpu()], directory=tmp_path):
        pass
    with pytest.raises(MeasurementError, match="left GPU GPU-aaaaaaaa locked at 1485 MHz"):
        restore_left_over(nvml, [A], directory=tmp_path)
    nvml.refuse = {}
    assert [r.mhz for r in restore_left_over(nvml, [A], directory=tmp_path)] == [1485]
    assert nvml.locked() == {}
    assert restore_left_over(nvml, [A], directory=tmp_path) == ()


CHILD = FAKE + textwrap.dedent("""
    import sys, time
    from perfci.capture.clocks import locked_clocks
    from perfci.capture.nvml import GpuFacts
    gpu = GpuFacts(index=0, uuid=sys.argv[2], model="x", sm_clock_max_mhz=1980)
    try:
        with locked_clocks(FakeNvml(sys.argv[1] + "/gpu.json"), [gpu], directory=Path(sys.argv[1]) / "locks"):
            print("held", flush=True)
            time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
""")


def child(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path), A], stdout=subprocess.PIPE, text=True
    )  # fmt: skip
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_free_the_clocks(nvml, tmp_path, number):
    process = child(tmp_path)
    assert nvml.locked() == {A: 1485}
    process.send_signal(number)
    assert process.wait(timeout=20) == 130
    assert nvml.locked() == {}
    assert states(tmp_path) == []


def test_after_sigkill_the_next_start_frees_them(nvml, tmp_path):
    process = child(tmp_path)
    process.kill()
    process.wait(timeout=20)
    assert nvml.locked() == {A: 1485}
    assert restore_left_over(nvml, [B], directory=tmp_path / "locks") == ()  # another GPU is not touched
    assert nvml.locked() == {A: 1485}
    assert [(r.mhz, r.pid) for r in restore_left_over(nvml, [A, B], directory=tmp_path / "locks")] == [
        (1485, process.pid)
    ]
    assert nvml.locked() == {}
    assert states(tmp_path) == []


def test_a_state_file_cut_short_still_frees_the_clocks(nvml, tmp_path):
    child_process = child(tmp_path)
    child_process.kill()
    child_process.wait(timeout=20)
    states(tmp_path)[0].write_text("")
    assert len(restore_left_over(nvml, [A], directory=tmp_path / "locks")) == 1
    assert nvml.locked() == {}
