"""Gives findings and changed kernels a place in the user's code, where the probe's counts leave little doubt."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from perfci.model.comparison import KernelChange, KernelChangeKind
from perfci.model.finding import Finding, SourceLocation
from perfci.model.metrics import STEP, UNMARKED
from perfci.probe.locations import Location, LocationKind

MAJORITY = 0.5
"""A place is named when it holds more than this share of what the phase shows; otherwise none is: a wrong line costs
more trust than a missing one."""
EVERY_STEP_RATIO = 0.9
"""A wait in every step comes from a line that waits in every step; as in the rule accidental-sync."""

_DEVICE_WAITS = {"torch.cuda.synchronize", "torch.cuda.empty_cache"}
_EVENT_WAITS = {"torch.cuda.Event.synchronize", "torch.cuda.empty_cache"}

_Weight = Callable[[Location], float]
_GROWS = {KernelChangeKind.NEW, KernelChangeKind.MORE_LAUNCHES}


def attach_locations(findings: Sequence[Finding], locations: Sequence[Location]) -> tuple[Finding, ...]:
    """The findings in their order, those of accidental-sync, periodic-waits, allocator-churn, pageable-copies and
    copies-not-overlapped with the place that holds more than MAJORITY of the matching events of their phase (waits by
    number, copies by bytes).

    A finding keeps the location it has. Without matching events, or with no place that holds the majority (events of no
    known place count against every other), it stays without one.
    """
    return tuple(_attach(finding, locations) for finding in findings)


def _attach(finding: Finding, locations: Sequence[Location]) -> Finding:
    if finding.location is not None:
        return finding
    if finding.rule == "accidental-sync":
        fitting = [x for x in locations if _is_wait(x, finding.subject)]
        place = _majority(_in_phase(fitting, finding.phase), lambda x: x.count_per_step)
    elif finding.rule == "pageable-copies":
        fitting = [x for x in locations if x.kind is LocationKind.PAGEABLE_COPY and x.name == finding.subject]
        place = _majority(_in_phase(fitting, finding.phase), lambda x: x.bytes_per_step)
    elif finding.rule == "copies-not-overlapped":
        fitting = [x for x in locations if x.kind is LocationKind.COPY]
        place = _majority(_in_phase(fitting, finding.phase), lambda x: x.bytes_per_step)
    elif finding.rule == "allocator-churn":
        fitting = [x for x in locations if x.kind is LocationKind.SYNC and x.name == "torch.cuda.empty_cache"]
        place = _majority(_in_phase(fitting, finding.phase), lambda x: x.count_per_step)
    elif finding.rule == "periodic-waits":
        fitting = [x for x in locations if x.kind is LocationKind.SYNC and x.steps_ratio < EVERY_STEP_RATIO]
        place = _majority(_in_phase(fitting, finding.phase), lambda x: x.count_per_step)
    else:
        return finding
    return finding if place is None else replace(finding, location=place)


def _is_wait(location: Location, api: str) -> bool:
    if location.kind is not LocationKind.SYNC or location.steps_ratio < EVERY_STEP_RATIO:
        return False
    if re.search("Device|Thread|Ctx", api):
        return location.name in _DEVICE_WAITS
    if "Event" in api:
        return location.name in _EVENT_WAITS
    return location.name not in _DEVICE_WAITS | _EVENT_WAITS  # streams, and copies that wait


def _in_phase(locations: Iterable[Location], phase: str) -> list[Location]:
    """Those whose innermost phase it is; if there are none, those inside of it (ranges that are no phase to the
    trace)."""
    known = list(locations)
    if phase == STEP:
        return known
    if phase == UNMARKED:
        return [x for x in known if not x.phases]
    return [x for x in known if x.phases[:1] == (phase,)] or [x for x in known if phase in x.phases]


def _majority(locations: Iterable[Location], weight: _Weight) -> SourceLocation | None:
    by_place: dict[tuple[str, int] | None, float] = defaultdict(float)
    for location in locations:
        place = None if location.path is None else (location.path, location.line)
        by_place[place] += weight(location)
    if not by_place:
        return None
    best = max(by_place, key=by_place.__getitem__)
    if best is None or by_place[best] <= MAJORITY * sum(by_place.values()):
        return None
    return SourceLocation(path=best[0], line=best[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOperator:
    """An operator that a phase (its innermost name; ``unmarked`` outside of all) calls more often than before.

    ``growth_per_step`` is the net growth of the operator in the phase. ``location`` is the candidate's place with the
    majority of what was added, if there is one; ``new_line`` is true when the baseline has no such line in that file.
    """

    phase: str
    name: str
    growth_per_step: float
    location: SourceLocation | None
    new_line: bool


def new_operators(baseline: Sequence[Location], candidate: Sequence[Location]) -> tuple[NewOperator, ...]:
    """Operators of the candidate that ran more often per step than in the baseline, greatest growth first.

    Lines are recognised by their text, so that lines moved by an edit above them are not new.
    """
    before, after = _operators(baseline), _operators(candidate)
    known = {(x.path, x.text) for x in baseline if x.path is not None}
    found = []
    for key, lines in after.items():
        old = before.get(key, {})
        growth = sum(x.count_per_step for xs in lines.values() for x in xs) - sum(
            x.count_per_step for xs in old.values() for x in xs
        )
        if growth <= _ROUNDING:
            continue
        grown = {
            text: sum(x.count_per_step for x in xs) - sum(x.count_per_step for x in old.get(text, ()))
            for text, xs in lines.items()
        }
        place = _majority_of_growth(lines, grown)
        found.append(
            NewOperator(
                phase=key[0],
                name=key[1],
                growth_per_step=growth,
                location=None if place is None else SourceLocation(path=place.path or "", line=place.line),
                new_line=place is not None and (place.path, place.text) not in known,
            )
        )
    return tuple(sorted(found, key=lambda x: (-x.growth_per_step, x.phase, x.name)))


_ROUNDING = 1e-9
_Lines = dict[tuple[str | None, str], list[Location]]


def _operators(locations: Sequence[Location]) -> dict[tuple[str, str], _Lines]:
    found: dict[tuple[str, str], _Lines] = defaultdict(lambda: defaultdict(list))
    for x in locations:
        if x.kind is LocationKind.OPERATOR:
            found[x.phases[0] if x.phases else UNMARKED, x.name][x.path, x.text].append(x)
    return found


def _majority_of_growth(lines: _Lines, grown: dict[tuple[str | None, str], float]) -> Location | None:
    added = {text: growth for text, growth in grown.items() if growth > _ROUNDING}
    if not added:
        return None
    best = max(added, key=added.__getitem__)
    if best[0] is None or added[best] <= MAJORITY * sum(added.values()):
        return None
    return max(lines[best], key=lambda x: x.count_per_step)


def kernel_location(change: KernelChange, added: Sequence[NewOperator]) -> SourceLocation | None:
    """The place that a new or more often launched kernel comes from, or None where several are as likely.

    ``added`` is what `new_operators` found. A new line decides: first one of the kernel's own phase, then one of any
    phase (the backward of a new operator runs at the old line that calls ``backward``). Without a new line it is the
    place in the phase whose operators grew, such as ``optimizer.step()`` of an optimizer made with other arguments.
    """
    if change.kind not in _GROWS:
        return None
    here = [x for x in added if x.phase == change.phase]
    if not here:
        return None
    for group in ([x for x in here if x.new_line], [x for x in added if x.new_line], here):
        if group:
            return _agreed(group)
    return None


def _agreed(operators: Sequence[NewOperator]) -> SourceLocation | None:
    weights: dict[SourceLocation | None, float] = defaultdict(float)
    for operator in operators:
        weights[operator.location] += operator.growth_per_step
    best = max(weights, key=weights.__getitem__)
    return best if weights[best] > MAJORITY * sum(weights.values()) else None
