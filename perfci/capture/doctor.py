"""``perfci doctor``: what this machine can do, and how to mend what it cannot.

``look`` gathers facts and never fails; ``judge`` is the pure table from facts to checks.
"""

import os
import platform
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from perfci.capture.checks import Check, Status
from perfci.capture.environment import HostFacts, advice, read_host, visible_gpus
from perfci.capture.git import run_git
from perfci.capture.lock import lock_directory
from perfci.capture.measurable import Abilities, WantedGate, gate_checks
from perfci.capture.nsys import NsysTool
from perfci.capture.nsys import find_nsys as find_installed_nsys
from perfci.capture.nvml import GpuFacts, GpuReading, open_nvml
from perfci.capture.repository import Repository
from perfci.capture.sampler import own_processes
from perfci.errors import PerfciError
from perfci.model.settings import Collector

OLDEST_GIT = (2, 31)
OLDEST_PYTHON = (3, 11)
NEWEST_NVTX = (0, 2, 11)
"""Ranges of newer nvtx packages are not recorded by the nsys versions that were measured."""

LITTLE_DISK_BYTES = 5 << 30
"""Two checkouts, their builds, and reports of some MB per launch."""

NO_DISK_BYTES = 200 << 20

PERF_EVENT_PARANOID_LIMIT = 2
"""Up to this value of kernel.perf_event_paranoid a user may count the instructions of own processes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nsys:
    """The profiler that would be used, or why there is none."""

    path: str = ""
    version: str = ""
    problem: str = ""
    todo: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All facts the checks rest on. None: could not be found out, or is not there."""

    host: HostFacts
    python: tuple[int, ...] = ()
    git_version: str | None = None
    repository_problem: str = ""
    nsys: Nsys = Nsys()
    driver: str | None = None
    gpus: tuple[GpuFacts, ...] = ()
    readings: tuple[GpuReading, ...] = ()
    own: frozenset[int] = frozenset()
    torch_version: str | None = None
    torch_cuda: str | None = None
    nvtx_version: str | None = None
    database: str = ""
    database_problem: str = ""
    lock_folder: str = ""
    lock_problem: str = ""
    free_bytes: int | None = None
    perf_event_paranoid: int | None = None
    counters_for_root_only: bool | None = None
    root_user: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the configuration asks of the machine."""

    collector: Collector = Collector.AUTO
    gates: tuple[WantedGate, ...] = ()


def run_checks(
    directory: Path,
    *,
    find_nsys: Callable[[], NsysTool] = find_installed_nsys,
    database: Path | None = None,
    wanted: Wanted | None = None,
) -> tuple[Check, ...]:
    """All checks for measuring in ``directory`` with a database file ``database`` (None: a server, not checked)."""
    return judge(look(directory, find_nsys=find_nsys, database=database), wanted or Wanted())


def judge(seen: Seen, wanted: Wanted) -> tuple[Check, ...]:
    """The table: facts to checks, always in this order."""
    return (
        _python(seen),
        _git(seen),
        _repository(seen),
        _nsys(seen, wanted.collector),
        _gpu(seen),
        _torch(seen),
        _nvtx(seen),
        *_database(seen),
        _lock(seen),
        _disk(seen),
        *_permissions(seen),
        _container(seen),
        *gate_checks(wanted.gates, _abilities(seen, wanted.collector)),
        *advice(seen.host, seen.gpus, seen.readings, own=seen.own),
    )


def _python(seen: Seen) -> Check:
    text = ".".join(map(str, seen.python))
    if seen.python >= OLDEST_PYTHON:
        return Check(name="python", status=Status.OK, seen=text)
    wanted = ".".join(map(str, OLDEST_PYTHON))
    return Check(name="python", status=Status.FAIL, seen=text, todo=f"install Python {wanted} or newer")


def _git(seen: Seen) -> Check:
    if seen.git_version is None:
        return Check(name="git", status=Status.FAIL, seen="not found", todo="install git (apt-get install git)")
    if _numbers(seen.git_version) >= OLDEST_GIT:
        return Check(name="git", status=Status.OK, seen=seen.git_version)
    wanted = ".".join(map(str, OLDEST_GIT))
    return Check(
        name="git", status=Status.WARN, seen=seen.git_version, todo=f"perfci is made for git {wanted} or newer"
    )


def _repository(seen: Seen) -> Check:
    if seen.repository_problem:
        todo = "run perfci inside a git checkout; `perfci extract` and `perfci import` need none"
        return Check(name="repository", status=Status.WARN, seen=seen.repository_problem, todo=todo)
    return Check(name="repository", status=Status.OK, seen="a git checkout")


def _nsys(seen: Seen, collector: Collector) -> Check:
    nsys = seen.nsys
    if nsys.problem:
        todo = nsys.todo or "install NVIDIA Nsight Systems, or set PERFCI_NSYS to the program"
        problem = _collector_problem(seen, collector)
        return Check(name="nsys", status=Status.FAIL if problem else Status.WARN, seen=nsys.problem, todo=todo)
    return Check(name="nsys", status=Status.OK, seen=f"{nsys.version} ({nsys.path})")


def _collector_problem(seen: Seen, collector: Collector) -> str:
    """Why no profiler can be used, empty when one can. Without nsys `collector: auto` takes torch's own, if there is a
    torch."""
    if not seen.nsys.problem or (collector is not Collector.NSYS and seen.torch_version is not None):
        return ""
    return f"there is no profiler: {seen.nsys.problem}" + (
        ", and `collector: nsys` takes no other" if collector is Collector.NSYS else ", and no torch to take its own"
    )


def _abilities(seen: Seen, collector: Collector) -> Abilities:
    return Abilities(
        gpu=bool(seen.gpus),
        collector_problem=_collector_problem(seen, collector),
        counts_instructions=seen.perf_event_paranoid is None or _may_count_instructions(seen),
        mig=any(gpu.mig for gpu in seen.gpus),
    )


def _may_count_instructions(seen: Seen) -> bool:
    return seen.root_user or (seen.perf_event_paranoid or 0) <= PERF_EVENT_PARANOID_LIMIT


def _gpu(seen: Seen) -> Check:
    if not seen.gpus:
        return Check(
            name="gpu",
            status=Status.WARN,
            seen="no NVIDIA GPU or driver: phases and wall time can be measured, GPU work cannot",
            todo="on a GPU machine: install the driver; in a container: docker run --gpus all",
        )
    models = ", ".join(f"{gpu.index}: {gpu.model}" for gpu in seen.gpus)
    return Check(name="gpu", status=Status.OK, seen=f"{models}; driver {seen.driver or 'not told'}")


def _torch(seen: Seen) -> Check:
    if seen.torch_version is None:
        todo = "pip install torch, where the workload needs it"
        return Check(name="torch", status=Status.WARN, seen="not installed in perfci's Python", todo=todo)
    built = f"for CUDA {seen.torch_cuda}" if seen.torch_cuda else "for CPU only"
    text = f"{seen.torch_version}, built {built}"
    if seen.gpus and not seen.torch_cuda:
        todo = "install a CUDA build of torch: this one leaves the GPU idle"
        return Check(name="torch", status=Status.WARN, seen=text, todo=todo)
    return Check(name="torch", status=Status.OK, seen=text)


def _nvtx(seen: Seen) -> Check:
    newest = ".".join(map(str, NEWEST_NVTX))
    if seen.nvtx_version is None:
        status = Status.OK if seen.torch_cuda else Status.FAIL
        todo = "" if seen.torch_cuda else f"pip install 'nvtx<={newest}': without CUDA torch marks no phases itself"
        return Check(name="nvtx", status=status, seen="not installed", todo=todo)
    if _numbers(seen.nvtx_version) > NEWEST_NVTX and not seen.torch_cuda:
        todo = f"pip install 'nvtx<={newest}': ranges of newer ones are not recorded by nsys 2022.4 and 2023.4"
        return Check(name="nvtx", status=Status.WARN, seen=seen.nvtx_version, todo=todo)
    return Check(name="nvtx", status=Status.OK, seen=seen.nvtx_version)


def _database(seen: Seen) -> list[Check]:
    if not seen.database:
        return []
    if seen.database_problem:
        todo = "make the folder writable, or name another database with --db"
        return [Check(name="database", status=Status.FAIL, seen=seen.database_problem, todo=todo)]
    return [Check(name="database", status=Status.OK, seen=f"{seen.database} is writable")]


def _lock(seen: Seen) -> Check:
    if seen.lock_problem:
        todo = "set PERFCI_LOCK_DIR to a folder in which every user who measures may write"
        return Check(name="lock folder", status=Status.FAIL, seen=seen.lock_problem, todo=todo)
    return Check(name="lock folder", status=Status.OK, seen=seen.lock_folder)


def _disk(seen: Seen) -> Check:
    if seen.free_bytes is None:
        return Check(name="disk", status=Status.WARN, seen="free space not known")
    text = f"{seen.free_bytes / (1 << 30):.1f} GiB free"
    status = Status.OK
    if seen.free_bytes < LITTLE_DISK_BYTES:
        status = Status.FAIL if seen.free_bytes < NO_DISK_BYTES else Status.WARN
    todo = "" if status is Status.OK else "free some: reports and prepared checkouts lie under .perfci"
    return Check(name="disk", status=status, seen=text, todo=todo)


def _permissions(seen: Seen) -> list[Check]:
    checks = []
    if seen.perf_event_paranoid is not None:
        allowed = _may_count_instructions(seen)
        checks.append(
            Check(
                name="perf events",
                status=Status.OK if allowed else Status.WARN,
                seen=f"kernel.perf_event_paranoid = {seen.perf_event_paranoid}"
                + ("" if allowed else ": CPU instructions are not counted"),
                todo="" if allowed else f"sudo sysctl kernel.perf_event_paranoid={PERF_EVENT_PARANOID_LIMIT}",
            )
        )
    if seen.counters_for_root_only is not None:
        # Tracing needs no counters, so this is never more than a remark.
        text = "for root only; perfci's traces do not need them" if seen.counters_for_root_only else "for every user"
        checks.append(Check(name="GPU counters", status=Status.OK, seen=text))
    return checks


def _container(seen: Seen) -> Check:
    return Check(name="container", status=Status.OK, seen=seen.host.container or "none")


def look(
    directory: Path,
    *,
    find_nsys: Callable[[], NsysTool] = find_installed_nsys,
    database: Path | None = None,
    root: Path = Path("/"),
    environment: Mapping[str, str] = os.environ,
) -> Seen:
    """The facts of this machine. What cannot be found out is left out; nothing is changed."""
    git_version, repository_problem = _look_at_git(directory)
    locks = lock_directory()
    driver, gpus, readings = _look_at_gpus(environment)
    return Seen(
        host=read_host(root=root, environment=environment),
        python=tuple(int(part) for part in platform.python_version_tuple() if part.isdecimal()),
        git_version=git_version,
        repository_problem=repository_problem,
        nsys=_look_at_nsys(find_nsys),
        driver=driver,
        gpus=gpus,
        readings=readings,
        own=own_processes(),
        torch_version=_version("torch"),
        torch_cuda=_torch_cuda(),
        nvtx_version=_version("nvtx"),
        database="" if database is None else str(database),
        database_problem="" if database is None else _write_problem(database),
        lock_folder=str(locks),
        lock_problem=_write_problem(locks / "any"),
        free_bytes=_free_bytes(directory),
        perf_event_paranoid=_integer(root / "proc/sys/kernel/perf_event_paranoid"),
        counters_for_root_only=_counters_for_root_only(root),
        root_user=os.geteuid() == 0,
    )


def _look_at_git(directory: Path) -> tuple[str | None, str]:
    try:
        version = run_git(directory, "--version").out.removeprefix("git version ").strip()
    except PerfciError as error:
        return None, error.seen
    try:
        Repository.discover(directory)
    except PerfciError as error:
        return version, error.seen
    return version, ""


def _look_at_nsys(find_nsys: Callable[[], NsysTool]) -> Nsys:
    try:
        tool = find_nsys()
    except PerfciError as error:
        return Nsys(problem=error.seen, todo=error.todo)
    return Nsys(path=str(tool.path), version=tool.version)


def _look_at_gpus(
    environment: Mapping[str, str],
) -> tuple[str | None, tuple[GpuFacts, ...], tuple[GpuReading, ...]]:
    with open_nvml() as nvml:
        if nvml is None:
            return None, (), ()
        gpus = visible_gpus(nvml.gpus(), environment.get("CUDA_VISIBLE_DEVICES"))
        return nvml.driver(), gpus, tuple(nvml.read(gpu.uuid) for gpu in gpus)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _torch_cuda() -> str | None:
    # Read, not imported: importing torch takes seconds and may itself be what is broken.
    spec = util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return None
    found = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def _write_problem(file: Path) -> str:
    """Why ``file`` could not be written or created, empty when it could. Touches nothing."""
    if file.is_dir():
        return f"{file} is a folder"
    if file.exists():
        return "" if os.access(file, os.W_OK) else f"{file} is not writable"
    folder = next(parent for parent in file.absolute().parents if parent.exists())
    if not folder.is_dir():
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"{folder} is not writable"


def _free_bytes(directory: Path) -> int | None:
    try:
        return shutil.disk_usage(directory).free
    except OSError:
        return None


def _integer(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _counters_for_root_only(root: Path) -> bool | None:
    try:
        text = (root / "proc/driver/nvidia/params").read_text()
    except OSError:
        return None
    found = re.search(r"^RmProfilingAdminOnly:\s*(\d+)", text, re.MULTILINE)
    return found[1] != "0" if found else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])
