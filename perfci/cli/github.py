"""``perfci plan``, ``authorize``, ``bundle`` and ``publish``: the steps of a workflow (docs/github.md)."""

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import click

from perfci.cli.options import (
    config_options,
    link_option,
    output_options,
    plan_outputs,
    workload_option,
    write_output,
)
from perfci.errors import PerfciError, UsageError

if TYPE_CHECKING:
    from perfci.github.event import Event  # each command pays only for what it uses
    from perfci.github.github3_port import Github3Port
    from perfci.report.context import Link


@contextmanager
def _redacting() -> Iterator[None]:
    """While inside, nothing that is printed holds a token of the environment: no message, no log, no traceback."""
    from perfci.github.secret import TOKEN_VARIABLES, RedactingFilter, Secret, redact  # noqa: PLC0415

    secrets = tuple(Secret(value) for name in TOKEN_VARIABLES if (value := os.environ.get(name)))
    handler = logging.StreamHandler()
    handler.addFilter(RedactingFilter(secrets))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, format="%(name)s: %(message)s")

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, trace))
        print(redact(text, secrets), end="", file=sys.stderr)

    sys.excepthook = report
    try:
        yield
    except PerfciError as error:
        error.seen, error.wanted, error.todo = (redact(t, secrets) for t in (error.seen, error.wanted, error.todo))
        error.args = (error.seen,)
        raise


def _check_name(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    from perfci.github.sticky import is_name  # noqa: PLC0415

    if not is_name(value):
        raise click.BadParameter("wanted letters, digits, blanks and . _ / - (at most 60, no --)")
    return value


@click.command(short_help="Print the jobs of a comparison, for a CI matrix.")
@click.option("--gpu", "labels", multiple=True, metavar="LABEL", help="Label of GPU runners. Repeatable.")
@click.option("-w", "--workload", "patterns", multiple=True, metavar="PATTERN", help="Workload. Repeatable.")
@click.option(
    "-f", "--format", "format_name", type=click.Choice(["text", "github-matrix"]), default="text", show_default=True
)
@config_options
def plan(
    *,
    labels: tuple[str, ...],
    patterns: tuple[str, ...],
    format_name: str,
    config_path: Path | None,
    database_url: str | None,
) -> None:
    """Print one job for each workload and GPU label: as lines, or as the value of `strategy.matrix` of a workflow."""
    from perfci.github.matrix import github_matrix  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
    names = [workload.spec.name for workload in workspace.project.select(patterns)]
    if format_name == "github-matrix":
        click.echo(github_matrix(names, labels))
    else:
        for name in names:
            click.echo("\n".join(f"{name} on {label}" for label in labels) if labels else name)


@click.command(short_help="Decide about a /perf comment on a pull request.")
@click.option(
    "--name", default="perfci", callback=_check_name, show_default=True, help="Name of the check, as in publish."
)
def authorize(*, name: str) -> None:
    """Decide about the comment of an `issue_comment` event, and print the step's outputs (verb, head_sha, …).

    Prints nothing for a comment that is no /perf command. Exits 2 with the reason when the command is refused: only
    accounts with write permission may, and only for the commit that is the head right now.
    """
    from perfci.github.command import authorization_outputs  # noqa: PLC0415
    from perfci.github.github3_port import port_from_environment  # noqa: PLC0415
    from perfci.pipeline.publish import authorized  # noqa: PLC0415

    with _redacting():
        event = _event()
        allowed = authorized(event, port_from_environment(os.environ, repository=event.repository), name=name)
    if allowed is not None:
        click.echo(authorization_outputs(allowed), nl=False)


@click.command(short_help="Pack measured runs for publishing.")
@click.argument("revisions", metavar="BASE...HEAD")
@workload_option
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), required=True, help="Bundle to write.")
@click.option("--failed", default="", metavar="TEXT", help="How measuring ended, when it did not end well.")
@config_options
def bundle(
    *,
    revisions: str,
    patterns: tuple[str, ...],
    preset: str | None,
    output: Path,
    failed: str,
    config_path: Path | None,
    database_url: str | None,
) -> None:
    """Pack the stored runs of BASE...HEAD (or of one revision) and what failed, for `perfci publish` elsewhere.

    Paths, logs and profiles of this machine stay here. A bundle is written also when nothing could be measured: then
    it says why. GITHUB_REPOSITORY and GITHUB_RUN_ID say what it belongs to.
    """
    from perfci.pipeline.packing import BundleRequest, pack  # noqa: PLC0415

    request = BundleRequest(
        revisions=revisions,
        output=output,
        patterns=patterns,
        preset=preset,
        failed=failed,
        config=config_path,
        database_url=database_url,
    )
    with _redacting():
        written = pack(Path.cwd(), request, os.environ)
    runs, failures = written.run_count, written.failure_count
    click.echo(
        f"wrote {written.path}: {runs} run{'s' if runs != 1 else ''}, "
        f"{failures} failure{'s' if failures != 1 else ''}, {written.file_bytes:,} bytes"
    )


