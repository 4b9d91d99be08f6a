"""Write a bundle: one gzip file with one JSON document, equal bytes for equal input."""

import base64
import gzip
import hashlib
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perfci.bundle.content import FORMAT, SCHEMA_VERSION, BundleError, BundleFile, BundleIdentity, BundleLimits, Failure
from perfci.model import codec
from perfci.model.run import Run

_SECRETS = re.compile(
    rb"gh[pousr]_[A-Za-z0-9_]{20,}|github_pat_[A-Za-z0-9_]{20,}|-----BEGIN [A-Z ]*PRIVATE KEY-----|AKIA[0-9A-Z]{16}"
)
"""Shapes of well-known secrets. The measuring job has none by design; this catches a job that was set up wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBundle:
    """What was written. ``left_out`` names files that did not fit into the limits: runs always come first."""

    path: Path
    file_bytes: int
    run_count: int
    failure_count: int
    left_out: tuple[str, ...] = ()


def write_bundle(
    runs: Iterable[Run],
    identity: BundleIdentity,
    path: Path,
    *,
    failures: Sequence[Failure] = (),
    files: Sequence[BundleFile] = (),
    limits: BundleLimits | None = None,
) -> WrittenBundle:
    """Write the runs with the identity that the measuring job claims.

    Paths of artifacts are dropped from the runs: they mean nothing on another machine. Files are added in order of
    size while they fit. BundleError when the runs alone do not fit, when something looks like a secret, or when
    nothing is there to be bundled. The file appears whole or not at all.
    """
    limits = limits or BundleLimits()
    packed = [codec.run_to_document(replace(run, artifacts=())) for run in runs]
    if not packed and not failures:
        raise BundleError("there is no run and no failure to bundle", todo="measure first: perfci compare --measure")
    document: dict[str, Any] = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "identity": asdict(identity),
        "runs": packed,
        "failures": [asdict(failure) for failure in failures],
        "files": [],
    }
    size = len(codec.canonical_json(document))
    if size > limits.json_bytes or len(packed) > limits.runs:
        raise BundleError(
            f"{len(packed)} runs make {size:,} bytes",
            wanted=f"at most {limits.runs} runs and {limits.json_bytes:,} bytes",
            todo="bundle fewer workloads or launches at once",
        )
    left_out = []
    for file in sorted(files, key=lambda file: (len(file.data), file.name)):
        packed_file = _pack(file)
        size += len(codec.canonical_json(packed_file)) + 1
        if size > limits.json_bytes or len(document["files"]) == limits.files:
            size -= len(codec.canonical_json(packed_file)) + 1
            left_out.append(file.name)
        else:
            document["files"].append(packed_file)
    data = gzip.compress(codec.canonical_json(document), compresslevel=6, mtime=0)
    if len(data) > limits.file_bytes:
        raise BundleError(f"the bundle has {len(data):,} bytes", wanted=f"at most {limits.file_bytes:,}")
    _refuse_secrets(codec.canonical_json({**document, "files": []}), files)
    _write_whole(path, data)
    return WrittenBundle(
        path=path,
        file_bytes=len(data),
        run_count=len(packed),
        failure_count=len(failures),
        left_out=tuple(left_out),
    )


def _pack(file: BundleFile) -> dict[str, str]:
    return {
        "name": file.name,
        "sha256": hashlib.sha256(file.data).hexdigest(),
        "base64": base64.b64encode(file.data).decode("ascii"),
    }


def _refuse_secrets(document: bytes, files: Sequence[BundleFile]) -> None:
    for where, data in (("the runs", document), *((file.name, file.data) for file in files)):
        if _SECRETS.search(data):
            raise BundleError(
                f"{where} hold something that looks like a secret",
                wanted="a bundle that anybody may read",
                todo="take the secret out of the measuring job; it must have none (docs/github.md)",
            )


def _write_whole(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".bundle-", delete=False) as file:
            file.write(data)
        Path(file.name).chmod(0o644)
        Path(file.name).replace(path)
    except OSError as error:
        raise BundleError(f"cannot write the bundle {path}: {error.strerror}") from None
