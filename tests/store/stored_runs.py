"""Runs for the tests of the store."""

from datetime import UTC, datetime, timedelta

from perfci.model.environment import Environment
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.run import ApiCallStat, KernelStat, Launch, Note, Revision, Run, Series

START = datetime(2025, 3, 14, 9, 26, 53, 589793, tzinfo=UTC)
H200 = Environment.of({"gpu_model": "NVIDIA H200", "driver": "570.1", "torch": "2.7.0", "temperature_c": "61"})
A100 = Environment.of({"gpu_model": "NVIDIA A100", "driver": "570.1", "torch": "2.7.0"})


def commit(number: int) -> str:
    return f"{number:040x}"


def make_run(
    number: int = 0,
    *,
    workload: str = "gpt",
    revision: Revision | None = None,
    environment: Environment = H200,
    wall_ns: int = 1_000_000,
    phase: str = "forward",
    spoiled: bool = False,
    hours: float | None = None,
    artifacts: tuple[str, ...] = (),
) -> Run:
    """A full run; ``number`` sets it apart from others."""
    return Run(
        workload=workload,
        revision=revision or Revision(label=f"r{number}", commit=commit(number)),
        environment=environment,
        launch=Launch(
            started_at=START + timedelta(hours=number if hours is None else hours),
            duration_ns=30 * 10**9 + number,
            schedule="20250314T092653-abc",
            pair=number // 2,
            position=number,
            seed=7,
        ),
        step_count=3,
        series=(
            Series(phase="step", metric="wall_ns", values=(wall_ns, wall_ns + 1, wall_ns + 5)),
            Series(phase="step", metric="kernel_count", values=(351, 351, 352)),
            Series(phase=phase, metric="overlap_ratio", values=(0.25, 0.5, 1.0)),
            Series(phase="run", metric="throughput_per_s", values=(123.456,)),
        ),
        kernels=(KernelStat(phase="forward", name="gemm<λ, 'x'>", count=96, total_ns=2**40),),
        api_calls=(ApiCallStat(phase="forward", name="cudaLaunchKernel", count=96, total_ns=5),),
        findings=(
            Finding(
                rule="accidental-sync",
                phase="forward",
                title="a sync per step",
                evidence=(Quantity(name="cost", value=1.5, unit="ms"),),
                confidence=Confidence.HIGH,
                advice="do not",
                location=SourceLocation(path="train.py", line=7),
            ),
        ),
        losses=(2.5, 2.25, 2.0),
        notes=(Note(code="foreign-process", text="another process", spoils=True),) if spoiled else (),
        artifacts=artifacts,
    )
