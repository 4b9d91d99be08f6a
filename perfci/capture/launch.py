"""One process launch under a collector: from a workload and settings to a trace and sidecars, or a clear error."""

import importlib.util
import os
import shutil
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from perfci.capture.argv import CaptureTrigger, profile_argv
from perfci.capture.export import export_sqlite, require_space
from perfci.capture.failures import Remains, launch_failure, nsys_broke, qdstrm_in
from perfci.capture.nsys import NsysTool
from perfci.capture.process_environment import child_environment
from perfci.capture.scrub import replacements, scrub_export, scrub_text
from perfci.capture.sidecar import read_sidecar
from perfci.capture.supervise import Outcome, supervise
from perfci.errors import MeasurementError
from perfci.model.settings import Collector, MeasureSettings, WorkloadSpec
from perfci.model.sidecar import Sidecar

MIN_FREE_BYTES = 512 << 20
"""Space that must be free before a launch: a report and its export of a usual capture window, with room to spare."""

_START_TRIES = 3

_LOG = "launch.log"
_SIDECAR = "sidecar.json"
_REPORT = "report.nsys-rep"
_EXPORT = "trace.sqlite"
_TORCH_TRACE = "trace.json"
_IMPORTS = "imports"
_AUTOPHASE = Path("perfci", "autophase", "inject")
"""Folder with the sitecustomize module that marks unmodified scripts, under the folder of lent imports."""
_OUTPUT_PIPE = "output.pipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What one launch left, complete and checked: the traces (SQLite exports of nsys, or Kineto JSON, one per rank, for
    the collector torch), nsys's own report, the sidecars sorted by rank, and the log."""

    collector: Collector
    trace_paths: tuple[Path, ...]
    report_path: Path | None
    sidecars: tuple[Sidecar, ...]
    log_path: Path
    started_at: datetime
    duration_ns: int


def chosen_collector(settings: MeasureSettings, tool: NsysTool | None) -> Collector:
    """The collector that a launch will use. AUTO is nsys when there is one. MeasurementError when nsys is asked for and
    missing."""
    if settings.collector is Collector.AUTO:
        return Collector.TORCH if tool is None else Collector.NSYS
    if settings.collector is Collector.NSYS and tool is None:
        raise MeasurementError(
            "nsys is not installed",
            wanted="nsys, as `collector: nsys` says",
            todo="install Nsight Systems (`perfci doctor` says how), or set `collector: auto`",
        )
    return settings.collector


def _search_path(parent: Mapping[str, str]) -> str:
    """PATH of the workload. perfci's own environment comes first when none is activated and it has torch: `python` is
    then the Python that perfci was started with."""
    path = parent.get("PATH", os.defpath)
    activated = parent.get("VIRTUAL_ENV") or parent.get("CONDA_PREFIX")
    own = Path(sys.executable).parent
    if activated or sys.prefix == sys.base_prefix or importlib.util.find_spec("torch") is None:
        return path
    return os.pathsep.join([str(own), path])


def _offer_imports(folder: Path) -> dict[str, str]:
    """Make ``perfci`` importable for the workload, whose own environment may lack it, and lend it the ``nvtx`` package.

    Both sides of a comparison then run the same `perfci.phases`. Only links to these packages are offered, so nothing
    else of perfci's environment leaks into the measured one.
    """
    package = Path(__file__).resolve().parents[1]
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lent").mkdir(parents=True)
    (folder / package.name).symlink_to(package)
    nvtx = importlib.util.find_spec("nvtx")
    if nvtx is None or nvtx.origin is None:
        return {"PYTHONPATH": str(folder)}
    (folder / "lent" / "nvtx").symlink_to(Path(nvtx.origin).parent)
    return {"PYTHONPATH": str(folder), "PERFCI_NVTX_PATH": str(folder / "lent")}


