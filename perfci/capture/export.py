"""From a report of nsys to the SQLite file that perfci reads."""

import os
import subprocess
from pathlib import Path

from perfci.capture.argv import export_argv
from perfci.capture.nsys import NsysTool
from perfci.errors import MeasurementError

_EXPORT_TIMEOUT_S = 1800
_SIZE_FACTOR = 12
"""An export was never seen to be larger than this many times its report."""


def last_lines(text: str, count: int = 12) -> str:
    """The end of a log for an error message: progress bars reduced to their last state, blank lines left out."""
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    kept = [line[:300] for line in lines if line.strip()]
    return "\n    ".join(kept[-count:])


def free_bytes(folder: Path) -> int:
    """Bytes that this user may still write in ``folder``."""
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize


def require_space(folder: Path, needed_bytes: int) -> None:
    """MeasurementError when less than ``needed_bytes`` may still be written in ``folder``."""
    free = free_bytes(folder)
    if free < needed_bytes:
        raise MeasurementError(
            f"only {free >> 20} MiB are free in {folder}",
            wanted=f"at least {max(1, needed_bytes >> 20)} MiB for the profile and its export",
            todo="make room, for example by deleting old runs under .perfci/",
        )


def export_sqlite(tool: NsysTool, report: Path, out: Path) -> None:
    """Export ``report`` (``.nsys-rep``) to the SQLite file ``out``, replacing it; on failure nothing is left there.

    MeasurementError when the report is missing, damaged, made by another version of nsys than ``tool`` can read, or the
    disk is full.
    """
    if not report.is_file():
        raise MeasurementError(f"there is no report at {report}", wanted="a .nsys-rep file of nsys")
    require_space(out.parent, report.stat().st_size * _SIZE_FACTOR)
    out.unlink(missing_ok=True)
    try:
        done = subprocess.run(  # noqa: S603  (nsys with arguments of our own)
            export_argv(tool, report=report, out=out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_EXPORT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        out.unlink(missing_ok=True)
        raise MeasurementError(
            f"nsys export did not end within {_EXPORT_TIMEOUT_S} s on {report}", todo="capture fewer steps"
        ) from error
    except OSError as error:
        raise MeasurementError(f"{tool.path} does not run: {error}", wanted="a working nsys") from error
    if done.returncode == 0 and out.is_file() and out.stat().st_size > 0:
        return
    out.unlink(missing_ok=True)
    raise _export_failure(tool, report, done.stdout.decode(errors="replace"))


def _export_failure(tool: NsysTool, report: Path, output: str) -> MeasurementError:
    low = output.lower()
    if "no space left" in low:
        return MeasurementError(f"the disk filled up while {report} was exported", todo="make room and export it again")
    told = f"nsys {tool.version} cannot export {report}; its last words:\n    {last_lines(output) or '(none)'}"
    return MeasurementError(
        told,
        wanted=f"a whole report, made by nsys {tool.version} or an older one: nsys reads no reports of newer versions",
        todo="export it with the nsys that recorded it (`nsys export --type=sqlite FILE`) and import the .sqlite file, "
        "or name that nsys in PERFCI_NSYS",
    )
