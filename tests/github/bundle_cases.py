"""A plausible run and ways to write it into bundles, honest and not."""

import gzip
import json
import zipfile
from datetime import UTC, datetime, timedelta

from perfci.bundle import BundleIdentity, write_bundle
from perfci.model.environment import Environment
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.run import ApiCallStat, KernelStat, Launch, Note, Revision, Run, Series

HEAD = "a" * 40
BASE = "b" * 40
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def identity(**more):
    values = {
        "repository": "octo/train",
        "head_sha": HEAD,
        "base_sha": BASE,
        "run_id": 500,
        "run_attempt": 1,
        "pull_request": 7,
        **more,
    }
    return BundleIdentity(**values)


def run(*, workload="gpt", revision_commit=HEAD, position=0, **more):
    steps = 3
    values = {
        "workload": workload,
        "revision": Revision(label="topic", commit=revision_commit),
        "environment": Environment.of({"gpu_model": "NVIDIA H200", "gpu_count": "1", "world_size": "1"}),
        "launch": Launch(
            started_at=NOW - timedelta(minutes=5), duration_ns=20 * 10**9, schedule="s", position=position, seed=1
        ),
        "step_count": steps,
        "series": (
            Series(phase="step", metric="wall_ns", values=(43_000_000,) * steps),
            Series(phase="step", metric="gpu_busy_ns", values=(42_000_000,) * steps),
            Series(phase="step", metric="kernel_ns", values=(45_000_000,) * steps),
            Series(phase="forward", metric="kernel_count", values=(351,) * steps),
            Series(phase="step", metric="overlap_ratio", values=(0.5,) * steps),
            Series(phase="run", metric="peak_allocated_bytes", values=(2**33,)),
            Series(phase="step", metric="unprofiled_wall_ns", values=(41_000_000,) * 5),
        ),
        "kernels": (KernelStat(phase="forward", name="gemm", count=96, total_ns=10**8),),
        "api_calls": (ApiCallStat(phase="forward", name="cudaLaunchKernel", count=1053, total_ns=10**7),),
        "findings": (
            Finding(
                rule="r",
                phase="forward",
                title="t",
                evidence=(Quantity(name="n", value=1.0, unit="count"),),
                confidence=Confidence.HIGH,
                advice="a",
                location=SourceLocation(path="train.py", line=3),
            ),
        ),
        "losses": (2.5, 2.25),
        "notes": (Note(code="dropped-steps", text="one incomplete step"),),
        **more,
    }
    return Run(**values)


def write(path, *runs, claim=None):
    write_bundle(runs or (run(),), claim or identity(), path)
    return path


def document(tmp_path, *runs):
    """The JSON of an honest bundle, to be spoiled."""
    return json.loads(gzip.decompress(write(tmp_path / "honest.gz", *runs).read_bytes()))


def pack(path, content):
    """Write anything as a bundle file."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(gzip.compress(data))
    return path


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path
