"""The script that writes golden losses: its arithmetic and its edits; the launches are those of the other tests."""

import importlib.util
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("golden_losses", ROOT / "scripts" / "golden_losses.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


def test_equal_launches_get_the_smallest_band():
    assert script.tolerance_of([(7.0, 6.0), (7.0, 6.0)]) == script.MIN_TOLERANCE == 0.005


@pytest.mark.parametrize(("other", "wanted"), [(1.002, 0.01), (1.0021, 0.02), (1.01, 0.05), (0.98, 0.1), (1.021, 0.2)])
def test_five_times_the_largest_distance_rounded_up_to_a_digit(other, wanted):
    assert script.tolerance_of([(2.0, 1.0), (2.0, 1.0), (2.0, other)]) == wanted


@given(st.floats(1e-6, 0.1))
def test_the_band_is_never_smaller_than_asked_and_never_twice_as_large(distance):
    spread = abs((1 + distance) - 1)
    wanted = max(script.MIN_TOLERANCE, script.TIMES_SPREAD * spread)
    found = script.tolerance_of([(1.0,), (1.0 + distance,)])
    assert wanted * (1 - 1e-6) <= found <= 2 * wanted * (1 + 1e-6)
    assert math.isclose(found, float(f"{found:.0e}"))


@pytest.mark.parametrize("file", sorted((ROOT / "workloads").glob("*/workload.yaml")), ids=lambda p: p.parent.name)
@pytest.mark.parametrize("preset", ["cpu-smoke", "gpu"])
def test_only_the_losses_of_the_preset_change(file, preset):
    text = file.read_text()
    edited = script.rewritten(text, preset, (7.12345678, 6.0), 0.02)
    before, after = yaml.safe_load(text), yaml.safe_load(edited)
    assert after["presets"][preset].pop("losses") == [7.1235, 6]
    assert after["presets"][preset].pop("loss_tolerance") == 0.02
    for key in ("losses", "loss_tolerance"):
        before["presets"][preset].pop(key, None)
    assert before == after
    assert script.rewritten(edited, preset, (7.12345678, 6.0), 0.02) == edited
    added = set(edited.splitlines()) - set(text.splitlines())
    assert len(added) <= 2


def test_a_preset_in_another_form_is_refused():
    with pytest.raises(SystemExit, match="no preset gpu"):
        script.rewritten("presets: {gpu: {}}\n", "gpu", (1.0,), 0.1)
