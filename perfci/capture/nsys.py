"""Finding nsys and asking it what it can do."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from perfci.errors import MeasurementError

_VERSION = re.compile(r"version\s+(\d{4}(?:\.\d+)+)")
_OPTION = re.compile(r"--([a-z][a-z0-9-]+)")
_ASK_TIMEOUT_S = 60
_INSTALL = (
    "install Nsight Systems (in a clone of perfci: sh scripts/install-nsys.sh), or measure with `collector: torch`"
)

_USUAL_PLACES = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems/*/target-linux-x64/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
    "/usr/local/cuda*/bin/nsys",
    "/usr/lib/nsight-systems/bin/nsys",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NsysTool:
    """One installed nsys. ``options`` are the long options of ``nsys profile`` that this version knows."""

    path: Path
    version: str
    options: frozenset[str] = frozenset()

    @property
    def release(self) -> tuple[int, ...]:
        """The version as numbers, for comparing."""
        return tuple(int(part) for part in self.version.split("."))


def parse_version(output: str) -> str | None:
    """The version in the output of ``nsys --version``, without build number; None when there is none."""
    found = _VERSION.search(output)
    return found[1] if found else None


def parse_options(help_text: str) -> frozenset[str]:
    """Long options in the output of ``nsys profile --help``, without dashes."""
    return frozenset(_OPTION.findall(help_text))


def _newest_first(path: Path) -> tuple[int, ...]:
    numbers = re.findall(r"\d+", str(path))
    return tuple(-int(number) for number in numbers)


def _candidates() -> list[Path]:
    found = []
    on_path = shutil.which("nsys")
    if on_path:
        found.append(Path(on_path))
    for pattern in _USUAL_PLACES:
        found += sorted(Path("/").glob(pattern.lstrip("/")), key=_newest_first)
    for root in (Path.cwd(), Path(__file__).resolve().parents[2]):
        found += sorted((root / ".nsys").glob("*/target-linux-x64/nsys"), key=_newest_first)
    return found


def _ask(path: Path, *arguments: str) -> str:
    """Output of a short question to nsys; MeasurementError when it cannot be run."""
    try:
        done = subprocess.run(  # noqa: S603  (a path the user set up, fixed arguments)
            [path, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except PermissionError as error:
        raise MeasurementError(
            f"{path} must not be executed by this user", todo=f"chmod +x it, or mount its disk without noexec ({error})"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasurementError(f"{path} does not run: {error}", wanted="a working nsys", todo=_INSTALL) from error
    return done.stdout.decode(errors="replace")


def _open_tool(path: Path) -> NsysTool:
    answer = _ask(path, "--version")
    version = parse_version(answer)
    if version is None:
        said = answer.strip().splitlines()
        raise MeasurementError(
            f"{path} does not tell its version; it said: {said[-1] if said else 'nothing'}",
            wanted="NVIDIA Nsight Systems",
            todo=_INSTALL,
        )
    return NsysTool(path=path, version=version, options=parse_options(_ask(path, "profile", "--help")))


def find_nsys(explicit: Path | None = None) -> NsysTool:
    """The nsys to use: ``explicit``, else ``$PERFCI_NSYS``, else the first that works of PATH, the usual places of
    NVIDIA's installers (newest first) and ``.nsys/`` of the current folder and of perfci's own clone.

    MeasurementError when there is none, or when the one that was named does not work.
    """
    named = explicit or (Path(os.environ["PERFCI_NSYS"]) if os.environ.get("PERFCI_NSYS") else None)
    if named is not None:
        if not named.is_file():
            raise MeasurementError(f"no nsys at {named}", wanted="the path of the program nsys", todo=_INSTALL)
        return _open_tool(named.absolute())
    failures = []
    for path in _candidates():
        try:
            return _open_tool(path)
        except MeasurementError as error:
            failures.append(error.seen)
    if failures:
        raise MeasurementError(failures[0], wanted="a working nsys", todo=_INSTALL)
    raise MeasurementError(
        "nsys is not installed", wanted="nsys in $PERFCI_NSYS, on PATH or in a usual place", todo=_INSTALL
    )
