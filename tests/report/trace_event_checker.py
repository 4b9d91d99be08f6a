"""A strict reader of the Trace Event Format, written from its public description: raises on what a viewer may reject.

Checked: the JSON object form; required fields and their types per phase letter; only X, M, s and f events; names and
sort keys of every process and thread that is used; time stamps finite, not negative, in order; slices of one thread
nested, never partly overlapping; flows in pairs, each end inside a slice that begins or encloses it, never backwards.
"""

import json
import math
from collections import defaultdict

_FIELDS = {
    "X": {"name": str, "cat": str, "pid": int, "tid": int, "ts": float, "dur": float, "args": dict},
    "M": {"name": str, "pid": int, "tid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": str, "pid": int, "tid": int, "ts": float},
    "f": {"name": str, "cat": str, "id": str, "pid": int, "tid": int, "ts": float, "bp": str},
}
_METADATA = {
    "process_name": ("name", str),
    "thread_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_sort_index": ("sort_index", int),
}


def check(content: bytes) -> dict:
    """The document, when it keeps to the format; AssertionError with the event otherwise."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    document = json.loads(content, parse_constant=refuse)
    assert set(document) <= {"traceEvents", "displayTimeUnit", "otherData", "metadata"}
    assert document["displayTimeUnit"] in ("ms", "ns")
    events = document["traceEvents"]
    for event in events:
        _check_fields(event)
    _check_names(events)
    _check_order(events)
    slices = _check_nesting(events)
    _check_flows(events, slices)
    return document


def _check_fields(event: dict) -> None:
    wanted = _FIELDS.get(event.get("ph"))
    assert wanted is not None, f"unknown phase letter: {event}"
    assert set(event) == {"ph", *wanted}, event
    for name, kind in wanted.items():
        value = event[name]
        if kind is float:
            assert isinstance(value, int | float), event
            assert not isinstance(value, bool), event
            assert math.isfinite(value), event
            assert value >= 0, event
        else:
            assert type(value) is kind, event
    assert all(character.isprintable() for character in event["name"]), event
    if event["ph"] == "M":
        key, kind = _METADATA[event["name"]]
        assert set(event["args"]) == {key}, event
        assert type(event["args"][key]) is kind, event
    if event["ph"] == "f":
        assert event["bp"] == "e", event


def _check_names(events: list[dict]) -> None:
    named: dict[str, list] = defaultdict(list)
    for event in events:
        if event["ph"] == "M":
            where = (event["pid"],) if event["name"].startswith("process") else (event["pid"], event["tid"])
            named[event["name"]].append(where)
    for name, places in named.items():
        assert len(places) == len(set(places)), f"{name} twice"
    used = {(event["pid"], event["tid"]) for event in events if event["ph"] != "M"}
    assert used == set(named["thread_name"]) == set(named["thread_sort_index"])
    assert {(pid,) for pid, _ in used} == set(named["process_name"]) == set(named["process_sort_index"])


def _check_order(events: list[dict]) -> None:
    letters = [event["ph"] for event in events]
    assert "M" not in letters[letters.count("M") :], "metadata comes first"
    stamps = [event["ts"] for event in events if event["ph"] != "M"]
    assert stamps == sorted(stamps), "time stamps go back"


def _check_nesting(events: list[dict]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            slices[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    for place, bars in slices.items():
        stack: list[int] = []
        for start, end in bars:
            while stack and stack[-1] <= start:
                stack.pop()
            assert not stack or end <= stack[-1], f"partial overlap on {place} at {start}"
            stack.append(end)
    return slices


def _check_flows(events: list[dict], slices: dict) -> None:
    ends: dict[tuple[str, str, str], dict[str, dict]] = defaultdict(dict)
    for event in events:
        if event["ph"] in "sf":
            pair = ends[event["cat"], event["name"], event["id"]]
            assert event["ph"] not in pair, f"flow id used twice: {event}"
            pair[event["ph"]] = event
    for pair in ends.values():
        assert set(pair) == {"s", "f"}, pair
        assert pair["s"]["ts"] <= pair["f"]["ts"], pair
        for end in pair.values():
            at = round(end["ts"] * 1000)
            assert any(a <= at <= b for a, b in slices[end["pid"], end["tid"]]), f"bound to no slice: {end}"
