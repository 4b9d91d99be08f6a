"""Comparisons, one per situation that a pull request can be in, and what publishes them to the contract server."""

from dataclasses import replace
from datetime import UTC, datetime

from perfci.github.address import Address
from perfci.github.event import Event, EventKind
from perfci.github.github3_port import Github3Port
from perfci.github.http import RetryPolicy
from perfci.github.secret import Credential, Secret
from perfci.model.comparison import Comparison, Effect, Reason, Row, Side, WorkloadComparison
from perfci.model.environment import Environment, KeyDifference
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.metrics import METRICS, Kind
from perfci.model.run import Note, Revision
from perfci.model.verdict import Verdict
from perfci.report.context import Link, ReportContext

HEAD = "a" * 40
BASE = "b" * 40
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
CONTEXT = ReportContext(
    perfci_version="0.1.0",
    reproduce=(f"perfci compare {BASE[:12]}...{HEAD[:12]} --measure",),
    links=(Link(title="dashboard", url="https://perf.example.com/"),),
)
ENVIRONMENT = Environment.of({"gpu_model": "NVIDIA H200", "driver": "580.1", "torch": "2.13.0"})


def side(value, spread=0.002):
    return Side(samples=(value * 0.999, value, value * 1.001), location=value, spread_ratio=spread)


def row(
    verdict, *, phase="step", metric="unprofiled_wall_ns", change=0.0, reason=Reason.WITHIN_BUDGET, base=1e7, **more
):
    exact = METRICS[metric].kind is Kind.EXACT
    half = 0.0 if exact else 0.004
    values = {
        "phase": phase,
        "metric": metric,
        "kind": METRICS[metric].kind,
        "gated": verdict is not None,
        "baseline": side(base),
        "candidate": side(base * (1 + change)),
        "effect": Effect(
            value_ratio=change, low_ratio=change - half, high_ratio=change + half, confidence=1.0 if exact else 0.99
        ),
        "verdict": verdict,
        "reason": reason,
        "budget_ratio": 0.0 if exact else 0.02,
        "mde_ratio": None if exact else 0.006,
    }
    return Row(**{**values, **more})


def workload(*rows, name="gpt", **more):
    values = {
        "workload": name,
        "rows": rows,
        "baseline_environment": ENVIRONMENT,
        "candidate_environment": ENVIRONMENT,
        "baseline_launches": 6,
        "candidate_launches": 6,
    }
    return WorkloadComparison(**{**values, **more})


def comparison(*workloads, **more):
    values = {
        "baseline": Revision(label="main", commit=BASE),
        "candidate": Revision(label="topic", commit=HEAD),
        "workloads": workloads,
        "error_rate": 0.01,
    }
    return Comparison(**{**values, **more})


def sync_finding(line=41, path="train.py", **more):
    values = {
        "rule": "accidental-synchronisation",
        "phase": "forward",
        "title": "cudaStreamSynchronize once per step",
        "evidence": (Quantity(name="calls per step", value=1, unit="count"),),
        "confidence": Confidence.HIGH,
        "advice": "Keep the loss on the GPU and read it every few steps.",
        "new": True,
        "subject": "cudaStreamSynchronize",
        "location": SourceLocation(path=path, line=line),
    }
    return Finding(**{**values, **more})


def regressed(change=0.12, **more):
    return row(Verdict.REGRESSION, change=change, reason=Reason.BEYOND_BUDGET, **more)


HOSTILE = (
    "fwd|--> @team <img src=x onerror=alert(1)> `x` \x1b[31m\u202e #1 https://evil.example \U0001f525" + "A" * 9000
)


