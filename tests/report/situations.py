"""One sample comparison per situation that a report must tell. Shared by the tests of reports and of GitHub."""

import math
import statistics
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from perfci.model.comparison import (
    Comparison,
    Effect,
    KernelChange,
    KernelChangeKind,
    Reason,
    Row,
    Side,
    WorkloadComparison,
)
from perfci.model.environment import Environment, key_differences
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.metrics import Kind
from perfci.model.run import Note, Revision
from perfci.model.verdict import Verdict
from perfci.report.context import Link, ReportContext

MS = 1_000_000
US = 1_000

CONTEXT = ReportContext(
    perfci_version="0.1.0",
    generated_at=datetime(2025, 3, 14, 9, 26, 53, tzinfo=UTC),
    reproduce=("perfci compare 3f2a9c1...9d04e7b --measure --workload gpt",),
    links=(Link(title="profiles", url="https://ci.example/runs/17/artifacts"),),
)
BASELINE = Revision(label="main", commit="3f2a9c1d5b7e4a6089c1f2d3e4b5a69788970a1b")
CANDIDATE = Revision(label="faster-loader", commit="9d04e7b1c2a3f4e5d6978890a1b2c3d4e5f60718")
ENVIRONMENT = Environment.of(
    {
        "collector": "nsys",
        "collector_version": "2025.3.1",
        "cpu_model": "Intel Xeon Platinum 8480C",
        "cuda": "12.8",
        "driver": "570.124.06",
        "gpu_count": "1",
        "gpu_model": "NVIDIA H200",
        "measurement_version": "1",
        "sm_clock_mhz": "1980",
        "torch": "2.7.0",
        "workload_hash": "5d1f0c",
        "world_size": "1",
    }
)
WOBBLE = (0.0, 0.004, -0.003, 0.002, -0.001)
"""Relative differences between launches of one side."""


def side(location: float, *, wobble: tuple[float, ...] = WOBBLE) -> Side:
    """A side whose launches scatter around ``location``."""
    samples = tuple(float(location * (1 + w)) for w in wobble)
    spread = statistics.stdev(samples) / statistics.fmean(samples) if len(samples) > 1 and location else None
    return Side(samples=samples, location=float(statistics.median(samples)), spread_ratio=spread)


def noisy(
    phase: str,
    metric: str,
    baseline: float,
    candidate: float,
    *,
    verdict: Verdict | None = Verdict.PASS,
    reason: Reason | None = None,
    half_width: float = 0.005,
    mde: float | None = 0.008,
    budget: float = 0.02,
    launches_needed: int | None = None,
    flags: tuple[str, ...] = (),
    wobble: tuple[float, ...] = WOBBLE,
) -> Row:
    """A noisy row with an interval of ``half_width`` around its effect."""
    left, right = side(baseline, wobble=wobble), side(candidate, wobble=tuple(reversed(wobble)))
    value = right.location / left.location - 1
    reasons = {
        Verdict.PASS: Reason.WITHIN_BUDGET,
        Verdict.REGRESSION: Reason.BEYOND_BUDGET,
        Verdict.IMPROVEMENT: Reason.IMPROVED,
        Verdict.INCONCLUSIVE: Reason.INTERVAL_TOO_WIDE,
        None: Reason.EVIDENCE_ONLY,
    }
    return Row(
        phase=phase,
        metric=metric,
        kind=Kind.NOISY,
        gated=verdict is not None,
        baseline=left,
        candidate=right,
        effect=Effect(value_ratio=value, low_ratio=value - half_width, high_ratio=value + half_width, confidence=0.99),
        verdict=verdict,
        reason=reason or reasons[verdict],
        budget_ratio=budget if verdict is not None else None,
        mde_ratio=mde,
        launches_needed=launches_needed,
        flags=flags,
    )


