"""The GPU watched during one launch, and the judgement whether something outside spoiled the launch.

The thread only records. ``judge`` is pure and decides afterwards, so that it can be tested with recorded sequences
and its thresholds can be read in one place (docs/environment.md lists them for users).
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from perfci.capture.nvml import ClockReason, GpuReading, Nvml
from perfci.model.run import Note

SAMPLE_INTERVAL_S = 0.25
"""Four samples a second: throttling lasts for seconds, and one sample costs the machine about a dozen driver calls."""

CLOCK_DROP_RATIO = 0.03
"""A busy clock more than 3 % under the level of the launch. Boost steps are 15 MHz (under 1 % of a data centre GPU's
clock), so ordinary dithering stays inside, and 3 % of clock is more than the budget of most gates."""

CLOCK_DROP_SHARE = 0.05
"""Share of busy samples that must show the drop: one sample that fell into a pause between two steps is no drop."""

IDLE_NEIGHBOUR_PERCENT = 10
"""Utilisation of the GPU before our process started. An idle GPU shows 0; NVML rounds and averages over up to a
second, so a little is left of what perfci itself did just before."""

SPOILING_REASONS = (
    ClockReason.HARDWARE_SLOWDOWN
    | ClockReason.SOFTWARE_THERMAL
    | ClockReason.HARDWARE_THERMAL
    | ClockReason.POWER_BRAKE
)
"""Throttling from outside: heat, or the power brake of the rack. The software power cap is not among them: large GPUs
run at their power limit all day, and it does no harm unless the clocks fall, which is judged by itself."""

_SETTLE_S = 1.5
_HOST_PID_NAMESPACE = "pid:[4026531836]"  # fixed in Linux: PROC_PID_INIT_INO


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One reading of one GPU. ``at_ns`` is CLOCK_MONOTONIC (``time.monotonic_ns``), the same in all processes; ``own``
    the process ids that belong to the launch (and to perfci) as far as they were seen up to then."""

    at_ns: int
    uuid: str
    reading: GpuReading
    own: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """All samples of one launch. ``before`` was taken before the process was started, one per GPU.

    ``host_pids``: process ids told by NVML are ids of our own namespace. ``expected_processes`` is how many processes
    the launch may have on one GPU; it decides only where ids cannot be compared (a container)."""

    before: tuple[Sample, ...] = ()
    samples: tuple[Sample, ...] = ()
    host_pids: bool = True
    expected_processes: int = 1


def judge(recording: Recording, *, level_mhz: float | None = None) -> tuple[Note, ...]:
    """What disturbed the launch; ``spoils`` notes forbid judging it, so that it is repeated.

    ``level_mhz`` is the SM clock of the other launches of the session (their median), if known: a launch that ran
    slow from start to end shows no drop within itself. Without samples nothing is known, and said so.
    """
    notes: list[Note] = []
    for uuid in sorted({sample.uuid for sample in recording.before + recording.samples}):
        before = [s for s in recording.before if s.uuid == uuid]
        during = [s for s in recording.samples if s.uuid == uuid]
        name = f"GPU {uuid[:12]}"
        notes += _foreign(name, before, during, recording)
        notes += _throttled(name, during)
        notes += _clock_drop(name, during, level_mhz)
        if not any(s.reading.sm_clock_mhz is not None for s in during):
            notes.append(Note(code="gpu-not-sampled", text=f"{name}: NVML told no clocks during the launch"))
    return tuple(notes)


def measured_fields(recording: Recording) -> dict[str, str]:
    """Environment fields that only the run itself shows; fields that were not measured are absent."""
    fields = {}
    clocks = [s.reading.sm_clock_mhz for s in _busy(recording.samples) if s.reading.sm_clock_mhz is not None]
    if clocks:
        fields["sm_clock_mhz"] = f"{median(clocks):.0f}"
    temperatures = [s.reading.temperature_c for s in recording.samples if s.reading.temperature_c is not None]
    if temperatures:
        fields["temperature_c"] = str(max(temperatures))
    return fields


