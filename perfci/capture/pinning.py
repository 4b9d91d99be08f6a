"""On which CPUs a launch runs: whole cores near its GPU, the same for both sides, and some left for the profiler.

Pinning narrows the spread between launches of launch-bound workloads (threads no longer wander between cores and
sockets). A machine too small for it is left alone.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

CPUS_PER_RANK = 8
"""The threads of one training process that run at once: main, autograd, pin-memory, and a handful of loader workers."""

RESERVED_CPUS = 2
"""Left free for nsys, the sampler of perfci and the rest of the system."""

LEAST_CPUS_PER_RANK = 2
"""Main and autograd thread. Where not even these fit beside the reserved ones, pinning would do harm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """``usable``: CPUs this process may use. ``core_of`` and ``node_of`` map a CPU to its core and NUMA node (absent:
    a core or node of its own is assumed)."""

    usable: frozenset[int]
    core_of: Mapping[int, int] = field(default_factory=dict)
    node_of: Mapping[int, int] = field(default_factory=dict)


def choose_cpus(
    topology: Topology, *, ranks: int = 1, near_node: int | None = None, cpu_quota: float | None = None
) -> tuple[int, ...]:
    """The CPUs for one launch, sorted; empty when the machine has too few to pin.

    First the node of the GPU, then other nodes, highest numbers first within a node (the low ones serve interrupts);
    first one CPU of each core, then the second threads, so that two busy threads do not share a core needlessly. A
    cgroup quota caps the number: more CPUs than the quota would only spread its pauses. Deterministic.
    """
    if ranks < 1:
        raise ValueError("ranks must be at least 1")
    spare = len(topology.usable) - RESERVED_CPUS
    if cpu_quota is not None:
        spare = min(spare, int(cpu_quota) - RESERVED_CPUS)
    wanted = min(spare, ranks * CPUS_PER_RANK)
    if wanted < ranks * LEAST_CPUS_PER_RANK:
        return ()
    seen_on_core: dict[int, int] = {}
    rank_in_core = {}
    for cpu in sorted(topology.usable, reverse=True):
        core = topology.core_of.get(cpu, -1 - cpu)
        rank_in_core[cpu] = seen_on_core.get(core, 0)
        seen_on_core[core] = rank_in_core[cpu] + 1

    def preference(cpu: int) -> tuple[bool, int, int, int]:
        node = topology.node_of.get(cpu, 0)
        far = near_node is not None and node != near_node
        return far, rank_in_core[cpu], node, -cpu

    return tuple(sorted(sorted(topology.usable, key=preference)[:wanted]))


def cpus_for_launch(
    *, ranks: int = 1, gpu_pci_bus_id: str | None = None, cpu_quota: float | None = None
) -> tuple[int, ...]:
    """``choose_cpus`` for this machine and a launch on that GPU; empty also where there is no ``taskset``."""
    if shutil.which("taskset") is None:
        return ()
    near = numa_node_of_gpu(gpu_pci_bus_id)
    return choose_cpus(read_topology(), ranks=ranks, near_node=near, cpu_quota=cpu_quota)


def read_topology(*, root: Path = Path("/")) -> Topology:
    """The CPUs of this process and how they share cores and NUMA nodes."""
    usable = frozenset(os.sched_getaffinity(0))
    core_of, node_of = {}, {}
    for cpu in usable:
        folder = root / f"sys/devices/system/cpu/cpu{cpu}"
        siblings = _read_cpu_list(folder / "topology/thread_siblings_list")
        if siblings:
            core_of[cpu] = min(siblings)
        nodes = [int(entry.name[4:]) for entry in folder.glob("node[0-9]*") if entry.name[4:].isdecimal()]
        if nodes:
            node_of[cpu] = nodes[0]
    return Topology(usable=usable, core_of=core_of, node_of=node_of)


def numa_node_of_gpu(pci_bus_id: str | None, *, root: Path = Path("/")) -> int | None:
    """The NUMA node a GPU hangs on; None when it is not known or the machine has only one."""
    if pci_bus_id is None:
        return None
    domain, _, rest = pci_bus_id.lower().partition(":")
    # NVML writes the PCI domain with eight digits, sysfs with four.
    path = root / f"sys/bus/pci/devices/{domain[-4:]}:{rest}/numa_node"
    try:
        node = int(path.read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _read_cpu_list(path: Path) -> frozenset[int]:
    try:
        text = path.read_text().strip()
    except OSError:
        return frozenset()
    cpus: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        cpus |= set(range(int(first), int(last or first) + 1))
    return frozenset(cpus)
