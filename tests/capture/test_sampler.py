"""Recorded GPU sequences and what they mean; the recording thread against a scripted GPU and real processes."""

import os
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.capture.nvml import ClockReason, GpuReading
from perfci.capture.sampler import Recording, Sample, judge, measured_fields, own_processes, sampling

GPU = "GPU-11111111-2222"
ME, CHILD, STRANGER = 100, 101, 666


def reading(**changes):
    facts = {
        "sm_clock_mhz": 1980,
        "clock_reasons": ClockReason(0),
        "temperature_c": 50,
        "utilization_percent": 0,
        "processes": (CHILD,),
    }
    return GpuReading(**{**facts, **changes})


def recording(*readings, before=None, own=(ME, CHILD), **options):
    samples = tuple(
        Sample(at_ns=i * 250_000_000, uuid=GPU, reading=r, own=frozenset(own)) for i, r in enumerate(readings, 1)
    )
    first = Sample(at_ns=0, uuid=GPU, reading=before or reading(processes=()), own=frozenset({ME}))
    return Recording(before=(first,), samples=samples, **options)


def codes(*readings, level_mhz=None, **options):
    notes = judge(recording(*readings, **options), level_mhz=level_mhz)
    return [(note.code, note.spoils) for note in notes]


def test_a_quiet_launch_has_no_notes():
    assert codes(*[reading()] * 40) == []


def test_dithering_by_boost_steps_is_quiet():
    assert codes(*[reading(sm_clock_mhz=1980 - 15 * (i % 3)) for i in range(40)]) == []
    assert codes(*[reading(sm_clock_mhz=1979)] * 40, level_mhz=1980) == []


def test_a_foreign_process_spoils_even_in_one_sample():
    assert codes(*[reading()] * 20, reading(processes=(CHILD, STRANGER)), *[reading()] * 20) == [
        ("foreign-process", True)
    ]
    assert codes(reading(), before=reading(processes=(STRANGER,))) == [("foreign-process", True)]
    note = judge(recording(reading(processes=(STRANGER,))))[0]
    assert "666" in note.text


def test_processes_seen_as_ours_once_stay_ours():
    early = Sample(at_ns=1, uuid=GPU, reading=reading(), own=frozenset({ME, CHILD}))
    late = Sample(at_ns=2, uuid=GPU, reading=reading(), own=frozenset({ME}))
    assert judge(Recording(samples=(early, late))) == ()


def test_in_a_container_that_sees_host_ids():
    inside = {"own": (1, 7), "host_pids": False}
    quiet = [reading(processes=()), *[reading(processes=(40123,))] * 10]
    assert codes(*quiet, **inside) == []
    # there before us, or one more than our launch can have
    assert codes(*quiet, before=reading(processes=(39000,)), **inside) == [("foreign-process", True)]
    assert codes(*quiet, reading(processes=(40123, 41000)), **inside) == [("foreign-process", True)]
    assert codes(*quiet, reading(processes=(40123, 41000)), expected_processes=2, **inside) == []
    # ids that do match ours show that they can be compared after all
    assert codes(reading(processes=(7, 8)), **inside) == [("foreign-process", True)]


def test_an_invisible_neighbour_shows_by_utilisation_before_the_start():
    assert codes(reading(), before=reading(processes=(), utilization_percent=80)) == [("gpu-busy-before", True)]
    assert codes(reading(), before=reading(processes=(), utilization_percent=3)) == []


@pytest.mark.parametrize(
    "reason",
    [
        ClockReason.HARDWARE_SLOWDOWN,
        ClockReason.SOFTWARE_THERMAL,
        ClockReason.HARDWARE_THERMAL | ClockReason.HARDWARE_SLOWDOWN,
        ClockReason.POWER_BRAKE,
    ],
)
def test_throttling_from_outside_spoils(reason):
    rows = [*[reading()] * 20, reading(clock_reasons=reason, temperature_c=91)]
    assert codes(*rows) == [("throttled", True)]
    assert "91 °C" in judge(recording(*rows))[0].text


@pytest.mark.parametrize(
    "reason", [ClockReason.POWER_CAP, ClockReason.APPLICATION_SETTING, ClockReason.SYNC_BOOST, ClockReason.IDLE]
)
def test_ordinary_reasons_do_not_spoil(reason):
    assert codes(*[reading(clock_reasons=reason)] * 40) == []


def test_the_power_cap_spoils_when_clocks_fall():
    capped = reading(clock_reasons=ClockReason.POWER_CAP, sm_clock_mhz=1700)
    assert codes(*[reading()] * 30, *[capped] * 5) == [("clock-drop", True)]
    assert "under the power cap" in judge(recording(*[reading()] * 30, *[capped] * 5))[0].text


def test_one_sample_in_a_pause_is_no_drop_and_idle_clocks_do_not_count():
    assert codes(*[reading()] * 39, reading(sm_clock_mhz=345)) == []
    idle = reading(sm_clock_mhz=345, clock_reasons=ClockReason.IDLE)
    assert codes(*[idle] * 30, *[reading()] * 10) == []


def test_a_launch_that_was_slow_from_start_to_end_is_found_by_the_level_of_the_others():
    slow = [reading(sm_clock_mhz=1755)] * 40
    assert codes(*slow) == []
    assert codes(*slow, level_mhz=1980) == [("clock-drop", True)]