def _busy(samples: Sequence[Sample]) -> list[Sample]:
    """Samples while the GPU worked. Where the driver tells no reasons, all of them."""
    return [s for s in samples if s.reading.clock_reasons is None or ClockReason.IDLE not in s.reading.clock_reasons]


def _foreign(name: str, before: Sequence[Sample], during: Sequence[Sample], recording: Recording) -> list[Note]:
    own = frozenset().union(*(s.own for s in before), *(s.own for s in during))
    early = _processes(before)
    seen = early | _processes(during)
    # A container sees ids of the host: then only who was there before us, and how many there are, can be judged.
    if recording.host_pids or seen & own:
        foreign = seen - own
    else:
        crowd = max((len(set(s.reading.processes or ()) - early) for s in during), default=0)
        foreign = early | (seen if crowd > recording.expected_processes else frozenset())
    if foreign:
        listed = ", ".join(str(pid) for pid in sorted(foreign)[:3])
        return [
            Note(
                code="foreign-process",
                text=f"{name}: another process used it during the launch (pid {listed})",
                spoils=True,
            )
        ]
    busy_before = max((s.reading.utilization_percent or 0 for s in before), default=0)
    if busy_before > IDLE_NEIGHBOUR_PERCENT:
        return [
            Note(
                code="gpu-busy-before",
                text=f"{name}: {busy_before} % busy before the launch began, by a process that is not visible here",
                spoils=True,
            )
        ]
    return []


def _processes(samples: Sequence[Sample]) -> frozenset[int]:
    return frozenset(pid for s in samples for pid in s.reading.processes or ())


def _throttled(name: str, during: Sequence[Sample]) -> list[Note]:
    busy = _busy(during)
    hit = [s for s in busy if s.reading.clock_reasons is not None and s.reading.clock_reasons & SPOILING_REASONS]
    if not hit:
        return []
    reasons = ClockReason(0)
    for sample in hit:
        assert sample.reading.clock_reasons is not None
        reasons |= sample.reading.clock_reasons & SPOILING_REASONS
    words = ", ".join(str(reason.name).lower().replace("_", " ") for reason in reasons)
    hottest = max((s.reading.temperature_c for s in hit if s.reading.temperature_c is not None), default=None)
    heat = "" if hottest is None else f", {hottest} °C"
    return [
        Note(
            code="throttled",
            text=f"{name}: throttled in {len(hit)} of {len(busy)} samples ({words}{heat})",
            spoils=True,
        )
    ]


def _clock_drop(name: str, during: Sequence[Sample], level_mhz: float | None) -> list[Note]:
    clocks = [(s, s.reading.sm_clock_mhz) for s in _busy(during) if s.reading.sm_clock_mhz is not None]
    if not clocks:
        return []
    level = median(mhz for _, mhz in clocks) if level_mhz is None else level_mhz
    low = [(s, mhz) for s, mhz in clocks if mhz < level * (1 - CLOCK_DROP_RATIO)]
    if len(low) < 2 or len(low) < CLOCK_DROP_SHARE * len(clocks):
        return []
    capped = any(ClockReason.POWER_CAP in (s.reading.clock_reasons or ClockReason(0)) for s, _ in low)
    why = " under the power cap" if capped else ""
    return [
        Note(
            code="clock-drop",
            text=f"{name}: SM clock fell to {min(mhz for _, mhz in low)} MHz{why} in {len(low)} of {len(clocks)} "
            f"samples, level {level:.0f} MHz",
            spoils=True,
        )
    ]


