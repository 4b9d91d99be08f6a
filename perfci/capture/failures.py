"""Why a launch is no measurement: from what is left of it to an error that a user can act on. Pure."""

import re
import signal
from dataclasses import dataclass
from pathlib import Path

from perfci.capture.export import last_lines
from perfci.errors import MeasurementError
from perfci.model.sidecar import Sidecar, SidecarStatus

_QDSTRM = re.compile(r"Generating '(/[^'\n]+\.qdstrm)'")

_DISK_FULL = (
    "the disk filled up during the launch",
    "make room where the runs are kept and in the temporary folder, or capture fewer steps",
)

_NSYS_SAYS = (
    (
        re.compile(r"unrecogni[sz]ed option '?(--[\w-]+)", re.IGNORECASE),
        "this nsys does not know the option {0}",
        "install a newer Nsight Systems, or name one in PERFCI_NSYS",
    ),
    (re.compile(r"no space left on device", re.IGNORECASE), *_DISK_FULL),
    (
        re.compile(r"(?:Program|Executable) not found: (\S+)"),
        "nsys does not find the program {0}",
        "check `command` of the workload and PATH",
    ),
    (
        re.compile(r"(?:CUDA profiling (?:is not|was not)|CUPTI_ERROR_INSUFFICIENT_PRIVILEGES)[^\n]*", re.IGNORECASE),
        "nsys may not trace CUDA here",
        "see `perfci doctor`; in a container, start it with the profiling capabilities of the GPU driver",
    ),
)

_NSYS_USUAL = re.compile(
    r"^(?:Generated:|Generating '[^'\n]*'|\[\d/\d\] \[[^\n]*|\s+/[^\n]*\.nsys-rep|"
    r"Capture range (?:started|ended) in the application\.)[ ]*$",
    re.MULTILINE,
)
"""What nsys says of every launch: it would stand where a reader looks for the last words of the workload."""

_NSYS_BROKE = re.compile(
    r"QuadDCommon::|Connection to the Agent lost|^(?:End of file|Connection reset by peer)$", re.MULTILINE
)


def qdstrm_in(log: str) -> Path | None:
    """The raw recording that nsys says it makes before it imports it; None when it says nothing."""
    found = _QDSTRM.findall(log)
    return Path(found[-1]) if found else None


