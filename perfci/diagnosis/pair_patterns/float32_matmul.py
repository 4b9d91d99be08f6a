"""Matrix products that ran on tensor cores in the baseline run in full float32 in the candidate."""

from collections.abc import Iterable, Iterator

from perfci.diagnosis.matmul_names import Precision, matmul_precision
from perfci.diagnosis.pair_view import PairView
from perfci.diagnosis.rule import count, percent, ratio, time, times
from perfci.model.finding import Confidence, Finding, Quantity

NAME = "float32-matmul"
DOCS = "docs/rules/float32-matmul.md"

COSTLY_RATIO = 0.01
"""From 1 % of the phase's kernel time on it is sure to matter; below it may be a small layer kept in float32."""
SHOWN_KERNELS = 3

_ADVICE = (
    "Something takes these products out of autocast or turns TF32 off: a `.float()` or a float32 tensor mixed in, "
    "`torch.autocast(enabled=False)`, a module or buffer that was not converted, an operator on autocast's float32 "
    "list, `torch.set_float32_matmul_precision('highest')`, `torch.backends.cuda.matmul.allow_tf32 = False`. Bring "
    "the layer back into bfloat16, or allow TF32 for it. If its precision is needed, accept the cost."
)


def find(pair: PairView) -> Iterable[Finding]:
    """One finding per phase in which float32 products are launched more often, costliest first.

    The counts are exact: they must differ in the same direction in every launch of one side against every launch of the
    other, and by more than windows of different length do. Where products of reduced precision became fewer the
    confidence is high, else the float32 ones may be new work. A phase whose products cost no more time has no finding.
    """
    return sorted(_findings(pair), key=lambda finding: -finding.evidence[0].value)


def _findings(pair: PairView) -> Iterator[Finding]:
    for phase in pair.phases:
        full_before, full_after = pair.amounts(phase, lambda name: matmul_precision(name) is Precision.FLOAT32)
        cut_before, cut_after = pair.amounts(phase, lambda name: matmul_precision(name) is Precision.REDUCED)
        if min(full_after.launches) <= max(full_before.launches) * pair.window_ratio:
            continue
        extra_ns = float(full_after.time_mean_ns - full_before.time_mean_ns)
        extra_ns += float(cut_after.time_mean_ns - cut_before.time_mean_ns)
        if extra_ns <= 0:
            continue
        replaced = max(cut_after.launches) < min(cut_before.launches)
        share = extra_ns / float(pair.candidate.amount(phase).time_mean_ns)
        more = times(float(full_after.launches_mean - full_before.launches_mean))
        products = "matrix products in float32"
        what = f"{products} instead of on tensor cores" if replaced else f"more {products}"
        yield Finding(
            rule=NAME,
            phase=phase,
            title=f"{what}: {more} per step in {phase}, for {percent(share)} of its kernel time",
            evidence=(
                time("extra time of matrix products per step", extra_ns),
                ratio("share of the phase's kernel time", share),
                count("float32 products per step", float(full_after.launches_mean)),
                count("float32 products per step, baseline", float(full_before.launches_mean)),
                count("reduced-precision products per step", float(cut_after.launches_mean)),
                count("reduced-precision products per step, baseline", float(cut_before.launches_mean)),
                *_kernels(pair, phase),
            ),
            confidence=Confidence.HIGH if replaced and share >= COSTLY_RATIO else Confidence.MEDIUM,
            advice=_ADVICE,
            new=True,
            docs=DOCS,
        )


def _kernels(pair: PairView, phase: str) -> list[Quantity]:
    """The float32 kernels that grew most."""

    def group(name: str) -> str | None:
        return name if matmul_precision(name) is Precision.FLOAT32 else None

    before, after = pair.baseline.amounts(phase, group), pair.candidate.amounts(phase, group)
    grown = {
        name: amount.time_mean_ns - (before[name].time_mean_ns if name in before else 0)
        for name, amount in after.items()
    }
    worst = sorted((name for name in grown if grown[name] > 0), key=lambda name: (-grown[name], name))
    return [time(name, float(grown[name])) for name in worst[:SHOWN_KERNELS]]