class GpuSampler:
    """Records samples in a thread until it is stopped."""

    def __init__(
        self,
        nvml: Nvml,
        uuids: Sequence[str],
        *,
        own_processes: Callable[[], frozenset[int]],
        interval_s: float = SAMPLE_INTERVAL_S,
    ) -> None:
        self._nvml = nvml
        self._uuids = tuple(uuids)
        self._own_processes = own_processes
        self._own: frozenset[int] = frozenset()
        self._interval_s = interval_s
        self._stop = threading.Event()
        self._samples: list[Sample] = []
        self._thread = threading.Thread(target=self._record, name="perfci-gpu-sampler", daemon=True)

    def look(self) -> tuple[Sample, ...]:
        """One sample of each GPU, now."""
        taken = []
        for uuid in self._uuids:
            reading = self._nvml.read(uuid)
            # After the reading: a process that NVML has just told is then surely to be found. Ids once ours stay ours,
            # because a child whose parent has gone is no longer found in the tree.
            self._own |= self._own_processes()
            taken.append(Sample(at_ns=time.monotonic_ns(), uuid=uuid, reading=reading, own=self._own))
        return tuple(taken)

    def start(self) -> None:
        """Begin to record."""
        self._thread.start()

    def stop(self) -> tuple[Sample, ...]:
        """End the thread, take one last sample and give all of them."""
        self._stop.set()
        self._thread.join()
        self._samples += self.look()
        return tuple(self._samples)

    def _record(self) -> None:
        while True:
            self._samples += self.look()
            if self._stop.wait(self._interval_s):
                return


class Sampling:
    """Filled in when the block of ``sampling`` has ended."""

    def __init__(self) -> None:
        self.recording = Recording()


@contextmanager
def sampling(
    nvml: Nvml | None,
    uuids: Sequence[str],
    *,
    marker: str = "",
    expected_processes: int = 1,
    interval_s: float = SAMPLE_INTERVAL_S,
) -> Iterator[Sampling]:
    """Watch the GPUs while inside; afterwards the result holds the recording, also after an exception.

    Own processes are all descendants of this one and, when ``marker`` ("NAME=value") is given, every process that
    carries it in its environment: nsys can leave the measured process without a parent. Without NVML nothing is
    recorded.
    """
    result = Sampling()
    if nvml is None or not uuids:
        yield result
        return
    sampler = GpuSampler(nvml, uuids, own_processes=lambda: own_processes(marker=marker), interval_s=interval_s)
    before = _settled(sampler)
    sampler.start()
    try:
        yield result
    finally:
        result.recording = Recording(
            before=before,
            samples=sampler.stop(),
            host_pids=_in_host_namespace(),
            expected_processes=expected_processes,
        )


def _settled(sampler: GpuSampler) -> tuple[Sample, ...]:
    # NVML's utilisation looks back up to a second, into the launch before: wait until it has forgotten that.
    deadline = time.monotonic() + _SETTLE_S
    while True:
        before = sampler.look()
        busy = any((s.reading.utilization_percent or 0) > IDLE_NEIGHBOUR_PERCENT for s in before)
        if not busy or time.monotonic() >= deadline:
            return before
        time.sleep(_SETTLE_S / 6)


def own_processes(*, marker: str = "", proc: Path = Path("/proc"), root: int | None = None) -> frozenset[int]:
    """This process (or ``root``), all its descendants, and all processes with ``marker`` in their environment."""
    parents: dict[int, int] = {}
    marked = set()
    for entry in proc.iterdir():
        if entry.name.isdigit():
            parent = _parent(entry)
            if parent is not None:
                parents[int(entry.name)] = parent
                if marker and _carries(entry, marker):
                    marked.add(int(entry.name))
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    waiting = [root if root is not None else int((proc / "self").resolve().name), *marked]
    own: set[int] = set()
    while waiting:
        pid = waiting.pop()
        if pid not in own:
            own.add(pid)
            waiting += children.get(pid, [])
    return frozenset(own)


def _parent(entry: Path) -> int | None:
    try:
        # The name of the program comes in brackets and may itself hold brackets and spaces.
        return int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None  # it has just ended


def _carries(entry: Path, marker: str) -> bool:
    try:
        return marker.encode() in (entry / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def _in_host_namespace() -> bool:
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == _HOST_PID_NAMESPACE
    except OSError:
        return True
