"""The same number of kernels takes longer: each does more work, or the GPU does it slower."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from perfci.diagnosis.matmul_names import matmul_precision
from perfci.diagnosis.pair_view import Amount, PairView
from perfci.diagnosis.rule import count, ratio, time
from perfci.model.finding import Confidence, Finding
from perfci.model.metrics import STEP

NAME = "slower-kernels"
DOCS = "docs/rules/slower-kernels.md"

GROWTH_RATIO = 0.01
"""Of the phase's kernel time: kernel time of equal code differs by 0.1 % between launches on a GPU that works through
(docs/evidence); less than 1 % is not worth a cause."""
STEP_RATIO = 0.001
"""Of the step's kernel time: a phase of one tiny kernel explains nothing."""
MIN_LAUNCHES = 3
"""From so many launches on each side the sides must lie apart by more than either spreads: by simulation (test suite)
under 1 % of equal sides do. Two launches can lie close together by chance."""
FEW_LAUNCHES_RATIO = 0.25
"""With fewer launches the spread is not known: only a quarter more is said, as of other findings (diagnosis.pair)."""
UNIFORM_RATIO = 0.8
"""Share of the kernels that grow at least half as much as all together: then it is the GPU, not one operation."""
UNIFORM_MIN_KERNELS = 5
"""With fewer different kernels nothing tells a change of all from a change of one."""
SHOWN_GROUPS = 3

_MORE_WORK = (
    "The step launches the same kernels, and these take longer: larger shapes (a wider layer, padding, longer "
    "sequences, a larger batch), another memory layout or alignment (sizes that are no multiple of 8 lose tensor core "
    "speed), or another algorithm of the library (`torch.backends.cudnn.benchmark`, other versions). Compare the "
    "shapes that reach the operation on both sides."
)
_SLOWER_GPU = (
    "Nearly all kernels are slower alike: look at the GPU before the code. Compare clocks and temperature "
    "of both sides in the environment table, and whether another process used the GPU; a GPU that waits more between "
    "kernels can run each a little slower."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One kernel, or all matrix products of one precision, launched equally often on both sides."""

    name: str
    before: Amount
    after: Amount

    @property
    def growth_ns(self) -> Fraction:
        return median(self.after.time_ns) - median(self.before.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Growth:
    """Groups whose time together grew beyond noise, by medians over the launches."""

    groups: Sequence[_Group]
    was_ns: Fraction
    grown_ns: Fraction
    few: bool

    @property
    def share(self) -> Fraction:
        return self.grown_ns / self.was_ns

    @property
    def uniform(self) -> bool:
        """True when nearly all groups grew alike."""
        alike = [group for group in self.groups if group.growth_ns >= self.share / 2 * median(group.before.time_ns)]
        return len(self.groups) >= UNIFORM_MIN_KERNELS and len(alike) >= UNIFORM_RATIO * len(self.groups)


def find(pair: PairView) -> Iterable[Finding]:
    """One finding per phase whose equally often launched kernels take GROWTH_RATIO longer, beyond the spread of the
    launches, costliest first. One finding for the step where nearly all kernels of all phases do. NCCL kernels are
    left out: they take as long as the slowest rank.

    Libraries choose another matrix kernel for another shape, so products of one precision count as one kernel. That the
    kernels are slower may be sure; why they are is not, so the confidence is medium at most.
    """
    groups = {phase: _equal_groups(pair, phase) for phase in pair.phases}
    whole = _growth([group for each in groups.values() for group in each])
    if whole is not None and whole.uniform:
        return (_of_the_gpu(STEP, whole),)
    grown = {phase: _growth(each) for phase, each in groups.items()}
    least_ns = STEP_RATIO * pair.candidate.kernel_time_ns
    found = [
        _of_the_gpu(phase, growth) if growth.uniform else _of_a_kernel(phase, growth)
        for phase, growth in grown.items()
        if growth is not None and growth.grown_ns >= least_ns
    ]
    return sorted(found, key=lambda finding: -finding.evidence[0].value)


def _growth(groups: Sequence[_Group]) -> _Growth | None:
    """What the groups of a phase grew together, None where noise could have done it."""
    if not groups:
        return None
    before, after = _sums([g.before.time_ns for g in groups]), _sums([g.after.time_ns for g in groups])
    few = min(len(before), len(after)) < MIN_LAUNCHES
    growth = _Growth(groups=groups, was_ns=median(before), grown_ns=median(after) - median(before), few=few)
    least = FEW_LAUNCHES_RATIO if few else GROWTH_RATIO
    if growth.was_ns <= 0 or growth.grown_ns < least * growth.was_ns or not (few or _apart(before, after)):
        return None
    return growth


def _of_the_gpu(phase: str, growth: _Growth) -> Finding:
    return _finding(
        phase,
        growth,
        subject="all kernels",
        title=f"all kernels of {phase} take {_percent(growth.share)} longer: the GPU was slower, not one operation",
        confidence=Confidence.LOW,
        advice=_SLOWER_GPU,
    )


def _of_a_kernel(phase: str, growth: _Growth) -> Finding:
    most = max(growth.groups, key=lambda group: group.growth_ns).name
    return _finding(
        phase,
        growth,
        subject=most,
        title=f"the same number of kernels takes {_percent(growth.share)} longer in {phase}, most in {_short(most)}",
        confidence=Confidence.LOW if growth.few else Confidence.MEDIUM,
        advice=_MORE_WORK,
    )


def _group_of(name: str) -> str | None:
    if name.startswith("nccl"):
        return None
    precision = matmul_precision(name)
    return name if precision is None else f"matrix products ({precision.value})"


def _equal_groups(pair: PairView, phase: str) -> list[_Group]:
    """Groups with one number of launches per step, the same in every launch of both sides."""
    before, after = pair.baseline.amounts(phase, _group_of), pair.candidate.amounts(phase, _group_of)
    return [
        _Group(name=name, before=before[name], after=after[name])
        for name in sorted(before.keys() & after.keys())
        if len({*before[name].launches, *after[name].launches}) == 1
    ]


def _sums(times_ns: Sequence[tuple[Fraction, ...]]) -> list[Fraction]:
    """Time of all groups together, per launch."""
    return [sum(launch, Fraction(0)) for launch in zip(*times_ns, strict=True)]


def _apart(before: Sequence[Fraction], after: Sequence[Fraction]) -> bool:
    """True when the gap between the sides is wider than either side."""
    return min(after) - max(before) > max(max(before) - min(before), max(after) - min(after))


def _percent(share: Fraction) -> str:
    return f"{100 * float(share):.1f} %"


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:39]}…"


def _finding(phase: str, growth: _Growth, *, subject: str, title: str, confidence: Confidence, advice: str) -> Finding:
    worst = sorted((group for group in growth.groups if group.growth_ns > 0), key=lambda g: (-g.growth_ns, g.name))
    return Finding(
        rule=NAME,
        phase=phase,
        subject=subject,
        title=title,
        evidence=(
            time("extra time of these kernels per step", float(growth.grown_ns)),
            time("their time per step, baseline", float(growth.was_ns)),
            ratio("growth", float(growth.share)),
            count("their launches per step", float(sum(group.after.launches_mean for group in growth.groups))),
            *(time(group.name, float(group.growth_ns)) for group in worst[:SHOWN_GROUPS]),
        ),
        confidence=confidence,
        advice=advice,
        new=True,
        docs=DOCS,
    )
