"""The JSON report is strict JSON, follows its published schema, and holds raw numbers."""

import json
import math
from dataclasses import replace
from importlib.resources import files

import jsonschema
import pytest
import situations

from perfci.model.comparison import Effect, Side
from perfci.report.json_document import document, render

SCHEMA = json.loads(files("perfci.report").joinpath("comparison.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def refuse(token):
    raise AssertionError(f"{token} is not JSON")


def closed(schema):
    """The schema with no room for members that it does not describe."""
    if isinstance(schema, dict):
        inner = {key: closed(value) for key, value in schema.items()}
        if "properties" in inner and "additionalProperties" not in inner:
            inner["additionalProperties"] = False
        return inner
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


def test_schema_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_situation_is_strict_json_after_the_schema(name):
    text = render(situations.SITUATIONS[name](), situations.CONTEXT)
    text.encode("ascii")
    parsed = json.loads(text, parse_constant=refuse)
    VALIDATOR.validate(parsed)
    jsonschema.Draft202012Validator(closed(SCHEMA)).validate(parsed)


def test_schema_refuses_what_is_missing_or_wrong():
    good = document(situations.regression(), situations.CONTEXT)
    for key in SCHEMA["required"]:
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({k: v for k, v in good.items() if k != key})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(good | {"schema_version": 2})
    with pytest.raises(jsonschema.ValidationError):
        VALIDATOR.validate(good | {"verdict": "GREEN"})


def test_numbers_are_raw_and_unknown_is_null():
    row = situations.noisy("step", "wall_ns", 43_360_000, 48_710_000)
    wild = replace(
        row,
        baseline=Side(samples=(math.nan, math.inf), location=math.inf, spread_ratio=math.nan),
        effect=Effect(value_ratio=0.1, low_ratio=-math.inf, high_ratio=0.3, confidence=0.99),
        mde_ratio=math.inf,
    )
    rows = document(situations.comparison(situations.workload((row, wild))), situations.CONTEXT)["workloads"][0]["rows"]
    first = next(r for r in rows if r["baseline"]["location"] is not None)
    second = next(r for r in rows if r["baseline"]["location"] is None)
    assert first["baseline"]["location"] == 43_360_000
    assert first["unit"] == "ns"
    assert second["baseline"] == {"location": None, "samples": [None, None], "spread_ratio": None}
    assert second["effect"]["low_ratio"] is None
    assert second["effect"]["high_ratio"] == 0.3
    assert second["mde_ratio"] is None
    assert "bound" in second["effect_note"]


def test_names_are_not_shortened():
    parsed = json.loads(render(situations.hostile(), situations.CONTEXT))
    phases = {row["phase"] for row in parsed["workloads"][0]["rows"]}
    assert phases == set(situations.HOSTILE_NAMES)
