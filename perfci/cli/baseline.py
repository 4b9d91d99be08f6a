"""``perfci baseline``: reviewed baseline files."""

from datetime import UTC, datetime
from pathlib import Path

import click

from perfci.cli.options import config_options
from perfci.errors import UsageError


@click.group(short_help="Accept, show or check reviewed baseline files.")
def baseline() -> None:
    """Accept, show or check reviewed baseline files (the folder `baselines:` of perfci.yaml).

    A file holds the accepted levels of one workload in one environment, with the reason. Every comparison in the same
    environment is also judged against it, so that small changes cannot add up unseen; `perfci compare @baseline..REV`
    judges against the files alone.
    """


@baseline.command()
@click.argument("revision")
@click.option(
    "-w", "--workload", "patterns", multiple=True, metavar="PATTERN", help="Workload. Repeatable. Default: all."
)
@click.option("--reason", required=True, help="Why these levels are right: reviewers will read it.")
@config_options
def accept(
    *, revision: str, patterns: tuple[str, ...], reason: str, config_path: Path | None, database_url: str | None
) -> None:
    """Write the stored levels of REVISION as baseline files, for review and commit."""
    from perfci.pipeline.baselines import accept as accept_levels  # noqa: PLC0415  (paid for only when used)
    from perfci.pipeline.stored import open_to_read  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    configured = bool(workspace.project.sections)
    names = [w.spec.name for w in workspace.project.select(patterns)] if configured else list(patterns)
    if not names:
        raise UsageError("no workload was named, and perfci.yaml lists none", todo="name them with -w")
    with open_to_read(workspace.project) as store:
        paths = accept_levels(
            workspace, store, revision=revision, workloads=names, reason=reason, on=datetime.now(UTC).date()
        )
    for path in paths:
        click.echo(f"wrote {path}; review and commit it")


@baseline.command()
@config_options
def show(*, config_path: Path | None, database_url: str | None) -> None:
    """List the baseline files."""
    from perfci.config.baselines import read_baselines  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    found = read_baselines(workspace.project.baselines)
    if not found:
        click.echo(f"no baseline files in {workspace.project.baselines}")
    for path, pinned in found:
        where = pinned.environment.get("gpu_model") or pinned.environment.get("cpu_model") or "unknown machine"
        click.echo(
            f"{path.name}: {pinned.workload} at {pinned.revision.label} on {where}, {len(pinned.levels)} levels, "
            f"accepted {pinned.accepted_on}: {pinned.reason}"
        )


@baseline.command()
@config_options
def check(*, config_path: Path | None, database_url: str | None) -> None:
    """Check that all baseline files can be read. Exits 2 with file:line for each fault."""
    from perfci.config.baselines import read_baselines  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    found = read_baselines(workspace.project.baselines)
    click.echo(f"ok: {len(found)} baseline file{'s' if len(found) != 1 else ''} in {workspace.project.baselines}")
