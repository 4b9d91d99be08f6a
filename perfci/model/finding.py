"""A finding: a known performance pattern seen in a trace, with its evidence and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A number of evidence with its unit; the unit is one of metrics.Unit or a short word ('steps', '%')."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLocation:
    """A place in the user's code, relative to the repository root."""

    path: str
    line: int


class Confidence(StrEnum):
    """How sure a rule is of its finding."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A known pattern seen by a rule: what, where, the numbers behind it, and what a performance engineer would do.

    The first ``evidence`` is the cost: what the pattern takes per step, or how often it happens where time means
    little; two traces are compared by it.
    """

    rule: str
    phase: str
    title: str
    evidence: tuple[Quantity, ...]
    confidence: Confidence
    advice: str
    new: bool = False
    """True when the pattern is in the candidate and not in the baseline."""
    subject: str = ""
    """What it is about: the API or kernel name."""
    location: SourceLocation | None = None
    worsened: bool = False
    """True when the pattern is on both sides and costs clearly more in the candidate."""
    docs: str = ""
    """Where the rule is explained: a path in perfci's documentation or an address."""
