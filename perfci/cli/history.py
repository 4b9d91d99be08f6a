"""``perfci history``: where the level of a metric changed along the main line."""

from pathlib import Path

import click

from perfci.cli.options import config_options, text_or_json_option
from perfci.errors import MeasurementError, UsageError


@click.command(short_help="Show where the level of a metric changed along the main line.")
@click.argument("revision", required=False, default="HEAD")
@click.option("-w", "--workload", required=True, help="Workload.")
@click.option("--phase", default="step", show_default=True, help="Phase; `step` is the whole step, `run` the launch.")
@click.option("--metric", default="unprofiled_wall_ns", show_default=True, help="Metric (docs/metrics.md).")
@click.option("--limit", type=click.IntRange(min=1), default=500, show_default=True, help="Commits to look back.")
@text_or_json_option
@config_options
def history(
    *,
    revision: str,
    workload: str,
    phase: str,
    metric: str,
    limit: int,
    format_name: str,
    config_path: Path | None,
    database_url: str | None,
) -> None:
    """Show the levels of a metric along the first parents of REVISION (default: HEAD), and between which two measured
    commits each change lies."""
    from perfci.model.metrics import METRICS  # noqa: PLC0415  (each command pays only for what it uses)
    from perfci.pipeline.history import history_of  # noqa: PLC0415
    from perfci.pipeline.stored import open_to_read  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.report.history import history_document, history_json, history_text  # noqa: PLC0415

    if metric not in METRICS:
        raise UsageError(f"unknown metric {metric!r}", wanted=f"one of: {', '.join(METRICS)}")
    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    with open_to_read(workspace.project) as store:
        found = history_of(
            workspace, store, workload=workload, phase=phase, metric=metric, revision=revision, limit=limit
        )
    if not found:
        raise MeasurementError(
            f"no measured commit of {workload} {phase}/{metric} among the last {limit} of {revision}",
            todo="perfci run measures one",
        )
    if format_name == "json":
        documents = [
            history_document(
                workload=h.workload,
                phase=h.phase,
                metric=h.metric,
                key_hash=h.key_hash,
                entries=h.entries,
                report=h.report,
            )
            for h in found
        ]
        click.echo(history_json(documents), nl=False)
        return
    for one in found:
        title = f"{workload} {phase}/{metric} (environment {one.key_hash[:8]})"
        click.echo(history_text(title, metric, one.entries, one.report), nl=False)
