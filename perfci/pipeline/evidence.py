"""What several runs of one side say together: their kernels summed."""

from collections.abc import Sequence

from perfci.model.run import KernelStat, Run


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
