"""Errors with an exit code. Every message says what was seen, what was wanted and what to do."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Process exit codes, equal for every command (docs/exit-codes.md)."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REGRESSION = 3
    INCONCLUSIVE = 4
    MEASUREMENT = 5
    BACKEND = 6
    INTERRUPTED = 130


class PerfciError(Exception):
    """Base of all errors that a user can mend.

    ``seen`` states the fact, ``wanted`` what was expected instead, ``todo`` the next step for the user. The last
    two may be empty
    when ``seen`` already says it all.
    """

    exit_code: ExitCode = ExitCode.INTERNAL

    def __init__(self, seen: str, *, wanted: str = "", todo: str = "") -> None:
        super().__init__(seen)
        self.seen = seen
        self.wanted = wanted
        self.todo = todo

    def __str__(self) -> str:
        parts = [self.seen]
        if self.wanted:
            parts.append(f"wanted: {self.wanted}")
        if self.todo:
            parts.append(f"do: {self.todo}")
        return "\n  ".join(parts)


class UsageError(PerfciError):
    """Wrong arguments, configuration or revision: nothing was measured."""

    exit_code = ExitCode.USAGE


class MeasurementError(PerfciError):
    """A launch, a profile or a trace failed or is missing: never green."""

    exit_code = ExitCode.MEASUREMENT


class TraceError(MeasurementError):
    """A trace file cannot be read or holds no measurable step."""


class BackendError(PerfciError):
    """The database or GitHub cannot be reached or refuses."""

    exit_code = ExitCode.BACKEND
