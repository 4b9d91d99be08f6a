"""``perfci init``, ``doctor``, ``config`` and ``list``: getting started."""

import json
from pathlib import Path

import click

from perfci.cli.options import config_options, text_or_json_option
from perfci.errors import ExitCode, UsageError

_MARKS = {"ok": "ok  ", "warn": "warn", "fail": "FAIL"}


@click.command(short_help="Write a commented perfci.yaml.")
@click.option("--force", is_flag=True, help="Overwrite an existing perfci.yaml.")
def init(*, force: bool) -> None:
    """Write a commented perfci.yaml into the current folder."""
    from perfci.config.template import TEMPLATE  # noqa: PLC0415  (each command pays only for what it uses)

    path = Path("perfci.yaml")
    if path.exists() and not force:
        raise UsageError(f"{path.resolve()} exists", todo="edit it, or overwrite it with --force")
    try:
        path.write_text(TEMPLATE)
    except OSError as error:
        raise UsageError(f"{path.resolve()}: cannot be written: {error.strerror}") from error
    click.echo(
        f"wrote {path.resolve()}\nnext: edit `workloads:`, commit the file, then `perfci doctor` and `perfci run`"
    )


@click.command(short_help="Say what this machine can do, and how to mend what it cannot.")
@text_or_json_option
@config_options
def doctor(*, format_name: str, config_path: Path | None, database_url: str | None) -> int:
    """Say what this machine can do, and how to mend what it cannot. Exits 5 when measuring is impossible."""
    from perfci.pipeline.doctor import examine  # noqa: PLC0415

    checks = examine(Path.cwd(), config=config_path, database_url=database_url)
    if format_name == "json":
        rows = [{"name": c.name, "status": c.status.value, "seen": c.seen, "todo": c.todo} for c in checks]
        click.echo(json.dumps({"schema_version": 1, "checks": rows}, indent=2))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            click.echo(f"{_MARKS[check.status.value]}  {check.name:<{width}}  {check.seen}")
            if check.todo and check.status.value != "ok":
                click.echo(f"{'':6}{'':{width}}  do: {check.todo}")
    failed = any(check.status.value == "fail" for check in checks)
    return ExitCode.MEASUREMENT if failed else ExitCode.OK


@click.group(short_help="Show the configuration's JSON Schema.")
def config() -> None:
    """Show the configuration's JSON Schema, or check a file."""


@config.command()
@click.option("--workload", is_flag=True, help="The schema of workload.yaml instead.")
def schema(*, workload: bool) -> None:
    """Print the JSON Schema of perfci.yaml, for editors and validators."""
    from perfci.config.schema import ProjectSection, WorkloadSection  # noqa: PLC0415

    model = WorkloadSection if workload else ProjectSection
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}
    click.echo(json.dumps(document, indent=2))


@config.command()
@config_options
def check(*, config_path: Path | None, database_url: str | None) -> None:
    """Check perfci.yaml and all workloads it names, and warn of gates that no workload has. Exits 2 with file:line for
    each fault."""
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    for text in workspace.project.doubts():
        click.echo(f"warning: {text}", err=True)
    names = workspace.project.workload_names()
    click.echo(f"ok: {len(names)} workload{'s' if len(names) != 1 else ''} in {workspace.project.root}")


@click.command("list", short_help="List the configured workloads.")
@click.argument("patterns", nargs=-1)
@text_or_json_option
@config_options
def list_workloads(
    *, patterns: tuple[str, ...], format_name: str, config_path: Path | None, database_url: str | None
) -> None:
    """List the configured workloads whose name or tag:NAME matches PATTERNS (globs)."""
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    workloads = workspace.project.select(patterns)
    if format_name == "json":
        rows = [
            {
                "name": w.spec.name,
                "title": w.title,
                "owner": w.owner,
                "tags": list(w.spec.tags),
                "preset": w.preset,
                "command": list(w.spec.command),
                "directory": w.spec.directory,
            }
            for w in workloads
        ]
        click.echo(json.dumps({"schema_version": 1, "workloads": rows}, indent=2))
        return
    width = max(len(w.spec.name) for w in workloads)
    for workload in workloads:
        tags = f"  [{', '.join(workload.spec.tags)}]" if workload.spec.tags else ""
        click.echo(f"{workload.spec.name:<{width}}  {workload.title}{tags}".rstrip())
