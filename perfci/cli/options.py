"""Options and small pieces that several commands share."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, TypeVar

import click

from perfci.errors import UsageError
from perfci.model.settings import MOST_LAUNCHES

if TYPE_CHECKING:
    from perfci.report.context import Link  # each command pays only for what it uses

F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("text", "md", "json", "junit", "html")
_BY_SUFFIX = {
    ".txt": "text",
    ".md": "md",
    ".json": "json",
    ".xml": "junit",
    ".html": "html",
    ".htm": "html",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """One rendering: a format and where it goes (None: stdout)."""

    format: str
    path: Path | None


def plan_outputs(formats: Sequence[str], files: Sequence[str]) -> tuple[Output, ...]:
    """Which formats go where.

    As many ``-f`` as ``-o`` pair up in order. Without ``-f`` each file's format follows from its suffix. When no
    rendering goes to stdout, the text does as well. A single ``-f`` without ``-o`` goes to stdout. ``-o -`` is stdout.
    Raises UsageError for anything ambiguous.
    """
    if not files:
        if len(formats) > 1:
            raise UsageError(
                f"{len(formats)} formats but no file", wanted="one -o FILE for each -f when there are several"
            )
        return (Output(format=formats[0] if formats else "text", path=None),)
    if formats and len(formats) != len(files):
        raise UsageError(
            f"{len(formats)} -f for {len(files)} -o",
            wanted="as many -f as -o (they pair up in order), or no -f: by suffix",
        )
    outputs: list[Output] = []
    for index, file in enumerate(files):
        suffix = PurePath(file).suffix.lower()
        if not formats and suffix not in _BY_SUFFIX:
            raise UsageError(
                f"the format of {file!r} is not clear from its name",
                wanted=f"a suffix of {', '.join(_BY_SUFFIX)}, or -f",
            )
        chosen = formats[index] if formats else _BY_SUFFIX[suffix]
        outputs.append(Output(format=chosen, path=None if file == "-" else Path(file)))
    if all(output.path is not None for output in outputs):
        outputs.append(Output(format="text", path=None))
    if sum(output.path is None for output in outputs) > 1:
        raise UsageError("more than one rendering would go to stdout", wanted="-o FILE for the others")
    return tuple(outputs)


def write_output(content: str | bytes, path: Path | None) -> None:
    """Write a rendering to its file, or to stdout. Raises UsageError when the file cannot be written."""
    if path is None:
        if isinstance(content, bytes):
            sys.stdout.buffer.write(content)
        else:
            click.echo(content, nl=not content.endswith("\n"))
        return
    data = content if isinstance(content, bytes) else content.encode()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", todo="give another -o FILE") from error


def output_options(function: F) -> F:
    """``-f FORMAT`` and ``-o FILE``, both repeatable."""
    function = click.option(
        "-o",
        "--output",
        "files",
        multiple=True,
        metavar="FILE",
        help="Write there; format by -f or suffix. Repeatable.",
    )(function)
    return click.option(
        "-f",
        "--format",
        "formats",
        multiple=True,
        type=click.Choice(FORMATS),
        help="Output format (default: text). Repeatable.",
    )(function)


def launches_option(*, least: int, default: int) -> Callable[[F], F]:
    """``-n NUMBER``, as ``launches``."""
    return click.option(
        "-n",
        "--launches",
        type=click.IntRange(min=least, max=MOST_LAUNCHES),
        default=default,
        show_default=True,
        help="Process launches.",
    )


def link_option(function: F) -> F:
    """``--link TITLE=URL``, repeatable, as ``links``. Anything else is refused before work begins."""
    return click.option(
        "--link", "links", multiple=True, metavar="TITLE=URL", callback=_links, help="Link to show. Repeatable."
    )(function)


def _links(_context: click.Context, _parameter: click.Parameter, texts: tuple[str, ...]) -> "tuple[Link, ...]":
    return tuple(map(_link, texts))


def _link(text: str) -> "Link":
    from perfci.report.context import Link  # noqa: PLC0415

    title, found, url = text.partition("=")
    if not found or not title.strip() or not url.startswith(("https://", "http://")):
        raise UsageError(f"--link {text!r} is no link", wanted="TITLE=URL, for example dashboard=https://perf.example/")
    return Link(title=title.strip(), url=url)


def config_options(function: F) -> F:
    """``--config FILE`` and ``--db URL``."""
    function = click.option(
        "--db",
        "database_url",
        metavar="URL",
        help="Database URL instead of the configured one.",
        envvar="PERFCI_DATABASE_URL",
    )(function)
    return click.option(
        "--config",
        "config_path",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Configuration file (default: perfci.yaml).",
    )(function)


def workload_option(function: F) -> F:
    """``-w PATTERN``, repeatable, and ``--preset``."""
    function = click.option("--preset", help="Preset (size) of the workloads.")(function)
    return click.option(
        "-w",
        "--workload",
        "patterns",
        multiple=True,
        metavar="PATTERN",
        help="Workload name, glob or tag:NAME. Repeatable.",
    )(function)


def text_or_json_option(function: F) -> F:
    """``-f text|json`` of a command with one answer, on stdout."""
    return click.option(
        "-f", "--format", "format_name", type=click.Choice(["text", "json"]), default="text", show_default=True
    )(function)


def lock_clocks_option(function: F) -> F:
    """``--lock-clocks``."""
    return click.option("--lock-clocks", is_flag=True, help="Lock the GPU clocks while measuring, and restore them.")(
        function
    )
