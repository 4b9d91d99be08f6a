"""``perfci compare``: two revisions, one verdict."""

import math
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfci.cli.options import (
    config_options,
    link_option,
    lock_clocks_option,
    output_options,
    plan_outputs,
    workload_option,
    write_output,
)
from perfci.errors import ExitCode, UsageError
from perfci.model.settings import MOST_LAUNCHES

if TYPE_CHECKING:
    from perfci.report.context import Link  # each command pays only for what it uses


@click.command(short_help="Compare two revisions and give a verdict.")
@click.argument("revisions", metavar="BASELINE..CANDIDATE", nargs=-1, required=True)
@workload_option
@click.option("--measure", is_flag=True, help="Measure what is missing, in git worktrees of both revisions.")
@click.option("--remeasure", is_flag=True, help="Measure both sides anew, whatever is stored.")
@click.option("--dirty", is_flag=True, help="Take the working tree with its uncommitted changes as the candidate.")
@click.option(
    "--max-launches",
    type=click.IntRange(min=1, max=MOST_LAUNCHES),
    help="Launches per side at most (default: configuration).",
)
@click.option("--max-minutes", type=click.FloatRange(min=0, max=10_000, min_open=True), help="Measuring time at most.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the launch order (default: drawn and recorded).")
@lock_clocks_option
@click.option("--no-report", is_flag=True, help="Write no HTML page of its own below .perfci/reports.")
@link_option
@output_options
@config_options
@click.pass_obj
def compare(
    command: tuple[str, ...],
    *,
    revisions: tuple[str, ...],
    patterns: tuple[str, ...],
    preset: str | None,
    measure: bool,
    remeasure: bool,
    dirty: bool,
    max_launches: int | None,
    max_minutes: float | None,
    seed: int | None,
    lock_clocks: bool,
    no_report: bool,
    links: "tuple[Link, ...]",
    formats: tuple[str, ...],
    files: tuple[str, ...],
    config_path: Path | None,
    database_url: str | None,
) -> int:
    """Compare two revisions and give a verdict.

    A..B compares the two tips; A...B compares B with its merge base (what a pull request means); A alone means A..HEAD.
    Labels of imported runs work too. With a command after `--` (`perfci compare main..x --measure -- python train.py`)
    that is measured instead of the configured workloads: an unmodified script, its phases marked by perfci.

    Exits 0 for no regression, 3 regression, 4 inconclusive or not comparable, 5 not measured.
    """
    from perfci.cli.progress import StderrProgress  # noqa: PLC0415  (each command pays only for what it uses)
    from perfci.cli.render import render_comparison  # noqa: PLC0415
    from perfci.model.verdict import exit_code_of  # noqa: PLC0415
    from perfci.pipeline.compare import CompareRequest, run_comparison  # noqa: PLC0415
    from perfci.pipeline.stored import open_to_read  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415
    from perfci.store.store import open_store  # noqa: PLC0415

    asked_range = _range_of(revisions)
    if max_minutes is not None and math.isnan(max_minutes):
        raise UsageError("--max-minutes is no number", wanted="minutes above 0, such as 30")
    outputs = plan_outputs(formats, files)
    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    request = CompareRequest(
        revisions=asked_range,
        patterns=patterns,
        preset=preset,
        command=command,
        measure=measure or remeasure,
        remeasure=remeasure,
        dirty=dirty,
        max_launches=max_launches,
        max_minutes=max_minutes,
        seed=seed,
        lock_clocks=lock_clocks,
    )
    database = workspace.project
    with open_store(database.database_url) if request.measure else open_to_read(database) as store:
        comparison = run_comparison(workspace, store, request, StderrProgress())
    now = datetime.now(UTC)
    reproduce = f"perfci {shlex.join(sys.argv[1:])}"
    for output in outputs:
        content = render_comparison(
            comparison, output.format, to_stdout=output.path is None, reproduce=reproduce, now=now, links=links
        )
        write_output(content, output.path)
    asked = [output.path for output in outputs if output.format == "html" and output.path is not None]
    for path in asked:
        click.echo(f"report page: {path.resolve()}", err=True)
    if not no_report and not asked:
        page = workspace.private / "reports" / f"{now:%Y%m%dT%H%M%SZ}.html"
        content = render_comparison(comparison, "html", to_stdout=False, reproduce=reproduce, now=now, links=links)
        try:
            write_output(content, page)
            click.echo(f"report page: {page}", err=True)
        except UsageError as error:  # nobody asked for this page: the verdict keeps its exit code
            click.echo(f"perfci: no report page: {error.seen}", err=True)
    return ExitCode(exit_code_of(comparison.verdict))


def _range_of(words: tuple[str, ...]) -> str:
    """The one range that was given. Raises UsageError for an empty one, and for revisions given as words of their own,
    as `git diff` takes them."""
    if len(words) > 1:
        tips = len(words) == 2 and ".." not in "".join(words)
        todo = f"perfci compare {shlex.quote('..'.join(words))}" if tips else ""
        raise UsageError(f"{len(words)} revisions: {' '.join(words)}", wanted="one range A..B or A...B", todo=todo)
    if not words[0].strip():
        raise UsageError("the revisions are empty", wanted="A..B, such as main..HEAD", todo="is a variable unset?")
    return words[0]
