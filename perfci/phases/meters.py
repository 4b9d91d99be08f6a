"""Meters read at the borders of the unprofiled window: GPU energy (NVML) and CPU instructions (perf events)."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTE_BYTES = 112
_HARDWARE, _INSTRUCTIONS = 0, 1
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6


class InstructionMeter:
    """User-space instructions retired by all threads of this process, from construction to ``stop``.

    One counter per thread that exists now; threads they start later are counted with them. Not counted: other
    processes, such as DataLoader workers.
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        number = _PERF_EVENT_OPEN.get(platform.machine())
        if number is None or not sys.platform.startswith("linux"):
            return
        library = ctypes.CDLL(None, use_errno=True)
        flags = _INHERIT | _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR
        attribute = struct.pack("=IIQQQQQ", _HARDWARE, _ATTRIBUTE_BYTES, _INSTRUCTIONS, 0, 0, 0, flags)
        attribute = attribute.ljust(_ATTRIBUTE_BYTES, b"\0")
        for thread in os.listdir("/proc/self/task"):  # noqa: PTH208  (pathlib is a slow import)
            file = library.syscall(
                ctypes.c_long(number), attribute, ctypes.c_int(int(thread)), ctypes.c_int(-1), ctypes.c_int(-1), 0
            )
            if file < 0 and ctypes.get_errno() == errno.ESRCH:  # the thread ended meanwhile
                continue
            if file < 0:  # forbidden, or no such counter in this virtual machine
                self.stop()
                return
            self._files.append(file)

    def stop(self) -> int | None:
        """Instructions since construction; None when the kernel allows no such counter."""
        total, files, self._files = 0, self._files, []
        for file in files:
            total += int.from_bytes(os.read(file, 8), sys.byteorder)
            os.close(file)
        return total if files and total else None


class EnergyMeter:
    """Energy of one GPU from construction to ``stop``, all its users included."""

    def __init__(self, uuid: str | None) -> None:
        self._device: object = None
        if uuid is None:
            return
        try:
            import pynvml  # noqa: PLC0415  (optional in the measured environment)
        except ImportError:
            return
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            self._device = pynvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
            self._start_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(self._device)
        except pynvml.NVMLError:  # no driver, a MIG slice, or a GPU older than Volta
            self._device = None

    def stop(self) -> int | None:
        """Microjoules since construction; None when NVML cannot say."""
        if self._device is None:
            return None
        try:
            spent_mj = self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device) - self._start_mj
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return None
        return int(spent_mj) * 1000 if spent_mj >= 0 else None
