"""The measuring bench: one machine, held for one job, on which launches become runs."""

import os
import statistics
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from perfci import __version__
from perfci.capture.clocks import locked_clocks, restore_left_over
from perfci.capture.environment import environment_fields, merge_software, read_host, visible_gpus
from perfci.capture.intact import kept_intact
from perfci.capture.launch import Launched, launch
from perfci.capture.lock import hold_machine, lock_directory
from perfci.capture.nsys import NsysTool, find_nsys
from perfci.capture.nvml import GpuFacts, Nvml, open_nvml
from perfci.capture.pinning import cpus_for_launch
from perfci.capture.sampler import judge, measured_fields, sampling
from perfci.capture.sidecar import facts_of
from perfci.capture.supervise import MARKER
from perfci.config.load import Workload
from perfci.diagnosis.rules import find
from perfci.errors import MeasurementError
from perfci.model.environment import MEASUREMENT_VERSION, Environment
from perfci.model.run import Launch, Note, Revision, Run
from perfci.model.settings import Collector
from perfci.model.trace import Extraction
from perfci.pipeline.progress import Progress
from perfci.trace.extract import extract_timeline, read_timeline

_MOST_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in the schedule a launch stands, the checkout it runs in, and the folder below ``private`` it fills."""

    checkout: Path
    private: Path
    revision: Revision
    folder: Path
    schedule: str
    pair: int
    position: int
    seed: int | None
    plan: tuple[int, int] | None = None
    notes: tuple[Note, ...] = ()
    """What must be known of the checkout: missing submodules, a prepared build."""


@dataclass(slots=True, kw_only=True)
class Bench:
    """A held machine. ``clock_levels_mhz`` remembers the SM clocks of the launches so far: a slow launch stands out."""

    tool: NsysTool | None
    nvml: Nvml | None
    gpus: tuple[GpuFacts, ...]
    locked_mhz: int | None
    user_key: tuple[tuple[str, str], ...]
    progress: Progress
    clock_levels_mhz: list[float] = field(default_factory=list)

    def run_once(self, workload: Workload, place: Place) -> Run:
        """One process launch, from start to Run. Raises MeasurementError when it did not give a measurement."""
        host = read_host()
        cpus = (
            cpus_for_launch(
                ranks=max(1, len(self.gpus)),
                gpu_pci_bus_id=self.gpus[0].pci_bus_id if self.gpus else None,
                cpu_quota=host.cpu_quota,
            )
            if workload.measure.pin_cpus
            else ()
        )
        marker = uuid.uuid4().hex
        gpus = [gpu.uuid for gpu in self.gpus]
        with (
            kept_intact(place.checkout) as changed,
            sampling(self.nvml, gpus, marker=f"{MARKER}={marker}") as watched,
        ):
            launched = launch(
                workload.spec,
                workload.measure,
                checkout=place.checkout,
                out_dir=place.folder,
                tool=self.tool,
                cpus=cpus,
                has_cuda=bool(self.gpus),
                marker=marker,
            )
        level_mhz = statistics.median(self.clock_levels_mhz) if self.clock_levels_mhz else None
        facts = facts_of(launched.sidecars)
        timeline = read_timeline(launched.trace_paths, phases=workload.spec.phases)
        extraction = extract_timeline(timeline)
        fields = environment_fields(
            host,
            self.gpus,
            driver=self.nvml.driver() if self.nvml else None,
            pinned=cpus,
            locked_mhz=self.locked_mhz,
        )
        fields = merge_software(fields, dict(facts.environment))
        notes = [*place.notes, *_put_back(changed), *facts.notes, *extraction.notes]
        notes += _unseen_ranks(extraction, world_size=max(s.world_size for s in launched.sidecars))
        if watched.recording is not None:
            fields |= measured_fields(watched.recording)
            notes += judge(watched.recording, level_mhz=level_mhz)
            if "sm_clock_mhz" in fields and not any(note.spoils for note in notes):
                self.clock_levels_mhz.append(float(fields["sm_clock_mhz"]))
        fields |= {
            "perfci": __version__,
            "measurement_version": str(MEASUREMENT_VERSION),
            "collector": extraction.trace.collector,
            "collector_version": extraction.trace.collector_version,
            "workload_hash": workload.spec.definition_hash,
            **dict(self.user_key),
        }
        return Run(
            workload=workload.spec.name,
            revision=place.revision,
            environment=Environment.of(fields),
            launch=Launch(
                started_at=launched.started_at,
                duration_ns=launched.duration_ns,
                schedule=place.schedule,
                pair=place.pair,
                position=place.position,
                seed=place.seed,
                plan=place.plan,
            ),
            step_count=extraction.step_count,
            series=(*facts.series, *extraction.series),
            kernels=extraction.kernels,
            api_calls=extraction.api_calls,
            findings=find(timeline),
            losses=facts.losses,
            notes=tuple(notes),
            artifacts=_kept(launched, place.private.resolve()),
        )


def _put_back(changed: Sequence[str]) -> tuple[Note, ...]:
    if not changed:
        return ()
    named = ", ".join(changed[:_MOST_NAMED]) + (", …" if len(changed) > _MOST_NAMED else "")
    text = f"a launch changed tracked files ({named}); they were put back, so that all launches run the same code"
    return (Note(code="files-put-back", text=text),)


def _unseen_ranks(extraction: Extraction, *, world_size: int) -> tuple[Note, ...]:
    """A note that spoils the run when ranks that reported are not in its trace: sums over ranks would be too small, and
    look like an improvement."""
    seen = extraction.trace.rank_count
    if seen >= world_size or any(note.code == "rank-missing" for note in extraction.notes):
        return ()
    text = f"the trace holds {seen} of {world_size} ranks: the numbers of the whole run are not known"
    return (Note(code="rank-missing", text=text, spoils=True),)


def _kept(launched: Launched, private: Path) -> tuple[str, ...]:
    """Files of a launch that stay, relative to ``private``. An export goes where the report that it came from stays."""
    if launched.report_path is None:
        kept = [*launched.trace_paths, launched.log_path]
    else:
        kept = [launched.report_path, launched.log_path]
        for path in launched.trace_paths:
            path.unlink(missing_ok=True)
    return tuple(path.relative_to(private).as_posix() for path in kept)


@contextmanager
def open_bench(
    *,
    collector: Collector,
    lock_clocks: bool,
    user_key: tuple[tuple[str, str], ...],
    job: str,
    progress: Progress,
) -> Iterator[Bench]:
    """Hold this machine's GPUs (or the machine) and be ready to launch.

    Raises MeasurementError when nsys is wanted and missing, when the machine stays busy, or when clocks cannot be
    locked. Clocks left locked by a perfci that died are restored first.
    """
    with ExitStack() as stack:
        nvml = stack.enter_context(open_nvml())
        gpus = visible_gpus(nvml.gpus(), os.environ.get("CUDA_VISIBLE_DEVICES")) if nvml else ()
        uuids = [gpu.uuid for gpu in gpus]
        stack.enter_context(hold_machine(uuids, job=job, say=progress.line))
        locked_mhz = None
        if nvml is not None:
            for restored in restore_left_over(nvml, uuids, directory=lock_directory()):
                progress.line(f"restored clocks that an earlier perfci left locked: {restored}")
            if lock_clocks and gpus:
                held = stack.enter_context(locked_clocks(nvml, gpus, directory=lock_directory()))
                locked_mhz = min(held.values())
        yield Bench(
            tool=choose_tool(collector),
            nvml=nvml,
            gpus=gpus,
            locked_mhz=locked_mhz,
            user_key=user_key,
            progress=progress,
        )


def choose_tool(collector: Collector) -> NsysTool | None:
    """The nsys to use, or None for the torch collector. AUTO falls back to torch where there is no nsys, unless one
    was named: a wrong PERFCI_NSYS is an error, not another collector."""
    if collector is Collector.TORCH:
        return None
    try:
        return find_nsys()
    except MeasurementError:
        if collector is Collector.AUTO and not os.environ.get("PERFCI_NSYS"):
            return None
        raise


def fallback_note(collector: Collector, tool: NsysTool | None) -> Note | None:
    """What to tell when AUTO had to take the torch collector."""
    if collector is Collector.AUTO and tool is None:
        return Note(code="collector-fallback", text="nsys is not installed: measured with the torch collector instead")
    return None
