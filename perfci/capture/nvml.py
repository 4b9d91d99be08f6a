"""The GPU through NVML: a small protocol for the rest of perfci and the thin adapter to ``nvidia-ml-py``.

What a GPU or driver does not tell is None, never zero. Nothing here judges.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, Protocol


class ClockReason(IntFlag):
    """Why the clocks are not at their highest (NVML's clocks event reasons)."""

    IDLE = 0x1
    APPLICATION_SETTING = 0x2
    POWER_CAP = 0x4
    HARDWARE_SLOWDOWN = 0x8
    SYNC_BOOST = 0x10
    SOFTWARE_THERMAL = 0x20
    HARDWARE_THERMAL = 0x40
    POWER_BRAKE = 0x80
    DISPLAY_SETTING = 0x100


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """What a GPU is and how it is set up."""

    index: int
    uuid: str
    model: str
    pci_bus_id: str | None = None
    memory_bytes: int | None = None
    sm_clock_max_mhz: int | None = None
    sm_clock_default_mhz: int | None = None
    power_limit_w: int | None = None
    power_limit_default_w: int | None = None
    ecc: bool | None = None
    mig: bool | None = None
    persistence: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """What a GPU does at one moment. ``processes`` are the ids of processes with a compute context, as NVML tells
    them (inside a container these may be ids of the host)."""

    sm_clock_mhz: int | None = None
    clock_reasons: ClockReason | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: int | None = None
    processes: tuple[int, ...] | None = None


class NvmlRefused(Exception):  # noqa: N818  (a refusal, told to the user as a MeasurementError by clocks.py)
    """NVML did not do what it was asked. ``permission``: for lack of rights."""

    def __init__(self, reason: str, *, permission: bool = False) -> None:
        super().__init__(reason)
        self.permission = permission


class Nvml(Protocol):
    """What perfci wants from NVML. Only the last two change anything, and only clocks.py calls them."""

    def driver(self) -> str | None:
        """Version of the driver."""

    def gpus(self) -> tuple[GpuFacts, ...]:
        """All GPUs of the machine, in PCI order."""

    def read(self, uuid: str) -> GpuReading:
        """The state of one GPU now."""

    def lock_clocks(self, uuid: str, mhz: int) -> None:
        """Hold the SM clock at one frequency. NvmlRefused without permission or support."""

    def release_clocks(self, uuid: str) -> None:
        """Undo ``lock_clocks``. NvmlRefused without permission or support."""


@contextmanager
def open_nvml() -> Iterator[Nvml | None]:
    """NVML while inside, or None on a machine without an NVIDIA driver."""
    import pynvml  # noqa: PLC0415  (costs start-up time, needed only for measuring)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield PynvmlAdapter(pynvml)
    finally:
        pynvml.nvmlShutdown()


class PynvmlAdapter:
    """``Nvml`` on top of the pynvml module."""

    def __init__(self, pynvml: Any) -> None:
        self._pynvml = pynvml
        self._handles: dict[str, Any] = {}

    def driver(self) -> str | None:
        """Version of the driver."""
        version = self._ask(self._pynvml.nvmlSystemGetDriverVersion)
        return None if version is None else str(version)

    def gpus(self) -> tuple[GpuFacts, ...]:
        """All GPUs that answer, in PCI order."""
        n = self._pynvml
        found = []
        for index in range(self._ask(n.nvmlDeviceGetCount) or 0):
            handle = self._ask(n.nvmlDeviceGetHandleByIndex, index)
            if handle is None:
                continue
            pci = self._ask(n.nvmlDeviceGetPciInfo, handle)
            memory = self._ask(n.nvmlDeviceGetMemoryInfo, handle)
            limit_mw = self._ask(n.nvmlDeviceGetEnforcedPowerLimit, handle)
            default_mw = self._ask(n.nvmlDeviceGetPowerManagementDefaultLimit, handle)
            found.append(
                GpuFacts(
                    index=index,
                    uuid=str(n.nvmlDeviceGetUUID(handle)),
                    model=str(n.nvmlDeviceGetName(handle)),
                    pci_bus_id=None if pci is None else _text(pci.busId).lower(),
                    memory_bytes=None if memory is None else int(memory.total),
                    sm_clock_max_mhz=self._ask(n.nvmlDeviceGetMaxClockInfo, handle, n.NVML_CLOCK_SM),
                    sm_clock_default_mhz=self._ask(n.nvmlDeviceGetDefaultApplicationsClock, handle, n.NVML_CLOCK_SM),
                    power_limit_w=None if limit_mw is None else round(limit_mw / 1000),
                    power_limit_default_w=None if default_mw is None else round(default_mw / 1000),
                    ecc=self._switch(n.nvmlDeviceGetEccMode, handle),
                    mig=self._switch(n.nvmlDeviceGetMigMode, handle),
                    persistence=self._switch(n.nvmlDeviceGetPersistenceMode, handle),
                )
            )
        return tuple(found)

    def read(self, uuid: str) -> GpuReading:
        """The state of one GPU now."""
        n = self._pynvml
        handle = self._handle(uuid)
        if handle is None:
            return GpuReading()
        reasons = self._ask(n.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        memory = self._ask(n.nvmlDeviceGetMemoryInfo, handle)
        utilization = self._ask(n.nvmlDeviceGetUtilizationRates, handle)
        processes = self._ask(n.nvmlDeviceGetComputeRunningProcesses, handle)
        return GpuReading(
            sm_clock_mhz=self._ask(n.nvmlDeviceGetClockInfo, handle, n.NVML_CLOCK_SM),
            clock_reasons=None if reasons is None else ClockReason(int(reasons) & 0x1FF),
            temperature_c=self._ask(n.nvmlDeviceGetTemperature, handle, n.NVML_TEMPERATURE_GPU),
            power_mw=self._ask(n.nvmlDeviceGetPowerUsage, handle),
            memory_used_bytes=None if memory is None else int(memory.used),
            utilization_percent=None if utilization is None else int(utilization.gpu),
            processes=None if processes is None else tuple(sorted({int(p.pid) for p in processes})),
        )

    def lock_clocks(self, uuid: str, mhz: int) -> None:
        """Hold the SM clock at one frequency."""
        self._order(self._pynvml.nvmlDeviceSetGpuLockedClocks, uuid, mhz, mhz)

    def release_clocks(self, uuid: str) -> None:
        """Undo ``lock_clocks``."""
        self._order(self._pynvml.nvmlDeviceResetGpuLockedClocks, uuid)

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            self._handles[uuid] = self._ask(self._pynvml.nvmlDeviceGetHandleByUUID, uuid)
        return self._handles[uuid]

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        """The answer, or None when this GPU, driver or container does not give one."""
        try:
            return question(*arguments)
        except self._pynvml.NVMLError:
            return None

    def _switch(self, question: Callable[..., Any], handle: Any) -> bool | None:
        answer = self._ask(question, handle)
        if isinstance(answer, Sequence):  # (current, pending)
            answer = answer[0]
        return None if answer is None else bool(answer)

    def _order(self, order: Callable[..., Any], uuid: str, *arguments: int) -> None:
        try:
            order(self._pynvml.nvmlDeviceGetHandleByUUID(uuid), *arguments)
        except self._pynvml.NVMLError as error:
            permission = isinstance(error, self._pynvml.NVMLError_NoPermission)
            raise NvmlRefused(str(error), permission=permission) from error


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
