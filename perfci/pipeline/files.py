"""Trace files that the user already has: extract, diagnose, draw, import."""

import glob
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.capture.export import export_sqlite
from perfci.capture.nsys import find_nsys
from perfci.diagnosis.kernel_diff import diff_kernels
from perfci.diagnosis.pair import compare_findings, gone_findings
from perfci.diagnosis.pair_rules import find_between, with_pair_findings
from perfci.diagnosis.rules import find
from perfci.errors import UsageError
from perfci.model.environment import MEASUREMENT_VERSION, Environment
from perfci.model.run import Launch, Revision, Run
from perfci.model.timeline import Timeline
from perfci.model.trace import Extraction
from perfci.pipeline.progress import Progress
from perfci.pipeline.workspace import Workspace
from perfci.report.diagnosis_text import DiagnosedTrace, Diagnosis
from perfci.trace.extract import extract_timeline, read_timeline

POOL_FROM_LAUNCHES = 4
"""Launches from which an import reads in several processes: below, starting them costs more than it saves."""

if TYPE_CHECKING:
    from perfci.store.store import Store  # reading a trace needs no database

_REPORT_SUFFIXES = (".nsys-rep", ".qdrep")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """How files are read: the range that is a step, and the ranges that count as phases (empty: all)."""

    step_range: str = "step"
    phases: tuple[str, ...] = ()


def expand(patterns: Sequence[str]) -> tuple[Path, ...]:
    """Files that the patterns name, in order: an existing path stands for itself, anything else is a glob.

    Raises UsageError for a pattern that names nothing.
    """
    paths: list[Path] = []
    for pattern in patterns:
        found = [pattern] if _is_there(pattern) else sorted(glob.glob(pattern))  # noqa: PTH207  (absolute globs too)
        if not found:
            raise UsageError(
                f"{pattern}: no such file", wanted="a .nsys-rep or .sqlite file of nsys, or the .json of torch.profiler"
            )
        paths += [Path(one) for one in found]
    return tuple(dict.fromkeys(paths))


def _is_there(pattern: str) -> bool:
    """Whether the text is a path. One that may not be looked at counts: the reader says why it cannot be read."""
    try:
        return Path(pattern).exists()
    except PermissionError:
        return True
    except OSError:  # no path at all: too long, for example
        return False


@contextmanager
def exported(paths: Sequence[Path]) -> Iterator[tuple[Path, ...]]:
    """The same files, with reports exported to SQLite by the installed nsys while inside.

    Raises MeasurementError when a report is among them and nsys is missing or cannot read it.
    """
    if not any(path.suffix in _REPORT_SUFFIXES for path in paths):
        yield tuple(paths)
        return
    tool = find_nsys()
    with tempfile.TemporaryDirectory(prefix="perfci-") as folder:
        ready: list[Path] = []
        for index, path in enumerate(paths):
            if path.suffix in _REPORT_SUFFIXES:
                out = Path(folder) / f"{index}.sqlite"
                export_sqlite(tool, path, out)
                ready.append(out)
            else:
                ready.append(path)
        yield tuple(ready)


def read_files(paths: Sequence[Path], options: TraceOptions) -> Timeline:
    """One process launch: one file, or one per rank."""
    with exported(paths) as ready:
        return read_timeline(ready, step_range=options.step_range, phases=options.phases)


def extract_files(paths: Sequence[Path], options: TraceOptions) -> Extraction:
    """What the files of one launch say per phase."""
    return extract_timeline(read_files(paths, options))


def diagnose_files(baseline: Path | None, candidate: Path, options: TraceOptions) -> Diagnosis:
    """Patterns in one trace, or what is new, worse and gone between two."""
    after = read_files([candidate], options)
    after_extraction, after_findings = extract_timeline(after), find(after)
    subject = DiagnosedTrace(name=candidate.name, step_count=after_extraction.step_count, notes=after_extraction.notes)
    if baseline is None:
        return Diagnosis(candidate=subject, findings=after_findings)
    before = read_files([baseline], options)
    before_extraction, before_findings = extract_timeline(before), find(before)
    return Diagnosis(
        candidate=subject,
        baseline=DiagnosedTrace(
            name=baseline.name, step_count=before_extraction.step_count, notes=before_extraction.notes
        ),
        findings=with_pair_findings(
            compare_findings(before_findings, after_findings), find_between([before_extraction], [after_extraction])
        ),
        gone=gone_findings(before_findings, after_findings),
        kernel_changes=diff_kernels(
            before_extraction.kernels,
            before_extraction.step_count,
            after_extraction.kernels,
            after_extraction.step_count,
        ),
    )