def exact(
    phase: str,
    metric: str,
    baseline: float | None,
    candidate: float | None,
    *,
    verdict: Verdict | None = Verdict.PASS,
    reason: Reason | None = None,
) -> Row:
    """An exact row; None: that side has no such metric."""
    effect = None
    if baseline and candidate is not None:
        value = candidate / baseline - 1
        effect = Effect(value_ratio=value, low_ratio=value, high_ratio=value, confidence=1.0)
    if reason is None:
        reason = Reason.EXACT_EQUAL if baseline == candidate else Reason.EXACT_CHANGED
        reason = Reason.VANISHED if candidate is None else Reason.NEW if baseline is None else reason
        reason = Reason.EVIDENCE_ONLY if verdict is None else reason
    return Row(
        phase=phase,
        metric=metric,
        kind=Kind.EXACT,
        gated=verdict is not None,
        baseline=Side() if baseline is None else side(baseline, wobble=(0.0,) * 5),
        candidate=Side() if candidate is None else side(candidate, wobble=(0.0,) * 5),
        effect=effect,
        verdict=verdict,
        reason=reason,
        budget_ratio=0.0 if verdict is not None else None,
    )


def _quiet_rows() -> tuple[Row, ...]:
    return (
        noisy("step", "unprofiled_wall_ns", 43.36 * MS, 43.41 * MS, mde=0.009),
        noisy("step", "gpu_busy_ns", 41.02 * MS, 41.03 * MS, half_width=0.001, mde=0.002),
        exact("step", "kernel_count", 351, 351),
        exact("step", "sync_count", 1, 1),
        exact("step", "h2d_bytes", 4 * 1024 * 1024, 4 * 1024 * 1024),
        noisy("forward", "wall_ns", 14.1 * MS, 14.12 * MS, mde=0.011),
        noisy("backward", "wall_ns", 22.8 * MS, 22.79 * MS, mde=0.01),
        noisy("optimizer", "wall_ns", 4.2 * MS, 4.19 * MS, mde=0.013),
        *_evidence(),
    )


def _evidence() -> tuple[Row, ...]:
    return (
        noisy("data", "wall_ns", 0.31 * MS, 0.312 * MS, verdict=None, half_width=0.04, mde=None),
        noisy("h2d", "wall_ns", 0.42 * MS, 0.419 * MS, verdict=None, half_width=0.03, mde=None),
        noisy("forward", "gpu_busy_ns", 13.2 * MS, 13.21 * MS, verdict=None, mde=None),
        noisy("backward", "gpu_busy_ns", 22.1 * MS, 22.11 * MS, verdict=None, mde=None),
        noisy("optimizer", "gpu_busy_ns", 4.01 * MS, 4.01 * MS, verdict=None, mde=None),
        noisy("step", "gpu_utilization_ratio", 0.946, 0.945, verdict=None, half_width=0.01, mde=None),
        noisy("run", "peak_allocated_bytes", 6.5 * 2**30, 6.5 * 2**30, verdict=None, half_width=0.001, mde=None),
    )


