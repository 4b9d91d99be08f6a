"""One line of ``perfci doctor``."""

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """OK; WARN: works, but numbers are noisier or something is missing; FAIL: perfci cannot measure like this."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was looked at, what was seen, and how to mend it (empty when there is nothing to mend)."""

    name: str
    status: Status
    seen: str
    todo: str = ""
