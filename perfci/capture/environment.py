"""The machine as a table of facts: CPU, kernel, container from Linux, GPU from NVML, versions from the launch.

Reading (``read_host``) and thinking (``environment_fields``, ``advice``) are apart. A fact that the machine does not
tell is absent. Small differences between equal machines (1980 MHz, 1979 MHz) stay out of the comparability key:
model.environment says which fields are in it.
"""

import hashlib
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from perfci.capture.checks import Check, Status
from perfci.capture.nvml import GpuFacts, GpuReading
from perfci.model.environment import ENVIRONMENT_FIELDS

CONTAINER_IMAGE_VARIABLE = "PERFCI_CONTAINER_IMAGE"

_SOFTWARE_FIELDS = ("torch", "cuda", "cudnn", "python", "collector", "collector_version", "perfci", "world_size")
_UUID_CLASS_DIGITS = 8
_MIG_MARK = " (MIG)"
_CPU = Path("sys/devices/system/cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What Linux says about the machine. ``usable_cpus`` are those this process may run on; ``cpu_quota`` is the
    cgroup's limit in CPUs, None without one; ``container`` names the image where known, else the kind."""

    kernel: str
    usable_cpus: frozenset[int]
    cpu_model: str | None = None
    governors: tuple[str, ...] = ()
    turbo: bool | None = None
    cpu_quota: float | None = None
    container: str | None = None
    load: float | None = None

    @property
    def cpu_count(self) -> int:
        """CPUs that can really be used at once."""
        quota = len(self.usable_cpus) if self.cpu_quota is None else ceil(self.cpu_quota)
        return max(1, min(len(self.usable_cpus), quota))


def read_host(*, root: Path = Path("/"), environment: Mapping[str, str] = os.environ) -> HostFacts:
    """The facts of this machine, or of a recorded file tree below ``root``."""
    usable = frozenset(os.sched_getaffinity(0))
    policies = [root / _CPU / f"cpu{cpu}/cpufreq/scaling_governor" for cpu in sorted(usable)]
    governors = {text for path in policies if (text := _read(path)) is not None}
    load = _read(root / "proc/loadavg")
    return HostFacts(
        kernel=_read(root / "proc/sys/kernel/osrelease") or platform.release(),
        usable_cpus=usable,
        cpu_model=_cpu_model(_read(root / "proc/cpuinfo") or ""),
        governors=tuple(sorted(governors)),
        turbo=_turbo(root),
        cpu_quota=_cpu_quota(root),
        container=_container(root, environment),
        load=None if load is None else float(load.split()[0]),
    )


def visible_gpus(gpus: Sequence[GpuFacts], cuda_visible_devices: str | None) -> tuple[GpuFacts, ...]:
    """The GPUs that a process with this CUDA_VISIBLE_DEVICES sees, in its order.

    As CUDA does: numbers or beginnings of UUIDs, separated by commas; the list ends before the first entry that names
    no GPU. None means all, an empty text none. A MIG slice stands for the GPUs with MIG switched on, because NVML
    tells clocks and temperature of the whole GPU only.
    """
    if cuda_visible_devices is None:
        return tuple(gpus)
    chosen: list[GpuFacts] = []
    for entry in (text.strip() for text in cuda_visible_devices.split(",")):
        if entry.startswith("MIG-"):
            found = [gpu for gpu in gpus if gpu.mig]
        elif entry.isdecimal():
            found = [gpu for gpu in gpus if gpu.index == int(entry)]
        else:
            found = [gpu for gpu in gpus if entry.startswith("GPU-") and gpu.uuid.startswith(entry)]
        if not found:
            break
        chosen += [gpu for gpu in found if gpu not in chosen]
    return tuple(chosen)


def environment_fields(
    host: HostFacts,
    gpus: Sequence[GpuFacts],
    *,
    driver: str | None = None,
    pinned: Sequence[int] = (),
    locked_mhz: int | None = None,
) -> dict[str, str]:
    """Environment fields of a launch on ``gpus`` (those it sees). Unknown ones are absent; with several GPUs the
    distinct values, sorted, joined by ``" + "``."""
    fields: dict[str, str | None] = {
        "kernel": host.kernel,
        "cpu_model": host.cpu_model,
        "cpu_governor": " + ".join(host.governors),
        "cpu_turbo": _switch(host.turbo),
        "cpu_count": str(host.cpu_count),
        "cpu_affinity": cpu_list(pinned),
        "container": host.container,
        "driver": driver if gpus else None,
        "sm_clock_locked_mhz": None if locked_mhz is None else str(locked_mhz),
    }
    if gpus:
        fields |= {
            # A slice is not the GPU it is cut from: never compare the two.
            "gpu_model": _joined([gpu.model + _MIG_MARK if gpu.mig else gpu.model for gpu in gpus]),
            "gpu_count": str(len(gpus)),
            "gpu_uuid_class": uuid_class([gpu.uuid for gpu in gpus]),
            "gpu_memory_mib": _joined([None if g.memory_bytes is None else g.memory_bytes >> 20 for g in gpus]),
            "mig": _joined([_switch(gpu.mig) for gpu in gpus]),
            "ecc": _joined([_switch(gpu.ecc) for gpu in gpus]),
            "persistence": _joined([_switch(gpu.persistence) for gpu in gpus]),
            "sm_clock_max_mhz": _joined([gpu.sm_clock_max_mhz for gpu in gpus]),
            "power_limit_w": _joined([gpu.power_limit_w for gpu in gpus]),
        }
    return {name: value for name, value in fields.items() if value}


def merge_software(fields: Mapping[str, str], software: Mapping[str, object]) -> dict[str, str]:
    """Add what the measured process told about its software (torch, cuda, cudnn, python, …; the sidecar's versions).

    None and empty text count as not known. Of hardware only ``gpu_model`` is taken, and only where NVML told none or
    told of a MIG slice, which torch names more closely ("NVIDIA H200 MIG 1g.18gb"): a workload cannot claim another
    GPU than it had.
    """
    told = {name: str(software[name]) for name in _SOFTWARE_FIELDS if software.get(name) not in (None, "")}
    model = software.get("gpu_model")
    if model and fields.get("gpu_model", _MIG_MARK).endswith(_MIG_MARK):
        told["gpu_model"] = str(model)
    return {**fields, **told}


def uuid_class(uuids: Sequence[str]) -> str:
    """A short name for a set of GPUs that tells two of them apart without revealing their serial identity."""
    return hashlib.sha256("\n".join(sorted(uuids)).encode()).hexdigest()[:_UUID_CLASS_DIGITS]


def cpu_list(cpus: Sequence[int]) -> str:
    """CPUs as Linux writes them: ``2-5,8``. Empty for none."""
    parts: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if parts and cpu == parts[-1][-1] + 1:
            parts[-1].append(cpu)
        else:
            parts.append([cpu])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def advice(
    host: HostFacts, gpus: Sequence[GpuFacts], readings: Sequence[GpuReading] = (), *, own: frozenset[int] = frozenset()
) -> tuple[Check, ...]:
    """Settings of the machine that make numbers noisy, and the command that mends each. perfci changes none itself.

    ``readings`` are of the ``gpus`` in the same order, taken while nothing of ours runs there.
    """
    checks = [*_cpu_advice(host)]
    for gpu, reading in zip(gpus, readings or [GpuReading()] * len(gpus), strict=True):
        checks += _gpu_advice(gpu, reading, own)
    return tuple(checks)


def _cpu_advice(host: HostFacts) -> list[Check]:
    checks = []
    if host.governors:
        calm = host.governors == ("performance",)
        todo = "" if calm else "sudo cpupower frequency-set --governor performance"
        checks.append(_advice("CPU governor", good=calm, seen=", ".join(host.governors), todo=todo))
    if host.turbo is not None:
        seen = "on: clocks depend on heat and on other cores" if host.turbo else "off"
        todo = "" if not host.turbo else "echo 1 | sudo tee /sys/devices/system/cpu/intel_pstate/no_turbo (Intel)"
        checks.append(_advice("CPU turbo", good=not host.turbo, seen=seen, todo=todo))
    if host.load is not None:
        calm = host.load <= max(1.0, 0.1 * len(host.usable_cpus))
        todo = "" if calm else "stop other work on this machine while measuring"
        checks.append(_advice("CPU load", good=calm, seen=f"{host.load:g} over the last minute", todo=todo))
    if host.cpu_quota is not None and host.cpu_quota < len(host.usable_cpus):
        checks.append(
            _advice(
                "CPU quota",
                good=False,
                seen=f"{host.cpu_quota:g} of {len(host.usable_cpus)} CPUs by cgroup: the kernel pauses the process",
                todo="give the container whole CPUs (docker run --cpuset-cpus) instead of a quota (--cpus)",
            )
        )
    return checks


def _gpu_advice(gpu: GpuFacts, reading: GpuReading, own: frozenset[int]) -> list[Check]:
    name = f"GPU {gpu.index}"
    checks = []
    if gpu.persistence is not None:
        todo = "" if gpu.persistence else f"sudo nvidia-smi --id={gpu.index} --persistence-mode=1"
        seen = "on" if gpu.persistence else "off: the driver unloads between launches"
        checks.append(_advice(f"{name} persistence mode", good=gpu.persistence, seen=seen, todo=todo))
    if gpu.mig:
        todo = "measure on a whole GPU, or keep every slice of it idle"
        checks.append(_advice(f"{name} MIG", good=False, seen="on: slices share power and heat", todo=todo))
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    if limit is not None and default is not None:
        todo = "" if limit >= default else f"sudo nvidia-smi --id={gpu.index} --power-limit={default}"
        checks.append(
            _advice(f"{name} power limit", good=limit >= default, seen=f"{limit} W of {default} W", todo=todo)
        )
    if reading.processes is not None:
        others = sorted(set(reading.processes) - own)
        seen = f"other processes: {', '.join(map(str, others[:5]))}" if others else "no other process"
        todo = "stop them: launches they disturb are thrown away" if others else ""
        checks.append(_advice(f"{name} processes", good=not others, seen=seen, todo=todo))
    return checks


def _advice(name: str, *, good: bool, seen: str, todo: str) -> Check:
    return Check(name=name, status=Status.OK if good else Status.WARN, seen=seen, todo=todo)


def _joined(values: Sequence[str | int | None]) -> str:
    return " + ".join(sorted({str(value) for value in values if value is not None}))


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _cpu_model(cpuinfo: str) -> str | None:
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        name, found, value = line.partition(":")
        if found:
            fields.setdefault(name.strip(), value.strip())
    if model := fields.get("model name"):
        return " ".join(model.split())
    if "CPU part" in fields:  # ARM tells numbers only
        return f"ARM implementer {fields.get('CPU implementer')} part {fields['CPU part']}"
    return None


def _turbo(root: Path) -> bool | None:
    if (off := _read(root / _CPU / "intel_pstate/no_turbo")) is not None:
        return off == "0"
    if (on := _read(root / _CPU / "cpufreq/boost")) is not None:
        return on == "1"
    return None


def _cpu_quota(root: Path) -> float | None:
    """The smallest limit of this process's cgroup and those above it (v2), else of the v1 controller."""
    own = next((line[3:] for line in (_read(root / "proc/self/cgroup") or "").splitlines() if line[:3] == "0::"), "/")
    top = root / "sys/fs/cgroup"
    limits = []
    place = Path(own.lstrip("/"))
    for folder in (place, *place.parents):
        words = (_read(top / folder / "cpu.max") or "max").split()
        if words[0].isdecimal() and len(words) == 2:
            limits.append(int(words[0]) / int(words[1]))
    if limits:
        return min(limits)
    quota, period = _read(top / "cpu/cpu.cfs_quota_us"), _read(top / "cpu/cpu.cfs_period_us")
    return int(quota) / int(period) if quota and period and int(quota) > 0 else None


def _container(root: Path, environment: Mapping[str, str]) -> str | None:
    if image := environment.get(CONTAINER_IMAGE_VARIABLE):
        return image
    podman = _read(root / "run/.containerenv") or ""
    for line in podman.splitlines():
        if line.startswith("image="):
            return line.removeprefix("image=").strip('"') or "podman"
    if (root / "run/.containerenv").exists():
        return "podman"
    if environment.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    return "docker" if (root / ".dockerenv").exists() else None


assert set(_SOFTWARE_FIELDS) <= ENVIRONMENT_FIELDS.keys()
