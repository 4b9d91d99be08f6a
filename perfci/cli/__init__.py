"""Command line: turns argv into a pipeline call and an exit code. Data on stdout, progress and logs on stderr."""

import signal
import sys
import threading
from types import FrameType

import click

from perfci.cli.lazy import LazyGroup
from perfci.cli.streams import keep_streams
from perfci.errors import ExitCode, PerfciError, UsageError
from perfci.report.names import plain_lines

_COMMANDS = {
    "init": "perfci.cli.setup:init",
    "doctor": "perfci.cli.setup:doctor",
    "config": "perfci.cli.setup:config",
    "list": "perfci.cli.setup:list_workloads",
    "run": "perfci.cli.measure:run",
    "compare": "perfci.cli.compare:compare",
    "import": "perfci.cli.traces:import_traces",
    "extract": "perfci.cli.traces:extract",
    "diagnose": "perfci.cli.traces:diagnose",
    "trace": "perfci.cli.traces:trace",
    "calibrate": "perfci.cli.measure:calibrate",
    "baseline": "perfci.cli.baseline:baseline",
    "history": "perfci.cli.history:history",
    "plan": "perfci.cli.github:plan",
    "authorize": "perfci.cli.github:authorize",
    "bundle": "perfci.cli.github:bundle",
    "publish": "perfci.cli.github:publish",
}
_AGAIN_S = 0.02


@click.group(
    cls=LazyGroup,
    commands_at=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="perfci", message="perfci %(version)s")
def cli() -> None:
    """Did this change make training slower, by how much, where and why, and how sure are we?

    Exit codes: 0 ok, 1 internal error, 2 usage or configuration, 3 regression, 4 inconclusive or not comparable,
    5 measurement failed or missing, 6 database or GitHub unreachable, 130 interrupted.
    """


def split_command(words: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """perfci's own words, and the training command after ``--`` (empty: none). Raises UsageError for an empty command,
    or after a perfci command that takes none."""
    if "--" not in words:
        return words, ()
    at = words.index("--")
    own, command = words[:at], tuple(words[at + 1 :])
    taking = [word for word in own if not word.startswith("-")][:1]
    if taking not in (["run"], ["compare"], ["calibrate"]):
        raise UsageError("only run, compare and calibrate take a command after `--`")
    if not command:
        raise UsageError("nothing after `--`", wanted="the training command, for example: -- python train.py")
    return own, command


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C, so that worktrees, clocks and child processes are cleaned up the same way."""
    raise KeyboardInterrupt


def _try_again(unraisable: "sys.UnraisableHookArgs") -> None:
    """Deliver a Ctrl-C again that hit code in which Python drops exceptions (a destructor, a weakref's callback)."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # From another thread and a little later: a signal raised in here would be dropped like the first one.
        main_thread = threading.main_thread().ident
        assert main_thread is not None
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, (main_thread, signal.SIGINT))
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)


def main(argv: list[str] | None = None) -> int:
    """Entry point. Returns (and as a console script exits with) the code of docs/exit-codes.md."""
    keep_streams()
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _try_again
    words = sys.argv[1:] if argv is None else argv
    try:
        words, command = split_command(words)
        code = cli.main(args=words, prog_name="perfci", standalone_mode=False, obj=command)
        sys.stdout.flush()
    except PerfciError as error:
        click.echo(plain_lines(f"perfci: {error}"), err=True)
        return error.exit_code
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("perfci: interrupted; launches that were finished are stored", err=True)
        return ExitCode.INTERRUPTED
    return int(code) if isinstance(code, int) else ExitCode.OK
