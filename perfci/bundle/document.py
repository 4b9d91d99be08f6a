"""Strict JSON of a bundle: bounded, finite, without doubles, and only text that databases and GitHub can hold."""

import json
import math
from typing import Any

from perfci.bundle.content import BundleError, BundleLimits

_MAX_INT = 2**63 - 1
"""What a database column holds."""

FREE_KEY = "base64"
"""The one key whose string may be longer than ``limits.string_chars``."""


def parse_document(data: bytes, limits: BundleLimits) -> dict[str, Any]:
    """The parsed document. BundleError for anything but one JSON object within the limits.

    The number of values is bounded by counting separators before parsing, because a few bytes of JSON can become a
    hundred bytes of objects.
    """
    if data.count(b",") + data.count(b"[") + data.count(b"{") > limits.json_values:
        raise BundleError("the bundle holds too many values", wanted=f"at most {limits.json_values:,}")
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_without_doubles)
    except RecursionError:
        raise BundleError("the bundle is nested too deeply") from None
    except ValueError as error:
        raise BundleError(f"the bundle is not valid JSON ({error})") from None
    if not isinstance(document, dict):
        raise BundleError("the bundle is not a JSON object")
    _check_values(document, limits)
    return document


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return result


def _check_values(document: dict[str, Any], limits: BundleLimits) -> None:
    stack: list[tuple[Any, int, str]] = [(document, 1, "")]
    while stack:
        value, depth, key = stack.pop()
        if depth > limits.depth:
            raise BundleError("the bundle is nested too deeply", wanted=f"at most {limits.depth} levels")
        if isinstance(value, dict):
            for name in value:
                _check_text(name, limits.string_chars)
            stack.extend((item, depth + 1, name) for name, item in value.items())
        elif isinstance(value, list):
            stack.extend((item, depth + 1, key) for item in value)
        elif isinstance(value, str):
            if key != FREE_KEY:
                _check_text(value, limits.string_chars)
        elif isinstance(value, float):
            if not math.isfinite(value):
                raise BundleError("the bundle holds a number that is not finite")
        elif isinstance(value, int) and abs(value) > _MAX_INT:
            raise BundleError("the bundle holds a number that is too large", wanted="64 bits")


def _check_text(text: str, limit_chars: int) -> None:
    if len(text) > limit_chars:
        raise BundleError(f"the bundle holds a text of {len(text)} characters", wanted=f"at most {limit_chars}")
    if "\x00" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise BundleError("the bundle holds text with NUL or half of a character pair")