def import_files(
    workspace: Workspace,
    store: "Store",
    paths: Sequence[Path],
    *,
    workload: str,
    revision: str,
    one_run: bool,
    options: TraceOptions,
    progress: Progress,
) -> tuple[tuple[Run, ...], int]:
    """Store traces as runs of a workload at a revision; each file is a run, or with ``one_run`` a rank of one run.

    ``revision`` is a git revision where git knows it, else a free label. All files are read before anything is stored:
    a bad one leaves the database as it was. Returns the runs, and how many of them were new.
    """
    for title, text in (("revision", revision), ("workload", workload)):
        if not text.strip() or not text.isprintable():
            raise UsageError(f"{text!r} cannot be the {title} of a run", wanted="a name of printable characters")
    found = _revision(workspace, revision)
    groups = [tuple(paths)] if one_run else [(path,) for path in paths]
    read = partial(_read_run, options=options, workload=workload, revision=found)
    runs: list[Run] = []
    known = list(store.runs(workload, found.identity))
    with ExitStack() as stack:
        results: Iterable[Run] = map(read, groups)
        if len(groups) >= POOL_FROM_LAUNCHES:
            # Spawned, not forked: the threads of numpy and SQLite do not survive a fork.
            pool = ProcessPoolExecutor(min(os.cpu_count() or 1, len(groups)), mp_context=get_context("spawn"))
            results = stack.enter_context(pool).map(read, groups)
        for number, run in enumerate(results, start=1):
            progress.status(f"read {number} of {len(groups)} traces")
            runs.append(_as_known(run, known))
            known.append(runs[-1])
    return tuple(runs), store.add_runs(runs)


def _as_known(run: Run, known: Sequence[Run]) -> Run:
    """The known run that is the same recording, else the run. A trace that does not say when it was made has the time
    of its file, and a copy of the file another: one launch would count as two that agree to the nanosecond."""
    at = run.launch.started_at
    return next((k for k in known if replace(k, launch=replace(k.launch, started_at=at)) == run), run)


def _read_run(paths: Sequence[Path], *, options: TraceOptions, workload: str, revision: Revision) -> Run:
    return _imported(read_files(paths, options), paths, workload=workload, revision=revision)


def _revision(workspace: Workspace, text: str) -> Revision:
    if workspace.repository is not None:
        try:
            return workspace.repository.resolve(text)
        except UsageError:
            pass  # a free label
    if ".." in text:
        raise UsageError(f"{text!r} cannot be the label of a run", wanted="a label without `..`, which is a range")
    return Revision(label=text)


def _imported(timeline: Timeline, paths: Sequence[Path], *, workload: str, revision: Revision) -> Run:
    extraction = extract_timeline(timeline)
    trace = extraction.trace
    fields = {
        "measurement_version": str(MEASUREMENT_VERSION),
        "collector": trace.collector,
        "collector_version": trace.collector_version,
        "gpu_model": " + ".join(trace.gpu_models),
        "driver": trace.driver or "",
        "cuda": trace.cuda or "",
        "world_size": str(trace.rank_count),
    }
    return Run(
        workload=workload,
        revision=revision,
        environment=Environment.of({name: value for name, value in fields.items() if value}),
        launch=Launch(started_at=_started(extraction, paths), duration_ns=_duration_ns(timeline)),
        step_count=extraction.step_count,
        series=extraction.series,
        kernels=extraction.kernels,
        api_calls=extraction.api_calls,
        findings=find(timeline),
        notes=extraction.notes,
    )


def _started(extraction: Extraction, paths: Sequence[Path]) -> datetime:
    """When it was recorded. The trace says it, so that importing a copy of the file gives the same run again."""
    if extraction.trace.started_at_utc_ns is not None:
        return datetime.fromtimestamp(extraction.trace.started_at_utc_ns / 1e9, tz=UTC)
    return datetime.fromtimestamp(min(path.stat().st_mtime for path in paths), tz=UTC)


def _duration_ns(timeline: Timeline) -> int:
    return int(timeline.steps.end_ns.max() - timeline.steps.start_ns.min())
