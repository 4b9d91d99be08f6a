"""What perfci run prints."""

import json
from datetime import UTC, datetime

import situations

from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.run import Launch, Note, Revision, Run, Series
from perfci.report.runs import runs_json, runs_text


def run(wall_ms, **changes):
    series = (
        Series(phase="forward", metric="wall_ns", values=tuple(int(value * situations.MS) for value in wall_ms)),
        Series(phase="step", metric="sync_count", values=(1,) * len(wall_ms)),
        Series(phase="step", metric="memset_count", values=(0,) * len(wall_ms)),
    )
    fields = {
        "workload": "gpt",
        "revision": Revision(label="main"),
        "environment": situations.ENVIRONMENT,
        "launch": Launch(started_at=datetime(2025, 3, 14, tzinfo=UTC), duration_ns=9 * situations.MS),
        "step_count": len(wall_ms),
        "series": series,
    }
    return Run(**(fields | changes))


def test_text_shows_median_and_range_of_launches():
    text = runs_text([run([10, 11, 12]), run([12, 13, 14]), run([14, 15, 16])])
    assert "gpt at main: 3 launches, 3 profiled steps each" in text
    line = next(line for line in text.splitlines() if "wall_ns" in line)
    assert line.split() == ["forward", "wall_ns", "13", "ms", "11", "ms", "15", "ms"]
    assert "memset_count" not in text
    assert "1 metric zero in every launch" in text


def test_spoiled_launches_are_said_and_left_out():
    spoiled = run([90, 90, 90], notes=(Note(code="busy", text="another process used the GPU", spoils=True),))
    text = runs_text([run([10, 10, 10]), spoiled])
    assert "1 launch spoiled" in text
    assert "another process used the GPU" in text
    assert "90 ms" not in text
    assert "wall_ns" not in runs_text([spoiled])
    assert runs_text([]) == "no run\n"


def finding(cost, **changes):
    fields = {
        "rule": "accidental-sync",
        "phase": "log",
        "title": f"item() waits {cost} ms",
        "subject": "item",
        "evidence": (Quantity(name="cost", value=cost, unit="ns"),),
        "confidence": Confidence.HIGH,
        "advice": "log less often",
        "location": SourceLocation(path="train.py", line=7),
    }
    return Finding(**(fields | changes))


def test_known_patterns_are_told_once_and_json_holds_them_per_launch():
    runs = [
        run([1], findings=(finding(3.0),)),
        run([1], findings=(finding(4.0), finding(9.0, phase="h2d"))),
        run([1], findings=(finding(7.0, phase="data"),), notes=(Note(code="busy", text="busy", spoils=True),)),
    ]
    lines = [line.strip() for line in runs_text(runs).splitlines() if "known pattern" in line]
    assert lines == [
        "known pattern: item() waits 9.0 ms [h2d, in 1 of 2 launches]",
        "known pattern: item() waits 3.0 ms [log]",
    ]
    first, second, _ = json.loads(runs_json(runs))["runs"]
    (one,) = first["findings"]
    assert one["rule"] == "accidental-sync"
    assert one["evidence"] == [{"name": "cost", "value": 3.0, "unit": "ns"}]
    assert one["location"] == {"path": "train.py", "line": 7}
    assert [two["phase"] for two in second["findings"]] == ["log", "h2d"]


def test_hostile_names_and_json():
    bad = [run([1, 2], workload=name, revision=Revision(label=name)) for name in situations.HOSTILE_NAMES]
    text = runs_text(bad)
    assert "\x1b" not in text
    assert "\u202e" not in text
    parsed = json.loads(runs_json(bad))
    assert parsed["schema_version"] == 1
    assert [one["workload"] for one in parsed["runs"]] == list(situations.HOSTILE_NAMES)
    forward = parsed["runs"][0]["phases"]["forward"]["metrics"]["wall_ns"]
    assert forward == {"unit": "ns", "per_step": [1_000_000, 2_000_000], "sample": 1_500_000.0}
