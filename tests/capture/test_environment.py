"""The machine as facts: recorded file trees, GPU sets, advice, and what belongs to the comparability key."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.capture.checks import Status
from perfci.capture.environment import (
    HostFacts,
    advice,
    cpu_list,
    environment_fields,
    merge_software,
    read_host,
    uuid_class,
    visible_gpus,
)
from perfci.capture.nvml import GpuFacts, GpuReading, Nvml, NvmlRefused, PynvmlAdapter, open_nvml
from perfci.model.environment import Environment, key_differences


def gpu(index=0, **facts):
    return GpuFacts(**{"index": index, "uuid": f"GPU-{index}{index}aa-77", "model": "NVIDIA H200", **facts})


HOST = HostFacts(kernel="6.1", usable_cpus=frozenset(range(16)), cpu_model="Xeon")
FULL = gpu(
    memory_bytes=150_754_820_096,
    sm_clock_max_mhz=1980,
    power_limit_w=700,
    power_limit_default_w=700,
    ecc=True,
    mig=False,
    persistence=True,
)


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def every_cpu(name, text):
    return {f"sys/devices/system/cpu/cpu{cpu}/{name}": text for cpu in os.sched_getaffinity(0)}


# --- reading


def test_a_recorded_intel_server(tmp_path):
    root = tree(
        tmp_path,
        {
            "proc/sys/kernel/osrelease": "6.1.0-30-amd64\n",
            "proc/cpuinfo": "processor: 0\nmodel name\t: Intel(R) Xeon(R)  Platinum 8480C\n\nmodel name: X\n",
            "proc/loadavg": "1.25 1.00 0.90 2/1234 5678\n",
            "sys/devices/system/cpu/intel_pstate/no_turbo": "0\n",
            **every_cpu("cpufreq/scaling_governor", "powersave\n"),
        },
    )
    host = read_host(root=root, environment={})
    assert host == HostFacts(
        kernel="6.1.0-30-amd64",
        usable_cpus=frozenset(os.sched_getaffinity(0)),
        cpu_model="Intel(R) Xeon(R) Platinum 8480C",
        governors=("powersave",),
        turbo=True,
        load=1.25,
    )


def test_arm_and_amd(tmp_path):
    arm = tree(tmp_path / "arm", {"proc/cpuinfo": "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n"})
    assert read_host(root=arm, environment={}).cpu_model == "ARM implementer 0x41 part 0xd4f"
    amd = tree(tmp_path / "amd", {"sys/devices/system/cpu/cpufreq/boost": "0\n"})
    assert read_host(root=amd, environment={}).turbo is False


def test_a_machine_that_tells_nothing(tmp_path):
    host = read_host(root=tmp_path, environment={})
    assert (host.cpu_model, host.governors, host.turbo, host.cpu_quota, host.container, host.load) == (
        (None, (), None, None, None, None)
    )
    fields = environment_fields(host, [])
    assert set(fields) == {"kernel", "cpu_count"}
    assert advice(host, []) == ()


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000",
            },
            2.0,
        ),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, None),
        ({"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "400000", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 4.0),
    ],
)
def test_cgroup_limits(tmp_path, files, quota):
    assert read_host(root=tree(tmp_path, files), environment={}).cpu_quota == quota


def test_the_quota_bounds_the_cpus():
    assert HostFacts(kernel="x", usable_cpus=frozenset(range(8)), cpu_quota=1.5).cpu_count == 2
    assert HostFacts(kernel="x", usable_cpus=frozenset(range(8)), cpu_quota=99).cpu_count == 8


@pytest.mark.parametrize(
    ("files", "variables", "container"),
    [
        ({}, {}, None),
        ({".dockerenv": ""}, {}, "docker"),
        ({"run/.containerenv": ""}, {}, "podman"),
        ({"run/.containerenv": 'engine="podman"\nimage="nvcr.io/nvidia/pytorch:25.09"\n'}, {}, None),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes"),
        ({".dockerenv": ""}, {"PERFCI_CONTAINER_IMAGE": "me/train:3"}, "me/train:3"),
    ],
)
def test_containers(tmp_path, files, variables, container):
    expected = container or ("nvcr.io/nvidia/pytorch:25.09" if files else None)
    assert read_host(root=tree(tmp_path, files), environment=variables).container == expected


def test_this_machine():
    host = read_host()
    assert host.cpu_count >= 1
    assert host.kernel
    Environment.of(environment_fields(host, []))


# --- GPUs


def test_cuda_visible_devices():
    gpus = (gpu(0), gpu(1), gpu(2))

    def indices(text):
        return [g.index for g in visible_gpus(gpus, text)]

    assert indices(None) == [0, 1, 2]
    assert indices("2,0") == [2, 0]
    assert indices("") == []
    assert indices("-1") == []
    assert indices("1,7,2") == [1]
    assert indices(" 1 , 2 ") == [1, 2]
    assert indices("GPU-11aa-77,GPU-00") == [1, 0]
    assert indices("1,1") == [1]
    sliced = (gpu(0), gpu(1, mig=True))
    assert [g.index for g in visible_gpus(sliced, "MIG-abc")] == [1]


def test_fields_of_a_gpu_machine():
    fields = environment_fields(HOST, [FULL], driver="580.95", pinned=(2, 3, 4, 8), locked_mhz=1485)
    assert fields == {
        "kernel": "6.1",
        "cpu_model": "Xeon",
        "cpu_count": "16",
        "cpu_affinity": "2-4,8",
        "driver": "580.95",
        "sm_clock_locked_mhz": "1485",
        "gpu_model": "NVIDIA H200",
        "gpu_count": "1",
        "gpu_uuid_class": uuid_class([FULL.uuid]),
        "gpu_memory_mib": "143771",
        "mig": "off",
        "ecc": "on",
        "persistence": "on",
        "sm_clock_max_mhz": "1980",
        "power_limit_w": "700",
    }
    assert FULL.uuid not in str(fields)


def test_two_kinds_of_gpu_in_one_machine():
    assert environment_fields(HOST, [gpu(0, model="B"), gpu(1, model="A"), gpu(2, model="B")])["gpu_model"] == "A + B"


def test_uuid_class_knows_the_set_not_the_order():
    assert uuid_class(["a", "b"]) == uuid_class(["b", "a"]) != uuid_class(["a"])


def key(gpus, driver="580.95", host=HOST, **options):
    return Environment.of(merge_software(environment_fields(host, gpus, driver=driver, **options), {"torch": "2.13"}))


def names(one, other):
    return [difference.field for difference in key_differences(one, other)]


def test_small_differences_do_not_make_runs_incomparable():
    calm = HostFacts(kernel="6.1.1", usable_cpus=frozenset(range(8)), cpu_model="Xeon", load=3, turbo=True)
    other = gpu(3, sm_clock_max_mhz=1979, power_limit_w=699, ecc=False)
    assert names(key([FULL]), key([other], host=calm)) == []


def test_real_differences_do_and_are_named():
    assert names(key([FULL]), key([gpu(model="NVIDIA A100")])) == ["gpu_model"]
    assert names(key([FULL]), key([FULL], driver="570.2")) == ["driver"]
    assert names(key([FULL]), key([gpu(mig=True)])) == ["gpu_model"]
    assert names(key([FULL]), key([FULL], locked_mhz=1485)) == ["sm_clock_locked_mhz"]
    assert names(key([FULL]), key([])) == ["driver", "gpu_model"]


def test_software_comes_from_the_measured_process_and_hardware_does_not():
    merged = merge_software(
        {"gpu_model": "NVIDIA H200"},
        {"torch": "2.13", "cudnn": 91002, "cuda": None, "python": "", "gpu_model": "NVIDIA B300", "world_size": "8"}
        | {"loss": [1.0]},
    )
    assert merged == {"gpu_model": "NVIDIA H200", "torch": "2.13", "cudnn": "91002", "world_size": "8"}
    slice_of_it = {"gpu_model": "NVIDIA H200 MIG 1g.18gb"}
    assert merge_software({"gpu_model": "NVIDIA H200 (MIG)"}, slice_of_it) == slice_of_it
    assert merge_software({}, slice_of_it) == slice_of_it
    assert merge_software({"kernel": "6"}, {"gpu_model": None}) == {"kernel": "6"}


@given(st.sets(st.integers(0, 300)))
def test_cpu_lists_name_exactly_the_cpus(cpus):
    text = cpu_list(tuple(cpus))
    expanded = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        expanded |= set(range(int(first), int(last or first) + 1))
    assert expanded == cpus


# --- advice


def test_a_calm_machine_needs_nothing():
    calm = HostFacts(kernel="x", usable_cpus=frozenset(range(16)), governors=("performance",), turbo=False, load=0.5)
    checks = advice(calm, [FULL], [GpuReading(processes=(5,))], own=frozenset({5}))
    assert {check.status for check in checks} == {Status.OK}
    assert not any(check.todo for check in checks)
    assert len(checks) == 6


def test_a_noisy_machine_is_told_how_to_mend_each_thing():
    noisy = HostFacts(
        kernel="x",
        usable_cpus=frozenset(range(16)),
        governors=("performance", "powersave"),
        turbo=True,
        load=9,
        cpu_quota=2.5,
    )
    bad = gpu(1, persistence=False, mig=True, power_limit_w=500, power_limit_default_w=700)
    checks = advice(noisy, [bad], [GpuReading(processes=(1234,))])
    assert [check.name for check in checks if check.status is Status.WARN] == [
        "CPU governor", "CPU turbo", "CPU load", "CPU quota",
        "GPU 1 persistence mode", "GPU 1 MIG", "GPU 1 power limit", "GPU 1 processes",
    ]  # fmt: skip
    assert all(check.todo for check in checks)
    assert "1234" in checks[-1].seen


# --- the adapter


def test_without_a_driver_there_is_no_nvml():
    with open_nvml() as nvml:
        if nvml is not None:
            pytest.skip("this machine has a GPU")
        assert nvml is None


class FakePynvml:
    """The module as the adapter sees it: one GPU that knows only what ``answers`` holds, else raises NVMLError."""

    class NVMLError(Exception):
        pass

    class NVMLError_NoPermission(NVMLError):  # noqa: N801, N818  (pynvml's own name)
        pass

    def __init__(self, **answers):
        self.answers = answers

    def __getattr__(self, name):
        real = __import__("pynvml")
        assert hasattr(real, name), f"pynvml has no {name}"
        if not name.startswith("nvml"):
            return getattr(real, name)

        def call(*_):
            answer = self.answers.get(name, self.NVMLError("Not Supported"))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class Struct:
    def __init__(self, **fields):
        self.__dict__.update(fields)


HANDLE = {"nvmlDeviceGetCount": 1, "nvmlDeviceGetHandleByIndex": "h", "nvmlDeviceGetHandleByUUID": "h"}


def test_the_adapter_asks_functions_that_exist_and_takes_units_over():
    adapter: Nvml = PynvmlAdapter(
        FakePynvml(
            **HANDLE,
            nvmlDeviceGetUUID="GPU-1",
            nvmlDeviceGetName="NVIDIA H200",
            nvmlDeviceGetPciInfo=Struct(busId=b"00000000:18:00.0"),
            nvmlDeviceGetMemoryInfo=Struct(total=1 << 30, used=5),
            nvmlDeviceGetMaxClockInfo=1980,
            nvmlDeviceGetEnforcedPowerLimit=700_000,
            nvmlDeviceGetEccMode=[1, 1],
            nvmlDeviceGetMigMode=[0, 1],
            nvmlDeviceGetPersistenceMode=1,
            nvmlSystemGetDriverVersion="580.95",
            nvmlDeviceGetCurrentClocksThrottleReasons=0x244,
            nvmlDeviceGetComputeRunningProcesses=[Struct(pid=9), Struct(pid=3), Struct(pid=9)],
            nvmlDeviceGetUtilizationRates=Struct(gpu=98, memory=1),
        )
    )
    assert adapter.driver() == "580.95"
    assert adapter.gpus() == (
        gpu(
            uuid="GPU-1", pci_bus_id="00000000:18:00.0", memory_bytes=1 << 30, sm_clock_max_mhz=1980,
            power_limit_w=700, ecc=True, mig=False, persistence=True,
        ),
    )  # fmt: skip
    seen = adapter.read("GPU-1")
    assert (seen.processes, seen.utilization_percent, seen.memory_used_bytes) == ((3, 9), 98, 5)
    assert seen.clock_reasons == 0x44
    assert (seen.sm_clock_mhz, seen.power_mw) == (None, None)


def test_what_a_gpu_does_not_tell_is_absent_not_zero():
    silent = PynvmlAdapter(FakePynvml(**HANDLE, nvmlDeviceGetUUID="GPU-1", nvmlDeviceGetName="Old"))
    assert silent.gpus() == (gpu(uuid="GPU-1", model="Old"),)
    assert silent.read("GPU-1") == GpuReading()
    assert PynvmlAdapter(FakePynvml()).gpus() == ()
    assert PynvmlAdapter(FakePynvml()).read("GPU-1") == GpuReading()


def test_orders_are_refused_with_the_reason():
    for error, permission in ((FakePynvml.NVMLError_NoPermission("no"), True), (FakePynvml.NVMLError("no"), False)):
        adapter = PynvmlAdapter(
            FakePynvml(**HANDLE, nvmlDeviceSetGpuLockedClocks=error, nvmlDeviceResetGpuLockedClocks=error)
        )
        for order in (lambda a=adapter: a.lock_clocks("GPU-1", 1485), lambda a=adapter: a.release_clocks("GPU-1")):
            with pytest.raises(NvmlRefused) as caught:
                order()
            assert caught.value.permission is permission
