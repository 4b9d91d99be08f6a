"""What several runs of one side say together: patterns most of them show, and their kernels summed."""

from collections import defaultdict
from collections.abc import Sequence

from perfci.model.finding import Finding
from perfci.model.run import KernelStat, Run


def findings_of(runs: Sequence[Run]) -> tuple[Finding, ...]:
    """Findings that more than half of the runs show (same rule, phase and subject), each as a middle run says it.

    A pattern seen in one launch of many is an accident of that launch, not a property of the code.
    """
    seen: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for run in runs:
        for finding in {(f.rule, f.phase, f.subject): f for f in run.findings}.values():
            seen[(finding.rule, finding.phase, finding.subject)].append(finding)
    return tuple(found[len(found) // 2] for found in seen.values() if 2 * len(found) > len(runs))


def kernels_of(runs: Sequence[Run]) -> tuple[tuple[KernelStat, ...], int]:
    """Kernel statistics summed over the runs, and the number of measured steps they stand for."""
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for run in runs:
        for kernel in run.kernels:
            count, total_ns = totals.get((kernel.phase, kernel.name), (0, 0))
            totals[(kernel.phase, kernel.name)] = (count + kernel.count, total_ns + kernel.total_ns)
    stats = tuple(
        KernelStat(phase=phase, name=name, count=count, total_ns=total_ns)
        for (phase, name), (count, total_ns) in sorted(totals.items())
    )
    return stats, sum(run.step_count for run in runs)
