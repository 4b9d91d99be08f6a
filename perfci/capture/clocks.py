"""SM clocks held at one frequency while measuring, only when the user asked for it, and always given back.

Before the first change a state file is written beside the GPU locks. It is removed when the clocks are free again, so
that after a crash, even SIGKILL, the next perfci on this GPU sees it and frees them. NVML cannot tell whether somebody
else had locked the clocks before: giving back means no lock (docs/decisions/0039-locked-clocks-leave-a-trace.md).
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from perfci.capture.interruption import clean_up_on_termination
from perfci.capture.nvml import GpuFacts, Nvml, NvmlRefused
from perfci.errors import MeasurementError

SUSTAINED_RATIO = 0.75
"""Share of the highest clock to lock at: well below, so that the power limit is seldom reached and the clock can in
fact be held (where not, the sampler sees the drop). The point of locking is an equal clock, not a high one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """Clocks that a perfci which died had left locked, now free."""

    uuid: str
    mhz: int
    pid: int

    def __str__(self) -> str:
        return f"GPU {self.uuid[:12]}, locked at {self.mhz} MHz by pid {self.pid}"


def clock_to_lock(gpu: GpuFacts) -> int | None:
    """The SM clock in MHz at which a GPU is locked by default: SUSTAINED_RATIO of its highest, or its default
    application clock when that is lower. None when the GPU does not tell its highest clock."""
    if gpu.sm_clock_max_mhz is None:
        return None
    sustained = round(gpu.sm_clock_max_mhz * SUSTAINED_RATIO)
    return sustained if gpu.sm_clock_default_mhz is None else min(sustained, gpu.sm_clock_default_mhz)


@contextmanager
def locked_clocks(nvml: Nvml, gpus: Sequence[GpuFacts], *, directory: Path) -> Iterator[dict[str, int]]:
    """Hold the SM clocks of ``gpus`` while inside; gives MHz by UUID. Call with the locks of these GPUs held.

    Freed after an exception, Ctrl-C and SIGTERM; after SIGKILL by ``restore_left_over`` of the next perfci.
    ``directory`` is the lock folder. MeasurementError when NVML refuses (nothing stays changed) or when no state file
    can be written (then nothing is changed).
    """
    with clean_up_on_termination(), ExitStack() as stack:
        held = {}
        for gpu in gpus:
            mhz = clock_to_lock(gpu)
            if mhz is None:
                raise MeasurementError(
                    f"{gpu.model} does not tell its highest clock", todo="measure without --lock-clocks"
                )
            stack.enter_context(_one(nvml, gpu, mhz, _state_file(directory, gpu.uuid)))
            held[gpu.uuid] = mhz
        yield held


def restore_left_over(nvml: Nvml, uuids: Sequence[str], *, directory: Path) -> tuple[Restored, ...]:
    """Free clocks that a perfci which died left locked. Call with the locks of these GPUs held, before measuring,
    whether or not clocks are to be locked. MeasurementError when they cannot be freed: measuring would be wrong."""
    restored = []
    for uuid in uuids:
        state = _state_file(directory, uuid)
        if not state.exists():
            continue
        mhz, pid = _read_state(state)
        try:
            nvml.release_clocks(uuid)
        except NvmlRefused as error:
            raise MeasurementError(
                f"an earlier perfci (pid {pid}) left GPU {uuid[:12]} locked at {mhz} MHz, and it cannot be freed: "
                f"{error}",
                todo=f"sudo nvidia-smi --id={uuid} --reset-gpu-clocks && sudo rm {state}",
            ) from error
        state.unlink()
        restored.append(Restored(uuid=uuid, mhz=mhz, pid=pid))
    return tuple(restored)


@contextmanager
def _one(nvml: Nvml, gpu: GpuFacts, mhz: int, state: Path) -> Iterator[None]:
    try:
        state.parent.mkdir(parents=True, exist_ok=True)
        with state.open("w") as stream:
            json.dump({"uuid": gpu.uuid, "mhz": mhz, "pid": os.getpid()}, stream)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        raise MeasurementError(
            f"cannot write {state}: {error.strerror}; without it a crash would leave the clocks locked",
            todo="make the folder writable, or measure without --lock-clocks",
        ) from error
    try:
        nvml.lock_clocks(gpu.uuid, mhz)
    except NvmlRefused as error:
        state.unlink(missing_ok=True)
        raise _refused(gpu, mhz, error) from error
    try:
        yield
    finally:
        try:
            nvml.release_clocks(gpu.uuid)
        except NvmlRefused as error:  # the state file stays: the next perfci tries again
            raise MeasurementError(
                f"cannot free the clocks of GPU {gpu.uuid[:12]}: {error}",
                todo=f"sudo nvidia-smi --id={gpu.uuid} --reset-gpu-clocks",
            ) from error
        state.unlink(missing_ok=True)


def _refused(gpu: GpuFacts, mhz: int, error: NvmlRefused) -> MeasurementError:
    seen = f"cannot lock the clocks of {gpu.model} at {mhz} MHz: {error}"
    if error.permission:
        return MeasurementError(
            seen, wanted="root, because the driver lets nobody else", todo="run as root, or without --lock-clocks"
        )
    return MeasurementError(seen, todo="measure without --lock-clocks")


def _state_file(directory: Path, uuid: str) -> Path:
    return directory / f"perfci-clocks-{hashlib.sha256(uuid.encode()).hexdigest()[:16]}.json"


def _read_state(state: Path) -> tuple[int, int]:
    try:
        fields = json.loads(state.read_text())
        return int(fields["mhz"]), int(fields["pid"])
    except (ValueError, TypeError, KeyError):
        return 0, 0  # half written: the crash came before any change
