"""From a comparison to the bytes of one output."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime

from perfci import __version__
from perfci.model.comparison import Comparison
from perfci.report.context import Link, ReportContext
from perfci.report.registry import reporter
from perfci.report.terminal import fit_to


def render_comparison(
    comparison: Comparison,
    format_name: str,
    *,
    to_stdout: bool,
    reproduce: str,
    now: datetime,
    links: Sequence[Link] = (),
) -> str | bytes:
    """Render in one format. Colour and width follow the terminal only when the text goes there."""
    context = ReportContext(perfci_version=__version__, generated_at=now, reproduce=(reproduce,), links=tuple(links))
    if to_stdout:
        context = fit_to(context, sys.stdout, os.environ)
    return reporter(format_name).render(comparison, context)
