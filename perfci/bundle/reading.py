"""Read a bundle as hostile input: whatever it holds, the answer is a valid Bundle or a BundleError."""

import base64
import binascii
import hashlib
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from perfci.bundle.container import documents_in, read_file
from perfci.bundle.content import (
    FORMAT,
    SCHEMA_VERSION,
    Bundle,
    BundleError,
    BundleFile,
    BundleIdentity,
    BundleLimits,
    Failure,
)
from perfci.bundle.document import parse_document
from perfci.bundle.identity import merge_bundles
from perfci.bundle.plausible import impossibilities
from perfci.errors import PerfciError
from perfci.model import codec
from perfci.model.run import Run

T = TypeVar("T")
_KEYS = {"format", "schema_version", "identity", "runs", "failures", "files"}


def read_bundle(path: Path, *, limits: BundleLimits | None = None, now: datetime | None = None) -> Bundle:
    """Read a bundle file, or the zip that GitHub makes of an artifact (its bundles are merged).

    Bounded in memory and time by ``limits`` before anything is believed. Refused with BundleError: anything that is
    not a regular file; damaged, cut or oversized containers; JSON that is not strict and finite; runs that the model
    refuses or that no machine can have made (``now`` also refuses starts in the future). Nothing is written to disk.
    """
    limits = limits or BundleLimits()
    data = read_file(path, limit_bytes=limits.file_bytes)
    documents = documents_in(data, limits)
    return merge_bundles([parse_bundle(document, limits=limits, now=now) for document in documents])


def parse_bundle(document: bytes, *, limits: BundleLimits | None = None, now: datetime | None = None) -> Bundle:
    """The bundle in one JSON document."""
    limits = limits or BundleLimits()
    fields = parse_document(document, limits)
    if fields.get("format") != FORMAT:
        raise BundleError("the file is not a bundle of perfci", wanted="a file made by `perfci bundle`")
    version = fields.get("schema_version")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise BundleError(
            f"the bundle has schema version {version!r}",
            wanted=f"version {SCHEMA_VERSION}",
            todo="use the same perfci for measuring and publishing",
        )
    if set(fields) != _KEYS:
        raise BundleError(f"the bundle has unexpected or missing keys: {sorted(set(fields) ^ _KEYS)}"[:300])
    identity = _built("identity", lambda: BundleIdentity(**_typed_identity(fields["identity"])))
    failures = _list(fields, "failures", limits.failures, _failure)
    files = _list(fields, "files", limits.files, _file)
    runs = _list(fields, "runs", limits.runs, codec.run_from_document)
    for number, run in enumerate(runs):
        for fault in impossibilities(run, now=now):
            raise BundleError(f"run {number} of the bundle is impossible: {fault}", todo="do not trust this bundle")
    return _built(
        "content",
        lambda: Bundle(identity=identity, runs=tuple(map(_without_paths, runs)), failures=failures, files=files),
    )


def _without_paths(run: Run) -> Run:
    if run.artifacts:
        raise ValueError("a run of a bundle names files of the machine")
    return run


def _list(fields: dict[str, Any], key: str, most: int, convert: Callable[[Any], T]) -> tuple[T, ...]:
    items = fields[key]
    if not isinstance(items, list) or len(items) > most:
        raise BundleError(f"the bundle's {key} are not a list of at most {most}")
    return tuple(_built(f"{key}[{number}]", partial(convert, item)) for number, item in enumerate(items))


def _built(what: str, build: Callable[[], T]) -> T:
    """Build a checked value; what its class refuses is the bundle's fault."""
    try:
        return build()
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise BundleError(f"the bundle's {what} is not valid ({str(error)[:300]})") from None
    except BundleError:
        raise
    except PerfciError as error:
        raise BundleError(f"the bundle's {what} is not valid ({error.seen[:300]})") from None


def _typed_identity(item: Any) -> dict[str, Any]:
    fields = _object(item, {"repository", "head_sha", "base_sha", "run_id", "run_attempt", "pull_request"})
    numbers = {"run_id": int, "run_attempt": int, "pull_request": (int, type(None))}
    texts = {"repository": str, "head_sha": str, "base_sha": (str, type(None))}
    for name, kind in {**numbers, **texts}.items():
        if not isinstance(fields[name], kind) or isinstance(fields[name], bool):  # type: ignore[arg-type]
            raise TypeError(f"{name} has the wrong type")
    return fields


def _object(item: Any, names: set[str]) -> dict[str, Any]:
    """The item, when it is a JSON object with exactly these keys; else TypeError in the words of JSON."""
    if not isinstance(item, dict):
        raise TypeError("not a JSON object")
    if set(item) != names:
        raise TypeError(f"unexpected or missing keys: {sorted(set(item) ^ names)}")
    return item


def _failure(item: Any) -> Failure:
    fields = _object(item, {"workload", "commit", "text"})
    _check_texts(fields, optional="commit")
    return Failure(**fields)


def _check_texts(fields: dict[str, Any], *, optional: str = "") -> None:
    for name, value in fields.items():
        if not isinstance(value, str) and not (name == optional and value is None):
            raise TypeError(f"{name} is not a text")


def _file(item: Any) -> BundleFile:
    fields = _object(item, {"name", "sha256", "base64"})
    _check_texts(fields)
    try:
        data = base64.b64decode(fields["base64"], validate=True)
    except binascii.Error:
        raise ValueError("not base64") from None
    if hashlib.sha256(data).hexdigest() != fields["sha256"]:
        raise ValueError("the content does not match its hash")
    return BundleFile(name=fields["name"], data=data)