def _environment(
    workload: WorkloadSpec,
    settings: MeasureSettings,
    *,
    out_dir: Path,
    capture: str,
    imports: Mapping[str, str],
    extra: Mapping[str, str],
) -> dict[str, str]:
    environment = child_environment(os.environ, allow=settings.environment_allow)
    environment["PATH"] = _search_path(os.environ)
    environment.update(workload.environment)
    others = [imports["PYTHONPATH"], environment.get("PYTHONPATH", "")]
    environment.update(imports)
    if workload.autophase:
        others.insert(0, str(Path(imports["PYTHONPATH"], _AUTOPHASE)))
        environment["PERFCI_AUTOPHASE"] = "1"
    environment["PYTHONPATH"] = os.pathsep.join(part for part in others if part)
    environment["PERFCI_SIDECAR"] = str(out_dir / _SIDECAR)
    environment["PERFCI_CAPTURE"] = capture
    environment["PERFCI_WARMUP_STEPS"] = str(settings.warmup_steps)
    environment["PERFCI_WALL_STEPS"] = str(settings.wall_steps)
    environment["PERFCI_CAPTURE_STEPS"] = str(settings.capture_steps)
    if capture == Collector.TORCH:
        environment["PERFCI_TORCH_TRACE"] = str(out_dir / _TORCH_TRACE)
    if capture == CaptureTrigger.NVTX:
        environment["NSYS_NVTX_PROFILER_REGISTER_ONLY"] = "0"  # the range's name is not a registered string everywhere
    environment.update(extra)
    return environment


def _prepare_folder(out_dir: Path) -> None:
    """An existing, writable, empty enough folder. What an earlier launch left under our names goes."""
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        _clear(out_dir)
        probe = out_dir / ".writable"
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise MeasurementError(
            f"the folder {out_dir} cannot be written: {error.strerror}",
            wanted="a folder for the profile, the log and the sidecar",
            todo="choose a folder that this user owns, or mend its permissions",
        ) from error
    require_space(out_dir, MIN_FREE_BYTES)


def _clear(out_dir: Path) -> None:
    for pattern in ("sidecar*.json", "report*", "trace*", _LOG, _OUTPUT_PIPE):
        for old in out_dir.glob(pattern):
            old.unlink()


def _command(workload: WorkloadSpec, *, checkout: Path, directory: Path, path: str) -> tuple[str, ...]:
    """The workload's command with its program found, or MeasurementError."""
    if not checkout.is_dir():
        raise MeasurementError(
            f"the checkout {checkout} is gone: an earlier launch of {workload.name}, or somebody else, deleted it",
            wanted="a workload that leaves its folder as it is, since all launches of a revision run there",
            todo="see what the command deletes when it ends or fails",
        )
    if not directory.is_dir():
        raise MeasurementError(
            f"the folder of workload {workload.name} does not exist in this revision: {directory}",
            wanted="the folder that `directory` names, or that of its workload.yaml",
            todo="commit the folder, or measure the working tree with --dirty",
        )
    program = workload.command[0]
    found = str(directory / program) if "/" in program else shutil.which(program, path=path)
    if found is None or shutil.which(found) is None:
        raise MeasurementError(
            f"the program {program!r} of workload {workload.name} is not found or must not be executed",
            wanted="a program on PATH, or a path relative to the workload's folder",
            todo="check `command`; a `prepare` command can build an environment first",
        )
    return (found, *workload.command[1:])


