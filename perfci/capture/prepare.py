"""The ``prepare:`` command of a workload, run once per checkout before anything is measured, and its cache.

What the command leaves in the checkout is copied aside and put back the next time the same tree is prepared by the
same command on the same path with the same environment. Only success is cached. A command that installs the checkout
into the Python environment that both sides share is refused: both sides would run the code installed last
(docs/decisions/0037-prepare-writes-into-the-checkout.md).
"""

import hashlib
import json
import os
import platform
import secrets
import shutil
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from perfci.capture.supervise import supervise
from perfci.capture.worktree import Worktree
from perfci.errors import MeasurementError
from perfci.model.run import Note

DEFAULT_TIMEOUT_S = 1800.0
KEPT_RESULTS = 8
"""Prepared trees kept, newest use first: two sides of a few branches under work, and a bound on disk use."""

_CUDA_TOOLKIT = Path("/usr/local/cuda")  # by custom a link to the version in use
_LOG_TAIL_LINES = 15
_LOG_TAIL_BYTES = 20_000
_INSTALLED = (".dist-info", ".egg-info", ".pth", ".egg-link")


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A checkout that is ready. ``reused``: the result came from the cache and the command did not run."""

    log: Path
    reused: bool
    duration_ns: int
    notes: tuple[Note, ...] = ()


def prepare(
    worktree: Worktree,
    command: tuple[str, ...],
    *,
    private: Path,
    environment: Mapping[str, str],
    directory: str = ".",
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Prepared:
    """Bring a checkout into the state that ``command`` makes.

    ``private`` is the repository's ``.perfci`` folder (cache, logs). ``environment`` is all that the command sees; it
    is part of the cache key, as are the interpreter, the versions of all installed packages, the default CUDA toolkit
    and the path of the checkout. MeasurementError when the command cannot start, fails, takes longer than ``timeout_s``
    or installs the checkout into the shared environment; the log is kept and named.
    """
    before = _installed_packages(environment)
    key = _key(worktree, command, environment, directory, packages=sorted(str(path) for path in before))
    stored = private / "prepared" / key
    log = private / "logs" / f"prepare-{key}.log"
    started_ns = time.monotonic_ns()
    if stored.is_dir():
        _restore(stored, worktree.path)
        return Prepared(log=log, reused=True, duration_ns=time.monotonic_ns() - started_ns)
    log.parent.mkdir(parents=True, exist_ok=True)
    _run(worktree, command, directory=directory, environment=environment, log=log, timeout_s=timeout_s)
    after = _installed_packages(environment)
    changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
    _refuse_shared_install(worktree, changed)
    duration_ns = time.monotonic_ns() - started_ns
    if changed:
        names = ", ".join(sorted(path.name for path in changed)[:3])
        note = Note(
            code="prepare-changed-environment",
            text=f"`prepare:` changed packages that both sides share ({names}): the result is not cached",
        )
        return Prepared(log=log, reused=False, duration_ns=duration_ns, notes=(note,))
    _store(worktree.path, stored)
    return Prepared(log=log, reused=False, duration_ns=duration_ns)


def _key(
    worktree: Worktree,
    command: tuple[str, ...],
    environment: Mapping[str, str],
    directory: str,
    *,
    packages: list[str],
) -> str:
    # The path belongs in: build folders and editable installs hold absolute paths. Checkouts are named for their
    # tree, so the path is nearly always the same again.
    parts = [
        worktree.revision.tree,
        command,
        directory,
        str(worktree.path),
        sorted(environment.items()),
        packages,  # the names of the records hold the versions
        str(_CUDA_TOOLKIT.resolve()),
        sys.version,
        platform.machine(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _run(
    worktree: Worktree,
    command: tuple[str, ...],
    *,
    directory: str,
    environment: Mapping[str, str],
    log: Path,
    timeout_s: float,
) -> None:
    name = f"`prepare:` of {worktree.revision.label}"
    shown = " ".join(command)
    try:
        outcome = supervise(
            command,
            environment=environment,
            directory=worktree.path / directory,
            log_path=log,
            timeout_s=timeout_s,
            marker=f"prepare-{secrets.token_hex(8)}",
        )
    except OSError as error:
        raise MeasurementError(
            f"{name} cannot start: {error.strerror}: {error.filename}",
            wanted="a program on PATH, or a path relative to the checkout",
            todo=f"correct `prepare: {shown}` in perfci.yaml",
        ) from error
    if outcome.exit_code is None:
        raise MeasurementError(f"{name} did not end within {timeout_s:g} s: {shown}{_tail(log)}", todo=f"read {log}")
    if outcome.exit_code != 0:
        code = outcome.exit_code
        how = f"exit code {code}" if code > 0 else signal.Signals(-code).name
        raise MeasurementError(f"{name} failed with {how}: {shown}{_tail(log)}", todo=f"read {log}")


def _tail(log: Path) -> str:
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        lines = stream.read().decode(errors="replace").splitlines()
    return "".join(f"\n    {line}" for line in lines[-_LOG_TAIL_LINES:])


def _installed_packages(environment: Mapping[str, str]) -> dict[Path, int]:
    """Package records of the Python environments that the workload may use, with their modification times."""
    folders = {Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))}
    prefixes = {Path(environment[name]) for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment.get(name)}
    for name in ("python", "python3"):
        if program := shutil.which(name, path=environment.get("PATH")):
            prefixes.add(Path(program).parent.parent)
    for prefix in prefixes:
        folders |= set(prefix.glob("lib/python*/site-packages"))
    return {
        entry: entry.stat().st_mtime_ns
        for folder in folders
        if folder.is_dir()
        for entry in folder.iterdir()
        if entry.name.endswith(_INSTALLED)
    }


def _refuse_shared_install(worktree: Worktree, changed: set[Path]) -> None:
    for entry in sorted(changed):
        record = entry / "direct_url.json" if entry.suffix == ".dist-info" else entry
        try:
            origin = unquote(record.read_text(errors="replace"))  # direct_url.json holds a URL
        except OSError:
            continue
        if str(worktree.path) in origin:
            raise MeasurementError(
                f"`prepare:` installed the checkout of {worktree.revision.label} into the Python environment that "
                f"both sides share ({entry})",
                wanted="a command that writes into the checkout only, so that each side runs its own code",
                todo="build in place (`python setup.py build_ext --inplace`) or use `pip install --target .deps .`, "
                "and set PYTHONPATH in the workload's env",
            )


def _store(checkout: Path, stored: Path) -> None:
    """Copy aside atomically. Failing (disk full, a socket among the files) costs the cache only, never the run."""
    stored.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=stored.parent))
    try:
        _copy(checkout, unfinished)
        unfinished.rename(stored)
    except OSError:
        return
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _forget_oldest(stored.parent)


def _restore(stored: Path, checkout: Path) -> None:
    try:
        for entry in checkout.iterdir():
            if entry.name == ".git":
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        _copy(stored, checkout)
        os.utime(stored)
    except OSError as error:
        raise MeasurementError(
            f"cannot reuse the prepared checkout {stored}: {error}", todo=f"remove {stored} and try again"
        ) from error


def _copy(source: Path, target: Path) -> None:
    # copy2 keeps time stamps: make and ninja must see the build as up to date.
    shutil.copytree(
        source,
        target,
        symlinks=True,
        dirs_exist_ok=True,
        ignore=lambda folder, _: [".git"] if Path(folder) == source else [],
    )


def _forget_oldest(folder: Path) -> None:
    day_ago = time.time() - 86_400
    entries = sorted(folder.iterdir(), key=lambda entry: entry.stat().st_mtime, reverse=True)
    results = [entry for entry in entries if not entry.name.startswith("unfinished-")]
    orphans = [e for e in entries if e.name.startswith("unfinished-") and e.stat().st_mtime < day_ago]
    for entry in results[KEPT_RESULTS:] + orphans:
        shutil.rmtree(entry, ignore_errors=True)
