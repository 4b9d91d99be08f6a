"""The choice of CPUs: near the GPU, whole cores first, some left over, nothing on a small machine."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.capture.pinning import (
    CPUS_PER_RANK,
    RESERVED_CPUS,
    Topology,
    choose_cpus,
    cpus_for_launch,
    numa_node_of_gpu,
    read_topology,
)


def server(*, cores_per_node=8, nodes=2, threads=2):
    """CPU numbers as Linux gives them on a two-socket server: second threads come after all first ones."""
    cores = cores_per_node * nodes
    cpus = range(cores * threads)
    return Topology(
        usable=frozenset(cpus),
        core_of={cpu: cpu % cores for cpu in cpus},
        node_of={cpu: (cpu % cores) // cores_per_node for cpu in cpus},
    )


def test_the_node_of_the_gpu_and_one_thread_per_core_come_first():
    machine = server(cores_per_node=12)
    for node in (0, 1):
        chosen = choose_cpus(machine, near_node=node)
        assert len(chosen) == CPUS_PER_RANK
        assert {machine.node_of[cpu] for cpu in chosen} == {node}
        assert len({machine.core_of[cpu] for cpu in chosen}) == CPUS_PER_RANK


def test_second_threads_of_the_near_node_come_before_the_far_node():
    machine = server(cores_per_node=4)
    chosen = choose_cpus(machine, near_node=1)
    assert {machine.node_of[cpu] for cpu in chosen} == {1}
    assert len(chosen) == 8


def test_ranks_ask_for_more_and_some_cpus_stay_free():
    machine = server()
    assert len(choose_cpus(machine, ranks=2)) == 2 * CPUS_PER_RANK
    assert len(choose_cpus(machine, ranks=8)) == 32 - RESERVED_CPUS


def test_cpu_0_is_left_to_interrupts():
    assert 0 not in choose_cpus(Topology(usable=frozenset(range(16))))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_small_machine_is_left_alone(count):
    assert choose_cpus(Topology(usable=frozenset(range(count)))) == ()


def test_many_ranks_on_few_cpus_are_left_alone():
    assert choose_cpus(Topology(usable=frozenset(range(8))), ranks=4) == ()


def test_a_cgroup_quota_counts():
    machine = server()
    assert choose_cpus(machine, cpu_quota=3.0) == ()
    assert len(choose_cpus(machine, cpu_quota=6.5)) == 4


@given(
    usable=st.sets(st.integers(0, 63), min_size=1),
    ranks=st.integers(1, 8),
    near=st.none() | st.integers(0, 3),
    quota=st.none() | st.floats(0.1, 80),
    threads=st.integers(1, 2),
)
def test_laws(usable, ranks, near, quota, threads):
    machine = Topology(
        usable=frozenset(usable),
        core_of={cpu: cpu // threads for cpu in usable},
        node_of={cpu: cpu // 16 for cpu in usable},
    )
    chosen = choose_cpus(machine, ranks=ranks, near_node=near, cpu_quota=quota)
    assert chosen == choose_cpus(machine, ranks=ranks, near_node=near, cpu_quota=quota)
    assert set(chosen) <= usable
    assert list(chosen) == sorted(set(chosen))
    assert not chosen or 2 * ranks <= len(chosen) <= min(8 * ranks, len(usable) - RESERVED_CPUS)
    far = [cpu for cpu in chosen if near is not None and cpu // 16 != near]
    if far:  # only when the near node is used up
        assert {cpu for cpu in usable if cpu // 16 == near} <= set(chosen)


def test_topology_from_sysfs(tmp_path):
    cpu = min(os.sched_getaffinity(0))
    folder = tmp_path / f"sys/devices/system/cpu/cpu{cpu}"
    (folder / "topology").mkdir(parents=True)
    (folder / "node3").mkdir()
    (folder / "topology/thread_siblings_list").write_text(f"{cpu},{cpu + 96}\n")
    seen = read_topology(root=tmp_path)
    assert seen.usable == frozenset(os.sched_getaffinity(0))
    assert (seen.core_of, seen.node_of) == ({cpu: cpu}, {cpu: 3})
    assert read_topology().usable


def test_numa_node_of_a_gpu(tmp_path):
    folder = tmp_path / "sys/bus/pci/devices/0000:18:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("1\n")
    assert numa_node_of_gpu("00000000:18:00.0", root=tmp_path) == 1
    (folder / "numa_node").write_text("-1\n")
    assert numa_node_of_gpu("00000000:18:00.0", root=tmp_path) is None
    assert numa_node_of_gpu("00000000:99:00.0", root=tmp_path) is None
    assert numa_node_of_gpu(None, root=tmp_path) is None


def test_this_machine(monkeypatch, tmp_path):
    chosen = cpus_for_launch()
    assert set(chosen) <= os.sched_getaffinity(0)
    assert len(chosen) <= max(0, len(os.sched_getaffinity(0)) - RESERVED_CPUS)
    monkeypatch.setattr("perfci.capture.pinning.read_topology", server)
    assert len(cpus_for_launch()) == CPUS_PER_RANK
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cpus_for_launch() == ()  # no taskset


def test_ranks_must_make_sense():
    with pytest.raises(ValueError, match="ranks"):
        choose_cpus(server(), ranks=0)