def _ending(exit_code: int) -> str:
    """How a process ended, in words: shells and nsys tell a signal as 128 + its number, Python as its negative."""
    number = -exit_code if exit_code < 0 else exit_code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"exit code {exit_code}"
    return f"signal {name}" if exit_code < 0 else f"exit code {exit_code}, signal {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """What is left of a launch. ``exit_code`` None: ended for its time. ``trace`` is the file that the collector had to
    write, ``raw_recording`` an unimported one that nsys left."""

    exit_code: int | None
    timeout_s: float
    log: str
    log_path: Path
    sidecars: tuple[Sidecar, ...]
    trace: Path
    trace_exists: bool
    disk_full: bool = False
    raw_recording: Path | None = None
    autophase: bool = False

    @property
    def unfinished(self) -> Sidecar | None:
        """The rank that says best why not all steps were measured: when one fails, torchrun kills the others."""
        found = [s for s in self.sidecars if s.status is not SidecarStatus.COMPLETE]
        return next((s for s in found if "killed" not in s.reason), found[0] if found else None)

    def error(self, seen: str, *, wanted: str = "", todo: str = "") -> MeasurementError:
        """An error that names the log and quotes its end."""
        words = last_lines(_NSYS_USUAL.sub("", self.log))
        tail = f"its last lines:\n    {words}" if words else "the workload printed nothing"
        return MeasurementError(f"{seen}\n    log: {self.log_path}\n    {tail}", wanted=wanted, todo=todo)


_MARKS_WITHOUT_LOOP = "autophase adds nothing, and steps are measured only in phases.loop"
"""How autophase ends its note on a script that has marks and no loop (perfci.autophase.hooks)."""


def _complaint(remains: Remains) -> tuple[str, str] | None:
    """What nsys or the disk says about a launch that left no trace."""
    if remains.disk_full:
        return _DISK_FULL
    for pattern, seen, todo in _NSYS_SAYS:
        found = pattern.search(remains.log)
        if found:
            return seen.format(*found.groups()), todo
    return None


def launch_failure(remains: Remains) -> MeasurementError | None:
    """The first reason why this launch must not count, or None when it is whole."""
    return _process_failure(remains) or _loop_failure(remains) or _trace_failure(remains)


def nsys_broke(remains: Remains) -> bool:
    """Whether nsys itself broke, whatever the workload did: a second try is worth it.

    Seen with nsys 2022.4 on busy machines, where its processes miss each other (``sem_open: No such file``,
    ``Connection to the Agent lost``, ``Connection reset by peer``), and beside the nsys of another user
    (``End of file``).
    """
    return remains.exit_code is not None and not remains.trace_exists and _NSYS_BROKE.search(remains.log) is not None


def _where_it_was(remains: Remains) -> str:
    """What a launch that was ended for its time was doing then."""
    if not remains.sidecars:
        return "it had not reached its first steps" if remains.autophase else "it had not reached phases.loop"
    if remains.unfinished is None:
        return "all steps were measured, and what follows them did not end"
    # Without a word is how perfci itself ended it: no news.
    reason = remains.unfinished.reason
    return "it was still in its training loop" if "without a word" in reason else reason


def _process_failure(remains: Remains) -> MeasurementError | None:
    reason = remains.unfinished.reason if remains.unfinished else ""
    if remains.exit_code is None:
        return remains.error(
            f"the launch was ended after {remains.timeout_s:g} s; {_where_it_was(remains)}",
            wanted="a launch that ends by itself",
            todo="raise `timeout_s`, lower the steps, or mend a hang",
        )
    if remains.exit_code == 0:
        return None
    complaint = _complaint(remains)
    if complaint and not remains.sidecars:
        return remains.error(complaint[0], todo=complaint[1])
    return remains.error(
        f"the workload failed with {_ending(remains.exit_code)}{f': {reason}' if reason else ''}",
        wanted="exit code 0",
        todo="run the workload's command by hand, mend it, and measure again",
    )


def _loop_failure(remains: Remains) -> MeasurementError | None:
    if not remains.sidecars and remains.autophase and _MARKS_WITHOUT_LOOP in remains.log:
        return remains.error(
            "the script marks its phases itself, so autophase added nothing; but it never entered phases.loop",
            wanted="a training loop `for batch in phases.loop(loader)` around the marks: steps are measured there",
            todo="add it to the script (docs/instrumenting.md), or take the marks away and leave all to autophase",
        )
    if not remains.sidecars and remains.autophase:
        return remains.error(
            "the script ended without reaching the capture window: no optimizer step was seen in any of its processes",
            wanted="a Python script that steps an optimizer of torch.optim outside of compiled code",
            todo="see docs/autophase.md for what is seen, or mark the loop with phases.loop (docs/instrumenting.md)",
        )
    if not remains.sidecars:
        return remains.error(
            "the workload ended without reaching the capture window: it never entered phases.loop",
            wanted="a training loop `for batch in phases.loop(loader)`",
            todo="add it to the script (docs/instrumenting.md), or let perfci find the steps: `autophase: true` "
            "(docs/autophase.md)",
        )
    short = remains.unfinished
    if short is not None:
        return remains.error(
            f"the workload ended before the asked steps: {short.reason}",
            wanted=f"{short.asked_warmup_steps} warm-up, {short.asked_wall_steps} wall and "
            f"{short.asked_capture_steps} capture steps",
            todo="give the loop more data or epochs, or lower the steps of the workload",
        )
    world_size = max(s.world_size for s in remains.sidecars)
    if {s.rank for s in remains.sidecars} != set(range(world_size)):
        return remains.error(
            f"{len(remains.sidecars)} of {world_size} ranks reported",
            wanted="one sidecar per rank",
            todo="let every rank run its training loop through phases.loop",
        )
    return None


def _trace_failure(remains: Remains) -> MeasurementError | None:
    if remains.trace_exists:
        return None
    complaint = _complaint(remains)
    if complaint:
        return remains.error(complaint[0], todo=complaint[1])
    if remains.raw_recording is not None:
        return remains.error(
            f"nsys recorded the launch but could not import it; the raw recording is kept: {remains.raw_recording}",
            wanted=remains.trace.name,
            todo="import it with QdstrmImporter of the same version, or reinstall nsys (its host part is broken)",
        )
    return remains.error(
        "no trace was written although the capture window was entered",
        wanted=remains.trace.name,
        todo="look at the log; if another profiler (torch.profiler, DCGM) holds CUPTI, stop it; for NVTX capture with "
        "nsys before 2024, the package `nvtx` must be 0.2.11 or older",
    )
