"""Fits a text report to the stream it goes to: the only place of the reports that looks at a terminal."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TextIO

from perfci.report.context import MIN_WIDTH, ReportContext

PLAIN_WIDTH = 120
"""Columns of a report that goes to a file or a CI log."""


def fit_to(context: ReportContext, stream: TextIO, environ: Mapping[str, str]) -> ReportContext:
    """The context for writing text to ``stream``: colour only on a terminal and without NO_COLOR (no-color.org: set
    and not empty), width from COLUMNS, else from the terminal, else PLAIN_WIDTH."""
    terminal = stream.isatty()
    color = terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    width = PLAIN_WIDTH
    if environ.get("COLUMNS", "").isdigit():
        width = int(environ["COLUMNS"])
    elif terminal:
        try:
            width = os.get_terminal_size(stream.fileno()).columns or PLAIN_WIDTH
        except OSError:  # a terminal without a size, as some CI services emulate it
            width = PLAIN_WIDTH
    return replace(context, color=color, width=max(width, MIN_WIDTH))
