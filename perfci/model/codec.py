"""JSON of the model's values: one strict, versioned format for the database, for bundles and for files.

A document is a tree of dicts, lists, strings, finite numbers, booleans and None, as ``json.loads`` gives it. Decoding
is strict: unknown or missing keys, other types than the model declares (1.0 or true for an integer), numbers that are
not finite and values that the model itself refuses raise CodecError. Encoding and decoding give an equal value back.
An interval that is open to one side is written as the string ``"Infinity"`` or ``"-Infinity"`` in ``low_ratio`` and
``high_ratio``: JSON has no such number. Times are ISO 8601 with their offset from UTC.
"""

import hashlib
import json
import math
import types
from datetime import UTC
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from perfci.errors import MeasurementError
from perfci.model.comparison import Comparison
from perfci.model.environment import Environment
from perfci.model.run import Run

SCHEMA_VERSION = 1
"""Version of the documents of runs, comparisons and extractions. Raised when an older perfci would misread them."""

Document = dict[str, Any]
T = TypeVar("T")

_CONFIG = ConfigDict(extra="forbid", strict=True)
_OPEN_ENDS = {"low_ratio", "high_ratio"}
_INFINITIES = {math.inf: "Infinity", -math.inf: "-Infinity"}


class CodecError(MeasurementError):
    """A document is not what the format says, or a value cannot be written as one. Never green."""


class _Format(Generic[T]):
    """The document of one class. pydantic's adapter is built on first use: it takes some milliseconds."""

    def __init__(self, kind: type[T]) -> None:
        self._kind = kind
        self._name = kind.__name__.lower()

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        # pydantic takes a configuration for what stands around a dataclass, not for a dataclass itself.
        around: Any = types.GenericAlias(tuple, (self._kind,))
        return TypeAdapter(around, config=_CONFIG)

    def encode(self, value: T) -> Document:
        try:
            (fields,) = self._adapter.dump_python((value,), mode="json")
        except ValueError as error:  # pydantic's serialization errors: objects of other types, text that is not UTF-8
            raise CodecError(f"a {self._name} cannot be written as JSON ({str(error)[:200]})") from None
        document: Document = {"schema_version": SCHEMA_VERSION, **fields}
        _open_ends(document, encode=True)
        canonical_json(document)
        return document

    def decode(self, document: Document) -> T:
        if not isinstance(document, dict):
            raise CodecError(f"the {self._name} is not a JSON object")
        version = document.get("schema_version")
        if version != SCHEMA_VERSION or not isinstance(version, int) or isinstance(version, bool):
            raise CodecError(
                f"the {self._name} has schema version {str(version)[:40]}",
                wanted=f"version {SCHEMA_VERSION}",
                todo="use the perfci that wrote it, or a newer one",
            )
        # Copied, so that the caller's document stays as it is; canonical_json refuses numbers that are not finite.
        fields = json.loads(canonical_json({key: item for key, item in document.items() if key != "schema_version"}))
        _open_ends(fields, encode=False)
        try:
            value: T = self._adapter.validate_json(json.dumps([fields]))[0]
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"][1:]) or self._name
            raise CodecError(f"the {self._name} is not valid at {where[:200]} ({first['msg'][:200]})") from None
        return value


_RUN = _Format(Run)
_COMPARISON = _Format(Comparison)


def run_to_document(run: Run) -> Document:
    """The document of a run (docs/bundle-format.md). CodecError when a loss is not finite."""
    return _RUN.encode(run)


def run_from_document(document: Document) -> Run:
    """The run in a document; CodecError names the first faulty key."""
    return _RUN.decode(document)


def comparison_to_document(comparison: Comparison) -> Document:
    """The document of a comparison."""
    return _COMPARISON.encode(comparison)


def comparison_from_document(document: Document) -> Comparison:
    """The comparison in a document; CodecError names the first faulty key."""
    return _COMPARISON.decode(document)


def canonical_json(document: object) -> bytes:
    """The one spelling of a document: sorted keys, no spaces, UTF-8. Equal documents give equal bytes. CodecError for
    what JSON or UTF-8 cannot hold."""
    try:
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
        return text.encode("utf-8")
    except ValueError as error:
        raise CodecError(f"a value cannot be written as JSON ({error})") from None


def run_id(run: Run) -> str:
    """The content address of a run: 64 hexadecimal digits, equal for the same launch however often it is read.

    Made from what was launched and measured: workload, revision, comparability key, launch, steps, series, losses. Not
    from what is concluded from it or kept beside it (findings, notes, kernel tables, file names, other environment
    fields): a run that comes by way of a bundle, or with the findings of newer rules, is still the same run.
    """
    document = run_to_document(run)
    del document["launch"]["started_at"]
    if run.launch.session is None:
        del document["launch"]["session"]  # runs stored before sessions were counted keep their address
    identity = {
        "workload": run.workload,
        "revision": run.revision.identity,
        "key": run.environment.key,
        "started_at": run.launch.started_at.astimezone(UTC).isoformat(timespec="microseconds"),
        "launch": document["launch"],
        "step_count": run.step_count,
        "series": sorted(document["series"], key=lambda series: (series["phase"], series["metric"])),
        "losses": document["losses"],
    }
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def key_hash(environment: Environment) -> str:
    """64 hexadecimal digits, equal exactly for equal comparability keys."""
    return hashlib.sha256(canonical_json(environment.key)).hexdigest()


def _open_ends(value: object, *, encode: bool) -> None:
    """Write infinite interval ends as strings, or read them back, in place."""
    if isinstance(value, list):
        for item in value:
            _open_ends(item, encode=encode)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key not in _OPEN_ENDS:
                _open_ends(item, encode=encode)
            elif encode and isinstance(item, float) and item in _INFINITIES:
                value[key] = _INFINITIES[item]
            elif not encode and isinstance(item, str):
                found = [number for number, text in _INFINITIES.items() if text == item]
                if found:
                    value[key] = found[0]
