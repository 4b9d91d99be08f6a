"""Noise as it is seen between and within process launches: logarithms of step times around a common level of 0.

A session is a row of launches in time. Each model gives every launch its luck; each launch then has 50 steps of its own
noise, correlated from step to step. Interleaved sessions run ABBA, sequential ones all of A and then all of B.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEPS = 50
STEP_CORRELATION = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class NoiseModel:
    """``launches(rng, sessions, length)`` gives the luck of each launch in time order, shape (sessions, length)."""

    name: str
    meaning: str
    launches: Callable[[np.random.Generator, int, int], Array]
    within: float = 0.01
    sequential: bool = False


def _normal(deviation: float) -> Callable[[np.random.Generator, int, int], Array]:
    return lambda rng, sessions, length: deviation * rng.standard_normal((sessions, length))


def _drift(rng: np.random.Generator, sessions: int, length: int) -> Array:
    """A linear drift of up to ±5 % over the session and a random walk, besides 0.5 % per launch."""
    slope = rng.uniform(-0.05, 0.05, (sessions, 1)) * np.linspace(0, 1, length)
    walk = np.cumsum(0.002 * rng.standard_normal((sessions, length)), axis=1)
    return slope + walk + 0.005 * rng.standard_normal((sessions, length))


def _load(rng: np.random.Generator, sessions: int, length: int) -> Array:
    """Somebody else's load slows everything by 15 % from a random launch on (half of the sessions), 0.5 % per
    launch."""
    arrival = rng.integers(0, 2 * length, (sessions, 1))
    return 0.15 * (np.arange(length) >= arrival) + 0.005 * rng.standard_normal((sessions, length))


def _load_half_way(rng: np.random.Generator, sessions: int, length: int) -> Array:
    """The load of 15 % arrives exactly half-way: with all A first, exactly between the sides."""
    return 0.15 * np.broadcast_to(np.arange(length) >= length // 2, (sessions, length)) + 0.005 * rng.standard_normal(
        (sessions, length)
    )


def _heavy(rng: np.random.Generator, sessions: int, length: int) -> Array:
    return np.clip(0.005 * rng.standard_t(2, (sessions, length)), -1, 1)


def _skewed(rng: np.random.Generator, sessions: int, length: int) -> Array:
    return 0.02 * rng.standard_exponential((sessions, length)) ** 1.5


def _wild(rng: np.random.Generator, sessions: int, length: int) -> Array:
    """0.3 % per launch, and one launch in 20 is 20 % to 100 % slower."""
    wild = rng.random((sessions, length)) < 0.05
    return 0.003 * rng.standard_normal((sessions, length)) + wild * rng.uniform(0.2, 0.7, (sessions, length))


def _bistable(share: float) -> Callable[[np.random.Generator, int, int], Array]:
    def launches(rng: np.random.Generator, sessions: int, length: int) -> Array:
        slow = rng.random((sessions, length)) < share
        return np.log(3.4 / 2.9) * slow + 0.003 * rng.standard_normal((sessions, length))

    return launches


def _autocorrelated(rng: np.random.Generator, sessions: int, length: int) -> Array:
    """AR(1) from launch to launch, correlation 0.7, 2 % in all."""
    luck = np.empty((sessions, length))
    luck[:, 0] = rng.standard_normal(sessions)
    for at in range(1, length):
        luck[:, at] = 0.7 * luck[:, at - 1] + np.sqrt(1 - 0.49) * rng.standard_normal(sessions)
    return 0.02 * luck


MODELS: dict[str, NoiseModel] = {
    model.name: model
    for model in (
        NoiseModel(name="quiet", meaning="0.2 % between launches (a busy GPU)", launches=_normal(0.002)),
        NoiseModel(name="even", meaning="1 % between launches, 1 % within", launches=_normal(0.01)),
        NoiseModel(
            name="between", meaning="4 % between, 0.3 % within (a busy CPU)", launches=_normal(0.04), within=0.003
        ),
        NoiseModel(name="drift", meaning="machine drifts up to 5 % and walks", launches=_drift),
        NoiseModel(name="load", meaning="+15 % load arrives at some launch", launches=_load),
        NoiseModel(name="heavy", meaning="Student t with 2 degrees of freedom", launches=_heavy),
        NoiseModel(name="skewed", meaning="long tail to the slow side", launches=_skewed),
        NoiseModel(name="wild", meaning="one launch in 20 is 20–100 % slower", launches=_wild),
        NoiseModel(name="bistable", meaning="2.9 or 3.4 ms, each half of the launches", launches=_bistable(0.5)),
        NoiseModel(name="rare mode", meaning="3.4 instead of 2.9 ms in 15 % of the launches", launches=_bistable(0.15)),
        NoiseModel(name="autocorrelated", meaning="AR(1) 0.7 from launch to launch, 2 %", launches=_autocorrelated),
        NoiseModel(name="sequential drift", meaning="drift, all A first, then all B", launches=_drift, sequential=True),
        NoiseModel(
            name="sequential load",
            meaning="+15 % load arrives half-way, all A first",
            launches=_load_half_way,
            sequential=True,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Simulated launches: log step times, shape (sessions, launches, steps) per side; ``position`` of each launch in
    the session, shape (launches,) per side; ``sequential`` as in the model."""

    baseline: Array
    candidate: Array
    baseline_position: NDArray[np.int64]
    candidate_position: NDArray[np.int64]
    sequential: bool


def simulate(
    model: NoiseModel,
    *,
    rng: np.random.Generator,
    sessions: int,
    launches: int,
    effect: float = 0.0,
    steps: int = STEPS,
) -> Sessions:
    """``sessions`` sessions of ``launches`` launches a side; the candidate is slower by the factor 1 + ``effect``."""
    luck = model.launches(rng, sessions, 2 * launches)
    within = model.within * rng.standard_normal((sessions, 2 * launches, steps))
    for at in range(1, steps):
        within[:, :, at] = STEP_CORRELATION * within[:, :, at - 1] + np.sqrt(1 - STEP_CORRELATION**2) * within[:, :, at]
    values = luck[:, :, None] + within
    if model.sequential:
        left, right = np.arange(launches), np.arange(launches, 2 * launches)
    else:
        pair = np.arange(launches)
        left, right = 2 * pair + pair % 2, 2 * pair + 1 - pair % 2
    return Sessions(
        baseline=values[:, left],
        candidate=values[:, right] + np.log1p(effect),
        baseline_position=left,
        candidate_position=right,
        sequential=model.sequential,
    )
