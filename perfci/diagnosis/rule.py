"""What a rule is, and the few words all rules share to write their findings."""

import re
from collections.abc import Iterable
from typing import Protocol

from perfci.diagnosis.view import TraceView
from perfci.model.finding import Finding, Quantity
from perfci.model.metrics import Unit

MIN_STEPS = 3
"""Below this many steps "in every step" says nothing: two steps agree by chance."""
EVERY_STEP_RATIO = 0.9
"""Share of the steps that must show a pattern that is said to happen in every step: allows an odd first or last one."""


class Rule(Protocol):
    """A pattern over one trace. A module with a ``find`` function is a rule, so is any object with such a method.

    Registered in the entry point group ``perfci.rules``; the entry point's name is the rule's name and the ``rule`` of
    its findings. ``find`` is pure and must accept any valid timeline: no step, no operation, no range, many ranks. It
    yields nothing when the pattern is absent or cannot be seen in this trace. The first evidence is the cost
    (model.finding.Finding).
    """

    def find(self, view: TraceView) -> Iterable[Finding]:
        """The findings of this rule, worst first."""
        ...


def time(name: str, value_ns: float) -> Quantity:
    """Evidence in nanoseconds."""
    return Quantity(name=name, value=float(value_ns), unit=Unit.NS)


def count(name: str, value: float) -> Quantity:
    """Evidence that is a number of things (per step it may be a fraction)."""
    return Quantity(name=name, value=float(value), unit=Unit.COUNT)


def ratio(name: str, value: float) -> Quantity:
    """Evidence that is a share: 0.25 for a quarter."""
    return Quantity(name=name, value=float(value), unit=Unit.RATIO)


def volume(name: str, value_bytes: float) -> Quantity:
    """Evidence in bytes."""
    return Quantity(name=name, value=float(value_bytes), unit=Unit.BYTES)


def times(value: float) -> str:
    """How often per step, for a title: ``1``, ``2``, ``1.1``."""
    return f"{value:.1f}".removesuffix(".0")


def percent(share: float) -> str:
    """A share for a title: ``12 %``."""
    return f"{100 * share:.0f} %"


def api_name(name: str) -> str:
    """A CUDA API name without the ABI version that CUPTI appends: ``cudaMemcpyAsync_v3020`` → ``cudaMemcpyAsync``."""
    return re.sub(r"(_ptsz|_ptds)?_v\d+$", "", name)