@click.command(short_help="Verify a bundle, compare, and post the verdict.")
@click.option(
    "--bundle", "bundles", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="Bundle. Repeatable."
)
@workload_option
@click.option(
    "--name", default="perfci", callback=_check_name, show_default=True, help="Name of the check and of the comment."
)
@click.option("--quiet", is_flag=True, help="Comment only when there is something new to say.")
@click.option("--strict", is_flag=True, help="What could not be decided fails the check.")
@click.option("--no-comment", is_flag=True, help="Post no comment.")
@link_option
@click.option("--ended", default="", metavar="RESULT", help="Result of the measuring job, where the event lacks it.")
@output_options
@config_options
def publish(
    *,
    bundles: tuple[Path, ...],
    patterns: tuple[str, ...],
    preset: str | None,
    name: str,
    quiet: bool,
    strict: bool,
    no_comment: bool,
    links: "tuple[Link, ...]",
    ended: str,
    formats: tuple[str, ...],
    files: tuple[str, ...],
    config_path: Path | None,
    database_url: str | None,
) -> int:
    """Verify the bundles of a measuring run, store what may be stored, judge, and post the verdict to GitHub.

    What was measured is read from the event of this workflow job; a bundle that says something else is refused. Without
    a bundle it is posted that nothing was measured. Exits with the verdict's code, also when posting failed.
    """
    from perfci.cli.progress import StderrProgress  # noqa: PLC0415
    from perfci.cli.render import render_comparison  # noqa: PLC0415
    from perfci.github.address import address_from_environment  # noqa: PLC0415
    from perfci.github.publish import PublishSettings  # noqa: PLC0415
    from perfci.pipeline.publish import PublishRequest, run_publish, subject_of  # noqa: PLC0415
    from perfci.pipeline.workspace import open_workspace  # noqa: PLC0415

    outputs = plan_outputs(formats, files)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    request = PublishRequest(
        bundles=bundles,
        patterns=patterns,
        preset=preset,
        links=links,
        ended=ended,
        settings=PublishSettings(name=name, quiet=quiet, strict=strict, comment=not no_comment),
        summary=Path(summary) if summary else None,
    )
    now = datetime.now(UTC)
    with _redacting():
        address = address_from_environment(os.environ)
        workspace = open_workspace(Path.cwd(), config=config_path, database_url=database_url)
        event = _event()
        port = _port(event)
        subject = subject_of(event, port, request)
        if subject is None:
            click.echo("perfci: the comment is no command; nothing to publish", err=True)
            return 0
        published = run_publish(workspace, subject, port, request, address=address, now=now, progress=StderrProgress())
    outcome = published.outcome
    for output in outputs:
        content = render_comparison(
            outcome.comparison,
            output.format,
            to_stdout=output.path is None,
            reproduce=" ".join(published.context.reproduce),
            now=now,
            links=published.context.links,
        )
        write_output(content, output.path)
    if outcome.dropped:
        click.echo(f"perfci: not posted: {outcome.dropped}", err=True)
    click.echo(f"perfci: posted: {', '.join(outcome.posted) or 'nothing'}", err=True)
    return published.exit_code


def _event() -> "Event":
    from perfci.github.event import event_from_environment  # noqa: PLC0415

    return event_from_environment(os.environ)


def _port(event: "Event") -> "Github3Port | None":
    """The way to GitHub, or None with the reason on stderr: the verdict is given also without it."""
    from perfci.github.github3_port import port_from_environment  # noqa: PLC0415

    try:
        return port_from_environment(os.environ, repository=event.repository)
    except UsageError as error:
        click.echo(f"perfci: {error}", err=True)
        return None
