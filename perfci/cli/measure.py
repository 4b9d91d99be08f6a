"""``perfci run``: measure one revision."""

from pathlib import Path

import click

from perfci.cli.options import config_options, launches_option, lock_clocks_option, text_or_json_option, workload_option
from perfci.errors import ExitCode


@click.command(
    short_help="Measure one revision.",
)
@click.argument("revision", required=False, metavar="[REVISION]")
@workload_option
@launches_option(least=1, default=1)
@click.option("--dirty", is_flag=True, help="Measure the working tree with its uncommitted changes.")
@lock_clocks_option
@text_or_json_option
@config_options
@click.pass_obj
def run(
    command: tuple[str, ...],
    *,
    revision: str | None,
    patterns: tuple[str, ...],
    preset: str | None,
    launches: int,
    dirty: bool,
    lock_clocks: bool,
    format_name: str,
    config_path: Path | None,
    database_url: str | None,
) -> int:
    """Measure one REVISION (default: HEAD) of the configured workloads, and store the runs. With a command after `--`,
    as in `perfci run -- python train.py`, measure that instead: an unmodified script, its phases marked by perfci.

    Prints what each phase took. Exits 5 when a launch failed; launches that succeeded before are kept.
    """
    from perfci.cli.progress import StderrProgress  # noqa: PLC0415  (each command pays only for what it uses)
    from perfci.pipeline.measure import MeasureRequest, measure_revision  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.report.runs import runs_json, runs_text  # noqa: PLC0415
    from perfci.store.store import open_store  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    request = MeasureRequest(
        revision=revision or "HEAD",
        patterns=patterns,
        preset=preset,
        command=command,
        launches=launches,
        dirty=dirty,
        lock_clocks=lock_clocks,
    )
    with open_store(workspace.project.database_url) as store:
        runs = measure_revision(workspace, store, request, StderrProgress())
    click.echo(runs_json(runs) if format_name == "json" else runs_text(runs), nl=False)
    return ExitCode.MEASUREMENT if all(run.spoiled for run in runs) else ExitCode.OK


@click.command(short_help="Measure one revision against itself: noise floors and false alarms.")
@click.argument("revision", required=False, metavar="[REVISION]")
@workload_option
@launches_option(least=8, default=12)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of the splits drawn.")
@lock_clocks_option
@text_or_json_option
@config_options
@click.pass_obj
def calibrate(
    command: tuple[str, ...],
    *,
    revision: str | None,
    patterns: tuple[str, ...],
    preset: str | None,
    launches: int,
    seed: int,
    lock_clocks: bool,
    format_name: str,
    config_path: Path | None,
    database_url: str | None,
) -> None:
    """Launch one REVISION (default: HEAD) many times, and judge the launches against each other as if half of them were
    a change. Stores the noise floor of every metric, and says how many launches each gate will need."""
    from perfci.cli.progress import StderrProgress  # noqa: PLC0415
    from perfci.pipeline.calibrate import run_calibration  # noqa: PLC0415
    from perfci.pipeline.measure import MeasureRequest  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.report.calibration import calibration_json, calibration_text  # noqa: PLC0415
    from perfci.store.store import open_store  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    request = MeasureRequest(
        revision=revision or "HEAD",
        patterns=patterns,
        preset=preset,
        command=command,
        launches=launches,
        lock_clocks=lock_clocks,
    )
    with open_store(workspace.project.database_url) as store:
        results = run_calibration(workspace, store, request, StderrProgress(), seed=seed)
    click.echo(calibration_json(results) if format_name == "json" else calibration_text(results), nl=False)
