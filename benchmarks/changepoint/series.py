"""Series as nightly history shows them, with shifts injected at known places. Everything follows from a seed."""

from dataclasses import dataclass

import numpy as np

KINDS = ("quiet", "outliers", "correlated", "drifting", "heavy-tailed", "flickering")
LEVEL = 10_000_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A series and the indices where a new level begins."""

    kind: str
    values: np.ndarray
    shifts: tuple[int, ...]
    noise: float


def noise_of_kind(kind: str, n: int, noise: float, rng: np.random.Generator) -> np.ndarray:
    """Logarithmic noise with the given standard deviation of its calm part."""
    calm = noise * rng.standard_normal(n)
    if kind == "outliers":  # every twentieth night something else ran on the machine: only slower, up to 20 deviations
        return calm + (rng.random(n) < 0.05) * noise * rng.uniform(5, 20, n)
    if kind == "correlated":  # AR(1) with 0.3, as between nights on one machine
        out = np.empty(n)
        last = calm[0]
        for i in range(n):
            last = 0.3 * last + np.sqrt(1 - 0.3**2) * calm[i]
            out[i] = last
        return out
    if kind == "drifting":  # slides by 6 deviations in all
        return calm + noise * np.linspace(0, 6 * rng.choice((-1, 1)), n)
    if kind == "heavy-tailed":  # Student's t with 3 degrees of freedom
        return noise * rng.standard_t(3, n) / np.sqrt(3)
    if kind == "flickering":  # a count with two values, the second one in three of ten nights
        return 2 * noise * (rng.random(n) < 0.3)
    return calm


def make(kind: str, shifts: int, seed: int, *, size: float = 4.0, n: int = 120) -> Injected:
    """``n`` nights with shifts of ``size`` to twice ``size`` standard deviations, up or down, at least 12 apart."""
    rng = np.random.default_rng((seed, KINDS.index(kind), shifts))
    noise = float(rng.choice((0.002, 0.01, 0.03)))
    while True:
        places = np.sort(rng.choice(np.arange(12, n - 12), size=shifts, replace=False))
        if shifts < 2 or np.diff(places).min() >= 12:
            break
    level = np.zeros(n)
    for place in places:
        level[place:] += rng.choice((-1, 1)) * noise * rng.uniform(size, 2 * size)
    values = LEVEL * np.exp(level + noise_of_kind(kind, n, noise, rng))
    return Injected(kind=kind, values=values, shifts=tuple(int(p) for p in places), noise=noise)


def late(kind: str, seed: int, *, size: float, before: int = 60, after: int = 30) -> Injected:
    """A single shift up by exactly ``size`` deviations, for measuring how soon it is seen."""
    rng = np.random.default_rng((seed, KINDS.index(kind), 1000))
    noise = 0.01
    level = np.zeros(before + after)
    level[before:] += noise * size
    values = LEVEL * np.exp(level + noise_of_kind(kind, before + after, noise, rng))
    return Injected(kind=kind, values=values, shifts=(before,), noise=noise)
