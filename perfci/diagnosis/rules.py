"""Finds known patterns in one trace: loads the rules by entry points, runs them, checks what they say."""

import math
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from perfci.diagnosis.rule import Rule
from perfci.diagnosis.view import TraceView
from perfci.errors import PerfciError, UsageError
from perfci.model.finding import Confidence, Finding
from perfci.model.timeline import Timeline

GROUP = "perfci.rules"

_FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    NotImplementedError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""What foreign code raises when it is broken; not interruption, not exhausted memory, not perfci's own errors."""


def find(timeline: Timeline, *, rules: Mapping[str, Rule] | None = None) -> tuple[Finding, ...]:
    """All patterns that ``rules`` (name → rule; default: every installed one) see in one trace, surest first, within
    one confidence in the order of the rules' names.

    A rule that fails or says something impossible is a PerfciError that names it and the package that brought it: a
    rule that is skipped would look like an absent pattern.
    """
    view = TraceView(timeline)
    chosen = installed() if rules is None else rules
    found = [finding for name in sorted(chosen) for finding in _run(name, chosen[name], view)]
    rank = {confidence: place for place, confidence in enumerate(Confidence)}
    return tuple(sorted(found, key=lambda finding: rank[finding.confidence]))


def installed() -> dict[str, Rule]:
    """Every installed rule by name. UsageError when two packages claim one name or a rule cannot be loaded."""
    rules: dict[str, Rule] = {}
    points: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        twin = points.setdefault(point.name, point)
        if twin.value != point.value:
            raise UsageError(
                f"two installed packages offer a rule {point.name!r}: {_origin(twin)} and {_origin(point)}",
                todo="uninstall one of them",
            )
        rules[point.name] = _load(point)
    if not rules:
        raise UsageError(
            "no diagnosis rule is installed, not even perfci's own",
            todo="install perfci with pip (an unpacked copy of the source has no entry points)",
        )
    return rules


def _load(point: EntryPoint) -> Rule:
    try:
        loaded = point.load()
    except _FAULTS as error:
        raise UsageError(
            f"the rule {point.name!r} of {_origin(point)} cannot be loaded: {type(error).__name__}: {error}",
            todo="repair or uninstall that package",
        ) from error
    if not callable(getattr(loaded, "find", None)):
        raise UsageError(
            f"the rule {point.name!r} of {_origin(point)} has no find function",
            wanted="find(view) -> iterable of Finding",
            todo="repair or uninstall that package",
        )
    return loaded  # type: ignore[no-any-return]  # entry points are untyped; find was checked above


def _origin(point: EntryPoint) -> str:
    if point.dist is None:
        return point.value
    return f"{point.dist.metadata['Name']} {point.dist.version} ({point.value})"


def _origin_of(name: str) -> str:
    return next((_origin(point) for point in entry_points(group=GROUP, name=name)), "this process")


def _run(name: str, rule: Rule, view: TraceView) -> tuple[Finding, ...]:
    try:
        found = tuple(rule.find(view))
    except PerfciError:
        raise
    except _FAULTS as error:
        raise PerfciError(
            f"the rule {name!r} of {_origin_of(name)} failed: {type(error).__name__}: {error}",
            todo="report it to that package with the trace, or uninstall the package",
        ) from error
    for finding in found:
        fault = _fault(name, finding)
        if fault:
            raise PerfciError(f"the rule {name!r} of {_origin_of(name)} gave {fault}", todo="repair that package")
    return found


def _fault(name: str, finding: object) -> str:
    if not isinstance(finding, Finding):
        return f"{type(finding).__name__} instead of Finding"
    if finding.rule != name:
        return f"a finding of a rule {finding.rule!r}"
    if not finding.evidence:
        return "a finding without evidence"
    if not all(math.isfinite(quantity.value) for quantity in finding.evidence):
        return "evidence that is not a finite number"
    return ""