def _with_output_to(pipe: Path, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command with its output sent to a named pipe: nsys would copy it into the report, whatever its size."""
    return ("/bin/sh", "-c", 'pipe=$1; shift; exec "$@" >"$pipe" 2>&1', "sh", str(pipe), *command)


def _pinned(command: tuple[str, ...], cpus: tuple[int, ...]) -> tuple[str, ...]:
    """The command on the given cores alone. nsys itself stays free, so that it does not compete for them."""
    if not cpus:
        return command
    taskset = shutil.which("taskset")
    if taskset is None:
        raise MeasurementError(
            "the program taskset is missing, so the launch cannot be pinned to cores",
            todo="install util-linux, or set `pin_cpus: false`",
        )
    return (taskset, "--cpu-list", ",".join(map(str, cpus)), *command)


def _keep_raw_recording(log: str, out_dir: Path, *, keep: bool) -> Path | None:
    """Deal with the raw recording that a failed import or a killed nsys leaves: move it to the log, or delete it."""
    found = [path for path in (qdstrm_in(log), *out_dir.glob("*.qdstrm")) if path is not None and path.is_file()]
    if not keep:
        for path in found:
            path.unlink(missing_ok=True)
        return None
    if not found:
        return None
    return Path(shutil.move(found[0], out_dir / "report.qdstrm"))


def launch(
    workload: WorkloadSpec,
    settings: MeasureSettings,
    *,
    checkout: Path,
    out_dir: Path,
    tool: NsysTool | None,
    cpus: tuple[int, ...] = (),
    has_cuda: bool,
    marker: str | None = None,
    extra_environment: Mapping[str, str] = MappingProxyType({}),
) -> Launched:
    """Run ``workload`` once in ``checkout`` and return what it left in ``out_dir``.

    ``tool`` is the nsys to use (None: there is none), ``cpus`` the cores to pin the workload to (empty: all), and
    ``has_cuda`` says whether the window is opened by the CUDA profiler or its NVTX twin. ``marker`` goes into the
    environment of every process of the launch, by which it is found again (default: a fresh one).
    ``extra_environment`` is set last, over all that perfci itself sets. MeasurementError for whatever keeps the launch
    from being a whole measurement; the log is kept and named in it. No process of the launch is left, also after
    KeyboardInterrupt.
    """
    collector = chosen_collector(settings, tool)
    _prepare_folder(out_dir)
    out_dir = out_dir.resolve()
    capture = Collector.TORCH.value if collector is Collector.TORCH else ("cuda" if has_cuda else "nvtx")
    environment = _environment(
        workload,
        settings,
        out_dir=out_dir,
        capture=capture,
        imports=_offer_imports(out_dir / _IMPORTS),
        extra=extra_environment,
    )
    directory = (checkout / workload.directory).resolve()
    command = _pinned(_command(workload, checkout=checkout, directory=directory, path=environment["PATH"]), cpus)
    report = out_dir / _REPORT
    pipe: Path | None = None
    if collector is Collector.NSYS:
        assert tool is not None
        pipe = out_dir / _OUTPUT_PIPE
        quiet = _with_output_to(pipe, command)
        command = profile_argv(tool, trigger=CaptureTrigger(capture), output=report, command=quiet)
    trace = report if collector is Collector.NSYS else out_dir / _TORCH_TRACE
    try:
        for _ in range(_START_TRIES):
            _clear(out_dir)
            started_at = datetime.now(UTC)
            outcome = supervise(
                command,
                environment=environment,
                directory=directory,
                log_path=out_dir / _LOG,
                timeout_s=settings.launch_timeout_s,
                marker=marker or uuid.uuid4().hex,
                output_pipe=pipe,
            )
            remains = _remains(outcome, workload, settings, out_dir=out_dir, trace=trace)
            if not nsys_broke(remains):
                break
    except OSError as error:
        if not (out_dir / _LOG).exists():
            raise MeasurementError(
                f"the folder of the launch was emptied or deleted while it ran: {out_dir}",
                wanted="its log and its trace",
                todo="see what the command deletes when it ends or fails",
            ) from error
        raise MeasurementError(f"{command[0]} cannot be started: {error}", todo="see `perfci doctor`") from error
    finally:
        shutil.rmtree(out_dir / _IMPORTS, ignore_errors=True)
    failure = launch_failure(remains)
    if failure is not None:
        raise failure
    private = replacements(checkout=checkout, out_dir=out_dir, tool=tool.path if tool else None)
    if collector is Collector.NSYS:
        assert tool is not None
        export = out_dir / _EXPORT
        export_sqlite(tool, report, export)
        scrub_export(export, private)
        traces: tuple[Path, ...] = (export,)
    else:
        traces = tuple(sorted(out_dir.glob("trace*.json")))
        for path in traces:
            scrub_text(path, private)
    return Launched(
        collector=collector,
        trace_paths=traces,
        report_path=report if collector is Collector.NSYS else None,
        sidecars=remains.sidecars,
        log_path=out_dir / _LOG,
        started_at=started_at,
        duration_ns=outcome.duration_ns,
    )


def _remains(
    outcome: Outcome, workload: WorkloadSpec, settings: MeasureSettings, *, out_dir: Path, trace: Path
) -> Remains:
    """Read what the launch left. Raw recordings are kept only when they are all there is."""
    log = (out_dir / _LOG).read_text(errors="replace")
    sidecars = sorted((read_sidecar(path) for path in out_dir.glob("sidecar*.json")), key=lambda s: s.rank)
    written = trace.is_file() or any(out_dir.glob("trace.rank*.json"))
    return Remains(
        exit_code=outcome.exit_code,
        timeout_s=settings.launch_timeout_s,
        log=log,
        log_path=out_dir / _LOG,
        sidecars=tuple(sidecars),
        trace=trace,
        trace_exists=written,
        disk_full=outcome.disk_full,
        raw_recording=_keep_raw_recording(log, out_dir, keep=outcome.exit_code == 0 and not written),
        autophase=workload.autophase,
    )
