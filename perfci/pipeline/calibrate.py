"""``perfci calibrate``: launches of one revision against itself, for noise floors and false alarms."""

import math
from dataclasses import replace

from perfci.errors import MeasurementError
from perfci.pipeline.measure import MeasureRequest, measure_revision
from perfci.pipeline.progress import Progress
from perfci.pipeline.workspace import Workspace, chosen_workloads
from perfci.report.calibration import CalibrationView, FloorView
from perfci.stats.noise import Calibration, calibrate
from perfci.stats.power import FLOOR_LAUNCHES
from perfci.store.store import Store


def run_calibration(
    workspace: Workspace, store: Store, request: MeasureRequest, progress: Progress, *, seed: int
) -> tuple[CalibrationView, ...]:
    """Launch each workload ``request.launches`` times, judge the launches against each other in all ways, and store the
    noise floors. Raises MeasurementError when too few launches were usable to say anything."""
    runs = measure_revision(workspace, store, request, progress)
    workloads = chosen_workloads(workspace, request.patterns, preset=request.preset, command=request.command)
    settings = workspace.project.judge
    gates = tuple(gate for workload in workloads for gate in workload.gates)
    results = []
    for name in dict.fromkeys(run.workload for run in runs):
        mine = [run for run in runs if run.workload == name and not run.spoiled]
        if len(mine) < FLOOR_LAUNCHES:
            raise MeasurementError(
                f"{name}: {len(mine)} usable launches",
                wanted=f"at least {FLOOR_LAUNCHES}, to see a second level or a long tail",
                todo="calibrate with more launches (-n), on a machine that does nothing else",
            )
        result = calibrate(mine, replace(settings, gates=(*settings.gates, *gates)), seed=seed)
        store.set_noise_floors(name, mine[-1].environment, result.floors)
        results.append(_view(result))
    return tuple(results)


def _view(result: Calibration) -> CalibrationView:
    needed = dict(result.launches_needed)
    quietest = {(choice.phase, choice.metric): choice.quietest for choice in result.choices}
    return CalibrationView(
        workload=result.workload,
        launches=result.launches,
        splits=result.splits,
        alarms=result.alarms,
        floors=tuple(
            FloorView(
                phase=floor.phase,
                metric=floor.metric,
                statistic=floor.statistic,
                deviation_ratio=math.expm1(floor.deviation),
                upper_ratio=math.expm1(floor.upper),
                quietest=quietest.get((floor.phase, floor.metric)),
                gated=(floor.phase, floor.metric) in needed,
                launches_needed=needed.get((floor.phase, floor.metric)),
            )
            for floor in result.floors
        ),
    )
