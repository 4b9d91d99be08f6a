"""``perfci baseline``: reviewed baseline files."""

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path

import click

from perfci.cli.options import config_options, workload_option
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
@workload_option
@click.option("--reason", required=True, help="Why these levels are right: reviewers will read it.")
@config_options
def accept(
    *,
    revision: str,
    patterns: tuple[str, ...],
    preset: str | None,
    reason: str,
    config_path: Path | None,
    database_url: str | None,
) -> None:
    """Write the stored levels of REVISION as baseline files, for review and commit."""
    from perfci.pipeline.baselines import accept as accept_levels  # noqa: PLC0415  (paid for only when used)
    from perfci.pipeline.stored import open_to_read  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.report.baselines import accepted_text  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    configured = bool(workspace.project.sections)
    if preset is not None and not configured:
        raise UsageError("--preset chooses configured workloads, and perfci.yaml lists none", todo="name them with -w")
    names = [w.spec.name for w in workspace.project.select(patterns, preset=preset)] if configured else list(patterns)
    if not names:
        raise UsageError("no workload was named, and perfci.yaml lists none", todo="name them with -w")
    with open_to_read(workspace.project) as store:
        views = accept_levels(
            workspace, store, revision=revision, workloads=names, reason=reason, on=datetime.now(UTC).date()
        )
    click.echo(accepted_text(views), nl=False)
    click.echo(f"review and commit {'it' if len(views) == 1 else 'them'}")


@baseline.command()
@click.option(
    "-w", "--workload", "patterns", multiple=True, metavar="PATTERN", help="Only these, with all their levels."
)
@config_options
def show(*, patterns: tuple[str, ...], config_path: Path | None, database_url: str | None) -> None:
    """List the baseline files; with -w also the levels in them."""
    from perfci.config.baselines import read_baselines  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.report.baselines import listed_text  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    files = read_baselines(workspace.project.baselines)
    if not files:
        click.echo(f"no baseline files in {workspace.project.baselines}")
        return
    found = [
        (path.name, pinned)
        for path, pinned in files
        if not patterns or any(fnmatchcase(pinned.workload, pattern) for pattern in patterns)
    ]
    if not found:
        known = ", ".join(sorted({pinned.workload for _, pinned in files}))
        raise UsageError(f"no baseline file is about {', '.join(patterns)}", wanted=f"one of: {known}")
    click.echo(listed_text(found, levels=bool(patterns)), nl=False)


@baseline.command()
@config_options
def check(*, config_path: Path | None, database_url: str | None) -> None:
    """Check that all baseline files can be read, and warn of those that today's configuration cannot use. Exits 2 with
    file:line for each fault."""
    from perfci.config.baselines import read_baselines  # noqa: PLC0415
    from perfci.pipeline.baselines import doubts  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    found = read_baselines(workspace.project.baselines)
    for text in doubts(workspace):
        click.echo(f"warning: {text}", err=True)
    click.echo(f"ok: {len(found)} baseline file{'s' if len(found) != 1 else ''} in {workspace.project.baselines}")