def situations():
    """Name → comparison: every situation has a golden."""
    passed = row(Verdict.PASS)
    undecided = row(
        Verdict.INCONCLUSIVE, change=0.03, reason=Reason.INTERVAL_TOO_WIDE, launches_needed=22, mde_ratio=0.09
    )
    phases = [row(Verdict.PASS, phase=f"phase-{i:03}", metric="gpu_busy_ns", change=0.001) for i in range(397)] + [
        regressed(phase=f"late-{i}", metric="gpu_busy_ns", change=0.2 + i) for i in range(3)
    ]
    return {
        "pass": comparison(workload(passed)),
        "regression-with-cause": comparison(
            workload(regressed(), row(Verdict.PASS, phase="forward", metric="gpu_busy_ns"), findings=(sync_finding(),))
        ),
        "improvement": comparison(workload(row(Verdict.IMPROVEMENT, change=-0.08, reason=Reason.IMPROVED))),
        "mixed": comparison(
            workload(row(Verdict.IMPROVEMENT, change=-0.08, reason=Reason.IMPROVED), name="resnet"),
            workload(regressed(), row(Verdict.PASS, phase="forward", metric="gpu_busy_ns")),
        ),
        "inconclusive": comparison(workload(undecided)),
        "not-comparable": comparison(
            workload(
                key_differences=(KeyDifference(field="driver", baseline="570.2", candidate="580.1"),),
                verdict_override=Verdict.NOT_COMPARABLE,
            )
        ),
        "nothing-measured": comparison(),
        "workload-vanished": comparison(
            workload(passed, name="resnet"),
            workload(
                candidate_launches=0,
                verdict_override=Verdict.NOT_MEASURED,
                notes=(Note(code="vanished", text="the workload is in the baseline and not in the candidate"),),
            ),
        ),
        "first-run": comparison(
            workload(
                baseline_launches=0,
                verdict_override=Verdict.NOT_MEASURED,
                notes=(Note(code="first-run", text="no run of this workload is stored yet"),),
            )
        ),
        "accepted": comparison(
            workload(
                row(Verdict.PASS, change=0.12, reason=Reason.ACCEPTED),
                row(Verdict.PASS, phase="forward", metric="gpu_busy_ns"),
            )
        ),
        "stand-in-baseline": comparison(
            workload(passed),
            notes=(
                Note(code="stand-in", text="the baseline was never measured; its ancestor 3 commits back stands in"),
            ),
        ),
        "400-phases": comparison(workload(*phases)),
        "hostile-names": comparison(
            workload(
                regressed(phase=HOSTILE, metric="gpu_busy_ns"),
                name=HOSTILE,
                findings=(sync_finding(path="a|b `c` @team.py", title=HOSTILE, advice=HOSTILE, phase=HOSTILE),),
            ),
            candidate=Revision(label=HOSTILE, commit=HEAD),
        ),
    }


def of(verdict):
    """A small comparison with this verdict."""
    if verdict in (Verdict.NOT_MEASURED, Verdict.NOT_COMPARABLE):
        return comparison(workload(verdict_override=verdict))
    changes = {Verdict.REGRESSION: 0.12, Verdict.IMPROVEMENT: -0.08}
    reasons = {Verdict.REGRESSION: Reason.BEYOND_BUDGET, Verdict.INCONCLUSIVE: Reason.INTERVAL_TOO_WIDE}
    return comparison(
        workload(row(verdict, change=changes.get(verdict, 0.0), reason=reasons.get(verdict, Reason.WITHIN_BUDGET)))
    )


EVENT = Event(
    kind=EventKind.WORKFLOW_RUN,
    origin=EventKind.PULL_REQUEST,
    repository="octo/train",
    default_branch="main",
    run_id=500,
    run_attempt=1,
    head_sha=HEAD,
    head_repository="octo/train",
    head_branch="topic",
    pull_request=7,
    conclusion="success",
)


def event(**more):
    return replace(EVENT, **more)


def port_to(server, *, kind="installation", attempts=3, max_wait_s=2.0, naps=None):
    policy = RetryPolicy(
        attempts=attempts, max_wait_s=max_wait_s, backoff_s=0.001, sleep=(naps if naps is not None else []).append
    )
    return Github3Port(
        repository=server.state.repository,
        credential=Credential(token=Secret(server.state.token), kind=kind, variable="GITHUB_TOKEN"),
        address=Address(api_url=server.url, server_url=server.url),
        policy=policy,
        timeout_s=5,
    )