def workload(rows: tuple[Row, ...], *, name: str = "gpt", **changes: object) -> WorkloadComparison:
    """A workload of five launches a side in equal environments."""
    base = WorkloadComparison(
        workload=name,
        rows=rows,
        baseline_environment=ENVIRONMENT,
        candidate_environment=ENVIRONMENT,
        baseline_launches=5,
        candidate_launches=5,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def comparison(*workloads: WorkloadComparison, **changes: object) -> Comparison:
    """Main against a branch."""
    base = Comparison(baseline=BASELINE, candidate=CANDIDATE, workloads=workloads, error_rate=0.01)
    return replace(base, **changes)  # type: ignore[arg-type]


def passing() -> Comparison:
    """Everything within budget; a metric without a gate is new and one is gone."""
    rows = (
        *_quiet_rows(),
        exact("validation", "d2h_count", 2, None, verdict=None),
        exact("validation", "memset_count", None, 3, verdict=None),
    )
    return comparison(workload(rows))


def regression_rows() -> tuple[Row, ...]:
    """loss.item() in every step: one more synchronisation, a slower step, most of it in forward."""
    bad = Verdict.REGRESSION
    return (
        noisy("step", "unprofiled_wall_ns", 43.36 * MS, 48.71 * MS, verdict=bad, half_width=0.006, mde=0.009),
        noisy("step", "wall_ns", 46.1 * MS, 51.6 * MS, verdict=None, half_width=0.006, mde=None),
        noisy("step", "gpu_busy_ns", 41.02 * MS, 41.3 * MS, half_width=0.001, mde=0.002),
        exact("step", "kernel_count", 351, 353, verdict=bad),
        exact("step", "sync_count", 1, 2, verdict=bad),
        exact("forward", "sync_count", 0, 1, verdict=bad),
        exact("step", "h2d_bytes", 4 * 1024 * 1024, 4 * 1024 * 1024),
        noisy("forward", "wall_ns", 14.1 * MS, 18.9 * MS, verdict=bad, half_width=0.01, mde=0.011),
        noisy("backward", "wall_ns", 22.8 * MS, 23.1 * MS, half_width=0.006, mde=0.01),
        noisy("optimizer", "wall_ns", 4.2 * MS, 4.19 * MS, mde=0.013),
        *_evidence(),
        noisy("forward", "gpu_idle_ns", 0.2 * MS, 4.7 * MS, verdict=None, half_width=0.9, mde=None),
    )


SYNC_FINDING = Finding(
    rule="accidental-sync",
    phase="forward",
    title="A value is read back from the GPU in every step",
    evidence=(
        Quantity(name="calls per step", value=1.0, unit="count"),
        Quantity(name="CPU blocked per step", value=4.6 * MS, unit="ns"),
    ),
    confidence=Confidence.HIGH,
    advice="Keep the loss on the GPU and read it every n steps, or copy it with non_blocking=True and read it later.",
    new=True,
    subject="cudaStreamSynchronize",
    location=SourceLocation(path="train.py", line=118),
    docs="docs/rules/accidental-sync.md",
)
OLD_FINDING = Finding(
    rule="small-kernels",
    phase="optimizer",
    title="Many small kernels",
    evidence=(Quantity(name="kernels under 5 µs", value=62.0, unit="%"),),
    confidence=Confidence.MEDIUM,
    advice="Use the fused optimizer: torch.optim.AdamW(..., fused=True).",
    worsened=True,
    docs="https://perfci.example/rules/small-kernels",
)
KERNEL_CHANGES = (
    KernelChange(
        phase="forward",
        name="ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        kind=KernelChangeKind.MORE_LAUNCHES,
        baseline_count=24,
        candidate_count=26,
        baseline_ns=3.12 * MS,
        candidate_ns=3.38 * MS,
    ),
    KernelChange(
        phase="forward",
        name="void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>",
        kind=KernelChangeKind.NEW,
        baseline_count=0,
        candidate_count=1,
        baseline_ns=0.0,
        candidate_ns=7.2 * US,
    ),
)


def regression() -> Comparison:
    """A regression with its cause, kernels and a place in the code."""
    slow = workload(regression_rows(), findings=(OLD_FINDING, SYNC_FINDING), kernel_changes=KERNEL_CHANGES)
    return comparison(slow)


def improvement() -> Comparison:
    """The step got faster, throughput rose; nothing got worse."""
    good = Verdict.IMPROVEMENT
    rows = (
        noisy("step", "unprofiled_wall_ns", 43.36 * MS, 39.9 * MS, verdict=good),
        noisy("run", "throughput_per_s", 2952.0, 3208.0, verdict=good),
        exact("step", "kernel_count", 351, 287, verdict=good, reason=Reason.IMPROVED),
        exact("step", "sync_count", 1, 1),
        noisy("forward", "wall_ns", 14.1 * MS, 11.2 * MS, verdict=good),
        noisy("backward", "wall_ns", 22.8 * MS, 22.3 * MS),
        *_evidence(),
    )
    return comparison(workload(rows))


def mixed() -> Comparison:
    """One workload regressed, one improved, one is undecided: all of it must be said."""
    fast = improvement().workloads[0]
    return comparison(
        replace(fast, workload="resnet"),
        replace(undecided_workload(), workload="tiny"),
        workload(regression_rows(), findings=(SYNC_FINDING,)),
    )


def undecided_workload() -> WorkloadComparison:
    """A launch-bound workload: wall time cannot be decided, counts can."""
    wobble = (0.0, 0.21, -0.09, 0.13, -0.16)
    undecided = noisy(
        "step",
        "unprofiled_wall_ns",
        6.9 * MS,
        7.1 * MS,
        verdict=Verdict.INCONCLUSIVE,
        half_width=0.19,
        mde=0.31,
        launches_needed=140,
        wobble=wobble,
    )
    one_launch = noisy(
        "forward",
        "wall_ns",
        2.1 * MS,
        2.4 * MS,
        verdict=Verdict.INCONCLUSIVE,
        reason=Reason.TOO_FEW_LAUNCHES,
        half_width=math.inf,
        mde=None,
        wobble=(0.0,),
    )
    bimodal = noisy(
        "backward",
        "wall_ns",
        2.9 * MS,
        3.1 * MS,
        verdict=Verdict.INCONCLUSIVE,
        reason=Reason.BIMODAL,
        half_width=0.12,
        mde=0.2,
        flags=("bimodal",),
        wobble=(0.0, 0.17, 0.0, 0.17, 0.01),
    )
    rows = (undecided, one_launch, bimodal, exact("step", "kernel_count", 96, 96), exact("step", "sync_count", 0, 0))
    return workload(rows)


def inconclusive() -> Comparison:
    """Exact counts pass, wall time cannot be decided."""
    return comparison(undecided_workload())


def not_comparable() -> Comparison:
    """Another driver and an unknown torch on the candidate."""
    other = Environment.of({**dict(ENVIRONMENT.entries), "driver": "575.51.03", "user.image": "nightly"})
    rows = tuple(
        replace(row, verdict=Verdict.NOT_COMPARABLE, reason=Reason.KEYS_DIFFER) if row.gated else row
        for row in _quiet_rows()
    )
    return comparison(
        workload(
            rows,
            candidate_environment=other,
            key_differences=key_differences(ENVIRONMENT, other),
            verdict_override=Verdict.NOT_COMPARABLE,
        )
    )


def nothing_measured() -> Comparison:
    """No launch of either side came through."""
    none = workload(
        (),
        baseline_environment=Environment(),
        candidate_environment=Environment(),
        baseline_launches=0,
        candidate_launches=0,
        verdict_override=Verdict.NOT_MEASURED,
        notes=(Note(code="launch-failed", text="all 6 launches ended before the capture range was reached"),),
    )
    return comparison(none)


def no_workload() -> Comparison:
    """A comparison of nothing."""
    return comparison()


def workload_vanished() -> Comparison:
    """One workload passes, another is gone from the candidate; a gated metric vanished too."""
    gone = workload(
        (),
        name="resnet",
        candidate_environment=Environment(),
        candidate_launches=0,
        verdict_override=Verdict.NOT_MEASURED,
    )
    rows = (*_quiet_rows(), exact("h2d", "h2d_count", 2, None, verdict=Verdict.NOT_MEASURED))
    return comparison(workload(rows), gone)


def first_run() -> Comparison:
    """The first measurement: there is no baseline yet."""
    rows = tuple(
        replace(
            row,
            baseline=Side(),
            effect=None,
            mde_ratio=None,
            verdict=Verdict.INCONCLUSIVE if row.gated else None,
            reason=Reason.NEW,
        )
        for row in _quiet_rows()
    )
    return comparison(
        workload(
            rows,
            baseline_environment=Environment(),
            baseline_launches=0,
            verdict_override=Verdict.INCONCLUSIVE,
            notes=(Note(code="no-baseline", text="main has no stored run of gpt; this run can become its baseline"),),
        )
    )


def accepted() -> Comparison:
    """A regression that a maintainer accepted with a reason."""
    accepted_metrics = {"unprofiled_wall_ns", "wall_ns", "kernel_count", "sync_count"}
    rows = tuple(
        replace(row, verdict=Verdict.PASS, reason=Reason.ACCEPTED)
        if row.verdict is Verdict.REGRESSION and row.metric in accepted_metrics
        else row
        for row in regression_rows()
    )
    note = Note(code="accepted", text="accepted by maintainer: the loss is needed for early stopping")
    return comparison(workload(rows, findings=(SYNC_FINDING,), notes=(note,)))


def stand_in() -> Comparison:
    """The merge base was never measured; an ancestor stands in."""
    note = Note(code="stand-in", text="3f2a9c1 was never measured; its ancestor 77aa01e, 3 commits before, stands in")
    return comparison(workload(_quiet_rows()), notes=(note,))


def phases_400() -> Comparison:
    """Four hundred phases with two gates each; the last two phases regressed."""
    rows = []
    for index in range(400):
        late = index >= 398
        rows.append(
            noisy(
                f"block_{index:03d}",
                "wall_ns",
                (100 + index) * US,
                (100 + index) * US * (1.21 if late else 1.0),
                verdict=Verdict.REGRESSION if late else Verdict.PASS,
            )
        )
        rows.append(exact(f"block_{index:03d}", "kernel_count", index, index))
    return comparison(workload(tuple(rows)))


HOSTILE_NAMES = (
    "x" * 10_000,
    "evil\x1b[31mred\x07\x00bell",
    "a|b|c",
    "--> closed <!-- opened",
    "@team and @octo/admins please",
    "<script>alert(1)</script><img src=x onerror=alert(1)>",
    "fire 🔥 family 👨‍👩‍👧",
    "right\u202eleft\u2066iso\u200f",
    "`tick` ``two`` \\ back",
    "[link](javascript:alert(1)) ![i](https://evil.example/p.png) #1 https://evil.example www.evil.example",
    "line\nbreak\r\n# heading\n| --- |",
    " ",
    "]]>&amp;\ud800\ufffe",
)


def hostile() -> Comparison:
    """Every name that a branch can choose tries to break out."""
    rows = [
        noisy(name, "wall_ns", 10 * MS, 11 * MS, verdict=Verdict.REGRESSION, flags=(name[:200],))
        for name in HOSTILE_NAMES
    ]
    findings = tuple(
        replace(
            SYNC_FINDING,
            rule=name[:100],
            phase=name,
            title=name,
            subject=name,
            advice=name,
            docs=name,
            evidence=(Quantity(name=name, value=math.nan, unit=name[:300]),),
            location=SourceLocation(path=name, line=7),
        )
        for name in HOSTILE_NAMES
    )
    kernels = tuple(replace(KERNEL_CHANGES[1], phase=name, name=name) for name in HOSTILE_NAMES)
    notes = tuple(Note(code="note", text=name) for name in HOSTILE_NAMES)
    environment = Environment.of({**dict(ENVIRONMENT.entries), "user.x": HOSTILE_NAMES[5], "torch": HOSTILE_NAMES[2]})
    bad = workload(
        tuple(rows),
        name=HOSTILE_NAMES[5],
        findings=findings,
        kernel_changes=kernels,
        notes=notes,
        candidate_environment=environment,
        key_differences=key_differences(ENVIRONMENT, environment),
    )
    return comparison(
        bad,
        replace(bad, workload=HOSTILE_NAMES[0]),
        candidate=Revision(label=HOSTILE_NAMES[3] + HOSTILE_NAMES[4]),
        notes=notes,
    )


SITUATIONS: dict[str, Callable[[], Comparison]] = {
    "pass": passing,
    "regression": regression,
    "improvement": improvement,
    "mixed": mixed,
    "inconclusive": inconclusive,
    "not-comparable": not_comparable,
    "nothing-measured": nothing_measured,
    "no-workload": no_workload,
    "workload-vanished": workload_vanished,
    "first-run": first_run,
    "accepted": accepted,
    "stand-in": stand_in,
    "400-phases": phases_400,
    "hostile": hostile,
}
