"""The detectors under comparison, each as a function from values to indices of new levels."""

from collections.abc import Callable

import numpy as np
import ruptures
from otava.analysis import compute_change_points, compute_change_points_orig

from perfci.model.changepoint import HistoryEntry
from perfci.stats.changepoint import find_changes

Detector = Callable[[np.ndarray], tuple[int, ...]]


def perfci(values: np.ndarray) -> tuple[int, ...]:
    entries = [HistoryEntry(revision=str(i), values=(float(v),)) for i, v in enumerate(values)]
    return tuple(change.index for change in find_changes(entries).changes)


def otava(values: np.ndarray) -> tuple[int, ...]:
    """As its command line does by default: p 0.001, window 50. A list, as its own callers give: with an array version
    0.8.0 leaves the windows out and adds their offsets all the same."""
    return tuple(p.index for p in compute_change_points(values.tolist(), window_len=50, max_pvalue=0.001)[0])


def otava_permutations(values: np.ndarray) -> tuple[int, ...]:
    """E-divisive with permutations, as in the paper and at MongoDB. p 0.01: its 100 permutations give no smaller one
    than 0."""
    return tuple(p.index for p in compute_change_points_orig(np.array(values), max_pvalue=0.01, seed=1)[0])


def _scaled(values: np.ndarray) -> tuple[np.ndarray, float]:
    """Logarithms over their noise (from differences of neighbours): ruptures has no idea of noise of its own."""
    logs = np.log(values)
    steps = np.diff(logs)
    noise = 1.4826 * np.median(np.abs(steps - np.median(steps))) / np.sqrt(2)
    return logs / (noise or np.std(steps) or 1.0), 2 * np.log(len(values))


def ruptures_l2(values: np.ndarray) -> tuple[int, ...]:
    """PELT, squared deviations, Schwarz penalty."""
    signal, penalty = _scaled(values)
    return tuple(ruptures.Pelt(model="l2", min_size=2, jump=1).fit(signal).predict(pen=penalty)[:-1])


def ruptures_l1(values: np.ndarray) -> tuple[int, ...]:
    """PELT, absolute deviations (robust), Schwarz penalty."""
    signal, penalty = _scaled(values)
    return tuple(ruptures.Pelt(model="l1", min_size=2, jump=1).fit(signal).predict(pen=penalty)[:-1])


def ruptures_rbf(values: np.ndarray) -> tuple[int, ...]:
    """Kernel change points, Gaussian kernel, Schwarz penalty."""
    signal, penalty = _scaled(values)
    return tuple(ruptures.KernelCPD(kernel="rbf", min_size=2).fit(signal.reshape(-1, 1)).predict(pen=penalty)[:-1])


DETECTORS: dict[str, Detector] = {
    "perfci": perfci,
    "apache-otava (t test)": otava,
    "apache-otava (permutations)": otava_permutations,
    "ruptures PELT l2": ruptures_l2,
    "ruptures PELT l1": ruptures_l1,
    "ruptures kernel rbf": ruptures_rbf,
}
