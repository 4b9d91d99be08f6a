"""Where in the user's code a finding comes from: one more launch under the probe, never timed, never judged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from perfci.capture.intact import kept_intact
from perfci.capture.launch import launch
from perfci.config.load import Workload
from perfci.errors import MeasurementError
from perfci.model.comparison import KernelChange, KernelChangeKind, WorkloadComparison
from perfci.model.finding import Finding
from perfci.model.run import Note
from perfci.model.settings import Collector
from perfci.pipeline.bench import Bench
from perfci.probe.attach import attach_locations, kernel_location, new_operators
from perfci.probe.locations import Location, environment, read_locations

_LOCATED_RULES = {"accidental-sync", "allocator-churn", "pageable-copies", "copies-not-overlapped", "periodic-waits"}
_RULES_ON_NEW_KERNELS = {"float32-matmul", "unfused-optimizer"}
_GROWN = {KernelChangeKind.NEW, KernelChangeKind.MORE_LAUNCHES}


def wants_probe(result: WorkloadComparison) -> bool:
    """True when a probe launch could name a line: a new pattern of the kind it sees, or new kernels."""
    findings = any(f.rule in _LOCATED_RULES and (f.new or f.worsened) and f.location is None for f in result.findings)
    return findings or any(change.kind in _GROWN for change in result.kernel_changes)


def probe(bench: Bench, workload: Workload, checkout: Path, folder: Path) -> tuple[Location, ...]:
    """The places of one launch under the probe. Raises MeasurementError when the launch fails."""
    with kept_intact(checkout):
        launched = launch(
            workload.spec,
            replace(workload.measure, collector=Collector.TORCH),
            checkout=checkout,
            out_dir=folder,
            tool=None,
            has_cuda=bool(bench.gpus),
            extra_environment=environment(checkout),
        )
    return read_locations(launched.trace_paths, checkout)


def located(
    result: WorkloadComparison, baseline: Sequence[Location], candidate: Sequence[Location]
) -> WorkloadComparison:
    """The comparison with lines of code at the findings and kernels that leave little doubt."""
    added = new_operators(baseline, candidate)
    changes = tuple(
        replace(change, location=change.location or kernel_location(change, added)) for change in result.kernel_changes
    )
    findings = attach_locations(result.findings, candidate)
    return replace(
        result, findings=tuple(_where_the_kernels(finding, changes) for finding in findings), kernel_changes=changes
    )


def _where_the_kernels(finding: Finding, changes: Sequence[KernelChange]) -> Finding:
    """A finding about new kernels with their place, when all new kernels of its phase come from one."""
    if finding.location is not None or finding.rule not in _RULES_ON_NEW_KERNELS:
        return finding
    places = {change.location for change in changes if change.phase == finding.phase and change.kind in _GROWN}
    return replace(finding, location=places.pop()) if len(places) == 1 else finding


def not_located(error: MeasurementError) -> Note:
    """What to say when the probe failed: lines are missing, the verdict is not touched."""
    return Note(code="not-located", text=f"no lines of code are named: the probe launch failed: {error.seen}")
