"""Rich content as plain text: how every text report is written."""

import io

from rich.console import Console, RenderableType

from perfci.report.names import no_command


def drawn(content: RenderableType, *, width: int, color: bool) -> str:
    """Rich content as text, whatever the process's environment says. No blanks at line ends, no two empty lines in
    a row, no line that a CI runner takes for a command."""
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        color_system="standard" if color else None,
        force_terminal=color,
        no_color=not color,
        legacy_windows=False,
        markup=False,
        highlight=False,
        emoji=False,
        _environ={},
    )
    console.print(content)
    lines = [no_command(line.rstrip()) for line in buffer.getvalue().splitlines()]
    kept = [line for index, line in enumerate(lines) if line or (index and lines[index - 1])]
    return "".join(line + "\n" for line in kept)
