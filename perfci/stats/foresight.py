"""What known noise says about a plan before its first launch: launches a gate will need, and gates out of its reach."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from perfci.model.metrics import METRICS, Direction, Kind
from perfci.model.settings import JudgeSettings
from perfci.stats.collect import SeriesKey
from perfci.stats.family import ERROR_IN_USE
from perfci.stats.power import FLOOR_LAUNCHES, launches_for_budget, noncentrality

SLIM_CHANCE = 0.2
"""A gate is out of reach of a plan when equal code would pass it with less than this probability at the plan's end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What a noise floor predicts for one noisy gate.

    ``deviation`` is that of log samples between launches of equal code; ``launches`` those per side that decide the
    gate with the power asked for (None: more than any plan would spend, or a budget of 0). ``within_reach`` is False
    when even the end of the plan leaves less than SLIM_CHANCE. ``detectable`` is the true log ratio that the end of
    the plan would show with the power asked for.
    """

    deviation: float
    budget_ratio: float
    launches: int | None
    within_reach: bool
    detectable: float

    @property
    def pair_deviation(self) -> float:
        """Standard deviation of the log ratio of one pair."""
        return self.deviation * math.sqrt(2)


def predict(
    deviations: Mapping[SeriesKey, float], settings: JudgeSettings, *, workload: str, families: int
) -> dict[SeriesKey, Prediction]:
    """The prediction for every noisy gate of a workload whose noise is known. ``families`` is the number of noisy gates
    of the whole comparison, as for ``judge_workload``."""
    alpha = settings.error_rate * ERROR_IN_USE
    found = {}
    for (phase, metric), deviation in deviations.items():
        gate = settings.gate_for(workload=workload, phase=phase, metric=metric)
        spec = METRICS[metric]
        if gate is None or spec.kind is Kind.EXACT or spec.direction is Direction.NEUTRAL:
            continue

        def needed(power: float, *, deviation: float = deviation, budget: float = gate.budget_ratio) -> int | None:
            return launches_for_budget(
                deviation=deviation * math.sqrt(2),
                budget_log=math.log1p(budget),
                pass_level=alpha,
                family_level=alpha / families,
                power=power,
                alike=FLOOR_LAUNCHES,
            )

        slim, most = needed(SLIM_CHANCE), settings.max_launches
        error = deviation * math.sqrt(2 / most)
        found[phase, metric] = Prediction(
            deviation=deviation,
            budget_ratio=gate.budget_ratio,
            launches=needed(settings.power),
            within_reach=slim is not None and slim <= most,
            detectable=math.inf if most < 2 else noncentrality(most - 1, alpha / families, settings.power) * error,
        )
    return found
