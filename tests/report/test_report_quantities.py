"""Units and digits, against values worked out by hand and round trips."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.model.comparison import Effect
from perfci.model.metrics import METRICS, Unit
from perfci.report.quantities import (
    change_text,
    confidence_text,
    delta_text,
    interval_text,
    pair_texts,
    ratio_text,
    value_text,
)
from perfci.report.wording import metric_title

FACTORS = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, Unit.NS, "0 ns"),
        (999, Unit.NS, "999 ns"),
        (1_500, Unit.NS, "1.500 µs"),
        (31_410_000, Unit.NS, "31.41 ms"),
        (2_500_000_000, Unit.NS, "2.500 s"),
        (1023, Unit.BYTES, "1,023 B"),
        (1536, Unit.BYTES, "1.500 KiB"),
        (5 * 2**20, Unit.BYTES, "5 MiB"),
        (6720, Unit.COUNT, "6,720"),
        (10.05, Unit.COUNT, "10.05"),
        (0.946, Unit.RATIO, "94.60%"),
        (-0.02, Unit.RATIO, "−2%"),
        (3_200_000, Unit.MICROJOULES, "3.200 J"),
        (2952, Unit.PER_SECOND, "2,952/s"),
        (math.nan, Unit.NS, "not computable"),
        (math.inf, Unit.COUNT, "not computable"),
        (1e308, Unit.RATIO, "not computable"),  # in per cent no double holds it
    ],
)
def test_value_text(value, unit, text):
    assert value_text(value, unit) == text


@pytest.mark.parametrize(
    ("before", "after", "unit", "texts"),
    [
        (990, 1100, Unit.NS, ("0.990 µs", "1.100 µs")),  # one scale for both, never 990 beside 1.1
        (None, 5, Unit.COUNT, ("—", "5")),
        (None, None, Unit.NS, ("—", "—")),
        (2**30, 2**30 + 1, Unit.BYTES, ("1.000000000 GiB", "1.000000001 GiB")),
        (0, 1, Unit.COUNT, ("0", "1")),
        (4.2e6, 4.19e6, Unit.NS, ("4.200 ms", "4.190 ms")),
        (0.5, 1e308, Unit.RATIO, ("50%", "not computable")),
    ],
)
def test_pair_texts(before, after, unit, texts):
    assert pair_texts(before, after, unit) == texts


whole = st.integers(min_value=0, max_value=10**14)


@given(whole, whole)
def test_pairs_keep_their_order_and_differ_exactly_when_the_numbers_do(before, after):
    left, right = pair_texts(before, after, Unit.NS)
    assert (left == right) == (before == after)

    def read(text):
        number, unit = text.split(" ")
        return float(number.replace(",", "")) * FACTORS[unit]

    if before != after:
        assert (read(left) < read(right)) == (before < after)


@given(st.integers(min_value=1, max_value=10**14))
def test_times_read_back_within_four_digits(value):
    number, unit = value_text(value, Unit.NS).split(" ")
    assert float(number.replace(",", "")) * FACTORS[unit] == pytest.approx(value, rel=5.01e-4)


def effect(value, low, high):
    return Effect(value_ratio=value, low_ratio=low, high_ratio=high, confidence=0.99)


def test_effects():
    assert change_text(effect(0.1234, 0.118, 0.129)) == "+12.3%"
    assert interval_text(effect(0.1234, 0.118, 0.129)) == "+11.8 … +12.9%"
    assert change_text(effect(1.0, 1.0, 1.0)) == "+100%"
    assert change_text(effect(2 / 351, 2 / 351, 2 / 351)) == "+0.57%"
    assert interval_text(effect(1.0, 1.0, 1.0)) == ""
    assert change_text(effect(-0.00001, -0.01, 0.01)) == "0.0%"  # no minus zero
    assert interval_text(effect(0.1, -math.inf, math.inf)) == "unbounded"
    assert interval_text(effect(0.1, 0.02, math.inf)) == "+2.0 … +∞%"


@given(
    st.floats(-1, 1000),
    st.floats(0, 10),
    st.one_of(st.just(math.inf), st.floats(0, 10)),
)
def test_effect_texts_never_say_nan_and_keep_the_sign(value, down, up):
    texts = change_text(effect(value, value - down, value + up)), interval_text(effect(value, value - down, value + up))
    assert not re.search("nan|inf|-", " ".join(texts))
    if texts[0].startswith("+"):
        assert value > 0
    if texts[0].startswith("−"):
        assert value < 0


def test_deltas_and_shares():
    assert delta_text(14.1e6, 18.9e6, Unit.NS) == "+4.80 ms"
    assert delta_text(351, 349, Unit.COUNT) == "−2"
    assert delta_text(5, 5, Unit.NS) == "0 ns"
    assert ratio_text(None) == "—"
    assert ratio_text(0.009) == "0.9%"
    assert ratio_text(math.inf) == "not computable"


def test_metric_titles_are_words():
    assert metric_title("gpu_busy_ns") == "GPU busy time"
    assert metric_title("time_to_first_step_ns") == "time to first step"
    assert metric_title("throughput_per_s") == "throughput"
    assert metric_title("h2d_bytes") == "H2D bytes"
    titles = [metric_title(name) for name in METRICS]
    assert len(set(titles)) == len(titles)
    assert not any("_" in title for title in titles)


def test_no_interval_is_called_certain() -> None:
    texts = [confidence_text(value) for value in (0.99, 0.95, 0.992, 0.99938, 0.9996, 1 - 1e-8, 1 - 1e-15)]
    assert texts == ["99%", "95%", "99.2%", "99.9%", "99.96%", "99.999999%", "100%"]
