"""A click group that imports a command's module only when the command is used: ``perfci --help`` stays fast."""

import importlib
from typing import Any

import click

_HELP = {
    "init": "Write a commented perfci.yaml.",
    "doctor": "Say what this machine can do, and how to mend what it cannot.",
    "config": "Show the configuration's JSON Schema.",
    "list": "List the configured workloads.",
    "run": "Measure one revision.",
    "compare": "Compare two revisions and give a verdict.",
    "import": "Store existing nsys reports or exports as runs.",
    "extract": "Print what a trace says per phase.",
    "diagnose": "Name known performance patterns in a trace, or what differs between two.",
    "trace": "Write a Perfetto timeline of the median step.",
    "calibrate": "Measure one revision against itself: noise floors and false alarms.",
    "baseline": "Accept, show or check reviewed baseline files.",
    "history": "Show where the level of a metric changed along the main line.",
    "plan": "Print the jobs of a comparison, for a CI matrix.",
    "authorize": "Decide about a /perf comment on a pull request.",
    "bundle": "Pack measured runs for publishing.",
    "publish": "Verify a bundle, compare, and post the verdict.",
}
"""Short help, kept here so that listing the commands imports none of them; a test holds it equal to the command's."""


class LazyGroup(click.Group):
    """Commands are given as ``name -> "module:attribute"`` and resolved on first use."""

    def __init__(self, *args: Any, commands_at: dict[str, str] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._commands_at = commands_at or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a user's journey, not of the alphabet."""
        return [*self._commands_at, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command, or None when there is no such one."""
        if cmd_name not in self._commands_at:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self._commands_at[cmd_name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and short helps without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _HELP[name]) for name in self.list_commands(ctx)])