def test_unknown_is_said_not_taken_for_good():
    assert codes(*[GpuReading()] * 5, before=GpuReading()) == [("gpu-not-sampled", False)]
    assert judge(Recording()) == ()


@given(
    st.lists(
        st.builds(
            GpuReading,
            sm_clock_mhz=st.none() | st.integers(0, 3000),
            clock_reasons=st.none() | st.integers(0, 0x1FF).map(ClockReason),
            temperature_c=st.none() | st.integers(0, 120),
            utilization_percent=st.none() | st.integers(0, 100),
            processes=st.none() | st.lists(st.integers(1, 5), max_size=3).map(tuple),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_no_sequence_breaks_the_judgement(readings, host_pids):
    seen = recording(*readings, own=(1, 2), host_pids=host_pids)
    for note in judge(seen):
        assert note.text
        if note.code == "throttled":
            assert any(r.clock_reasons and r.clock_reasons & 0xE8 for r in readings)
        if note.code == "foreign-process" and host_pids:
            assert any(set(r.processes or ()) - {1, 2, ME} for r in readings)
    measured_fields(seen)


def test_environment_fields_of_the_run():
    idle = reading(sm_clock_mhz=345, clock_reasons=ClockReason.IDLE, temperature_c=70)
    assert measured_fields(recording(idle, *[reading(sm_clock_mhz=m) for m in (1965, 1980, 1980)])) == {
        "sm_clock_mhz": "1980",
        "temperature_c": "70",
    }
    assert measured_fields(Recording()) == {}


class ScriptedGpu:
    """Plays the processes that really exist among ``pids``."""

    def __init__(self, pids, **facts):
        self.pids, self.facts, self.count = pids, facts, 0

    def read(self, uuid):
        self.count += 1
        return reading(processes=tuple(self.pids()), **self.facts)


def test_recording_a_real_child_and_grandchild():
    script = "import subprocess,sys; p=subprocess.Popen(['sleep','0.4']); print(p.pid, flush=True); p.wait()"
    alive = []
    gpu = ScriptedGpu(lambda: alive)
    with sampling(gpu, [GPU], interval_s=0.02) as result:
        child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        grandchild = int(child.stdout.readline())
        alive += [child.pid, grandchild]
        time.sleep(0.1)
        child.wait()
        time.sleep(0.05)  # NVML still lists them for a moment
    seen = result.recording
    assert len(seen.samples) >= 5
    assert seen.samples[0].at_ns > seen.before[0].at_ns
    assert {child.pid, grandchild, os.getpid()} <= seen.samples[-1].own
    assert [note for note in judge(seen) if note.spoils] == []
    # the process that started this test is a stranger to the launch
    alive.append(os.getppid())
    with sampling(gpu, [GPU], interval_s=0.02) as result:
        pass
    assert [n.code for n in judge(Recording(samples=result.recording.samples))] == ["foreign-process"]


def test_a_process_without_its_parent_is_known_by_its_marker():
    orphan = subprocess.run(
        ["sh", "-c", "(setsid sleep 30 >/dev/null 2>&1 & echo $!)"],
        env={**os.environ, "PERFCI_LAUNCH": "abc"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    pid = int(orphan.stdout)
    try:
        deadline = time.monotonic() + 5
        while pid not in own_processes(marker="PERFCI_LAUNCH=abc") and time.monotonic() < deadline:
            time.sleep(0.01)
        assert pid in own_processes(marker="PERFCI_LAUNCH=abc")
        assert pid not in own_processes(marker="PERFCI_LAUNCH=ab")
        assert pid not in own_processes()
    finally:
        os.kill(pid, 9)


def test_process_names_with_brackets(tmp_path):
    for pid, stat in ((10, "10 (a) 1 b) S 1 0"), (11, "11 ((x) S 10 0"), (12, "garbage"), (13, "13 (y) S 11 0")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat)
    (tmp_path / "meminfo").touch()
    assert own_processes(proc=tmp_path, root=10) == {10, 11, 13}
    assert own_processes(proc=tmp_path, root=11) == {11, 13}


def test_the_recording_is_there_after_an_exception_and_absent_without_a_gpu():
    gpu = ScriptedGpu(list)
    with pytest.raises(ZeroDivisionError), sampling(gpu, [GPU], interval_s=0.01) as result:
        raise ZeroDivisionError
    assert result.recording.samples
    for nothing in ((None, [GPU]), (gpu, [])):
        with sampling(*nothing) as result:
            pass
        assert result.recording == Recording()


def test_a_busy_gpu_is_given_time_to_forget_the_launch_before(monkeypatch):
    monkeypatch.setattr("perfci.capture.sampler._SETTLE_S", 0.3)
    gpu = ScriptedGpu(list)
    gpu.read = lambda uuid: (
        reading(utilization_percent=0 if gpu.count > 3 else 90, processes=()) if _tick(gpu) else None
    )
    with sampling(gpu, [GPU]) as result:
        pass
    assert judge(result.recording) == ()
    busy = ScriptedGpu(list, utilization_percent=90)
    with sampling(busy, [GPU]) as result:
        pass
    assert [n.code for n in judge(result.recording)] == ["gpu-busy-before"]


def _tick(gpu):
    gpu.count += 1
    return True
