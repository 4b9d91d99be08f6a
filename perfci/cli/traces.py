"""``perfci extract``, ``diagnose``, ``trace`` and ``import``: trace files that the user already has."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from perfci.cli.options import config_options, text_or_json_option, write_output

F = TypeVar("F", bound=Callable[..., Any])


def _trace_options(function: F) -> F:
    function = click.option(
        "--phase",
        "phases",
        multiple=True,
        metavar="NAME",
        help="Range that counts as a phase (default: all). Repeatable.",
    )(function)
    return click.option(
        "--step", "step_range", default="step", show_default=True, help="Name of the range that is a step."
    )(function)


def _format_option(function: F) -> F:
    function = click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to a file.")(
        function
    )
    return text_or_json_option(function)


def _terminal(output: Path | None) -> tuple[int, bool]:
    """Width and colour of text that goes to stdout, or to a file."""
    from perfci import __version__  # noqa: PLC0415  (each command pays only for what it uses)
    from perfci.report.context import ReportContext  # noqa: PLC0415
    from perfci.report.terminal import PLAIN_WIDTH, fit_to  # noqa: PLC0415

    if output is not None:
        return PLAIN_WIDTH, False
    context = fit_to(ReportContext(perfci_version=__version__), sys.stdout, os.environ)
    return context.width, context.color


def _one_or_two(paths: tuple[Path, ...]) -> tuple[Path, ...]:
    """The paths as they are; click.UsageError for more than a pair."""
    if len(paths) > 2:
        raise click.UsageError(f"one or two files, got {len(paths)}")
    return paths


@click.command(short_help="Print what a trace says per phase.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@_trace_options
@_format_option
def extract(
    *, files: tuple[str, ...], step_range: str, phases: tuple[str, ...], format_name: str, output: Path | None
) -> None:
    """Print what the trace of one launch says per phase. No database is used.

    FILE is a .nsys-rep or .sqlite file of nsys (or the trace.json of the torch collector); several files, or a quoted
    glob, are the ranks of one launch.
    """
    from perfci.pipeline.files import TraceOptions, expand, extract_files  # noqa: PLC0415
    from perfci.report.extraction import render_json, render_text  # noqa: PLC0415

    extraction = extract_files(expand(files), TraceOptions(step_range=step_range, phases=phases))
    if format_name == "json":
        write_output(render_json(extraction), output)
    else:
        width, color = _terminal(output)
        write_output(render_text(extraction, width=width, color=color), output)


@click.command(short_help="Name known performance patterns in a trace, or what differs between two.")
@click.argument("files", nargs=-1, required=True, metavar="FILE [FILE2]")
@_trace_options
@_format_option
def diagnose(
    *, files: tuple[str, ...], step_range: str, phases: tuple[str, ...], format_name: str, output: Path | None
) -> None:
    """Name known performance patterns in FILE, or what is new, worse and gone in FILE2 against FILE."""
    from perfci.pipeline.files import TraceOptions, diagnose_files, expand  # noqa: PLC0415
    from perfci.report.diagnosis_text import render_json, render_text  # noqa: PLC0415

    paths = _one_or_two(expand(files))
    baseline = paths[0] if len(paths) == 2 else None
    diagnosis = diagnose_files(baseline, paths[-1], TraceOptions(step_range=step_range, phases=phases))
    if format_name == "json":
        write_output(render_json(diagnosis), output)
    else:
        width, color = _terminal(output)
        write_output(render_text(diagnosis, width=width, color=color), output)


@click.command(short_help="Write a Perfetto timeline of the median step.")
@click.argument("files", nargs=-1, required=True, metavar="FILE [FILE2]")
@_trace_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), default=Path("trace.json.gz"), show_default=True
)
def trace(*, files: tuple[str, ...], step_range: str, phases: tuple[str, ...], output: Path) -> None:
    """Write a Chrome/Perfetto timeline of the median steps of FILE, with FILE2 beside it as the candidate."""
    from perfci.pipeline.files import TraceOptions, expand, read_files  # noqa: PLC0415
    from perfci.report.perfetto import write_timeline  # noqa: PLC0415

    paths = _one_or_two(expand(files))
    options = TraceOptions(step_range=step_range, phases=phases)
    timelines = [read_files([path], options) for path in paths]
    write_timeline(output, *timelines)
    click.echo(f"wrote {output}; open it in https://ui.perfetto.dev or chrome://tracing", err=True)


@click.command("import", short_help="Store existing nsys reports or exports as runs.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("-w", "--workload", required=True, help="Name of the workload the traces belong to.")
@click.option("-r", "--revision", required=True, help="Git revision, or a free label.")
@click.option("--ranks", is_flag=True, help="The files are the ranks of one launch, not one launch each.")
@_trace_options
@config_options
def import_traces(
    *,
    files: tuple[str, ...],
    workload: str,
    revision: str,
    ranks: bool,
    step_range: str,
    phases: tuple[str, ...],
    config_path: Path | None,
    database_url: str | None,
) -> None:
    """Store existing .nsys-rep or .sqlite files as runs. Importing a file twice stores it once."""
    from perfci.cli.progress import StderrProgress  # noqa: PLC0415
    from perfci.pipeline.files import TraceOptions, expand, import_files  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.store.store import open_store  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    paths = expand(files)
    with open_store(workspace.project.database_url) as store:
        runs, new = import_files(
            workspace,
            store,
            paths,
            workload=workload,
            revision=revision,
            one_run=ranks,
            options=TraceOptions(step_range=step_range, phases=phases),
            progress=StderrProgress(),
        )
    known = len(runs) - new
    already = f" ({known} stored before)" if known else ""
    click.echo(f"imported {new} run{'s' if new != 1 else ''} of {workload} at {runs[0].revision.label}{already}")
