"""Text from outside becomes one harmless line."""

import unicodedata

import pytest
import situations
from hypothesis import given
from hypothesis import strategies as st

from perfci.report.names import clean, cut_utf8, plain_lines, safe_url

anything = st.text(st.characters(codec=None), max_size=600)


@given(anything, st.integers(min_value=20, max_value=200))
def test_clean_is_one_visible_line_within_the_limit(text, limit):
    shown = clean(text, limit=limit)
    assert 0 < len(shown) <= limit
    kept = {"\u200d", "\ufe0e", "\ufe0f"}
    assert not [c for c in shown if unicodedata.category(c) in {"Cc", "Cf", "Cs", "Zl", "Zp"} - {""} and c not in kept]
    shown.encode("utf-8")


def test_clean_keeps_emoji_and_shows_what_hides():
    assert clean("fire 🔥 👨‍👩‍👧 ❤️") == "fire 🔥 👨‍👩‍👧 ❤️"
    assert clean("a\u202eb\x1b[31m\n\tc") == "a\\u202eb\\x1b[31m c"
    assert clean(" \n ") == "(no name)"
    assert clean("\ud800") == "\\ud800"


def test_long_names_stay_apart():
    base = "x" * 10_000
    shown = {clean(base + tail) for tail in ("a", "b")} | {clean("y" + base), clean(base[:5000] + "z" + base)}
    assert len(shown) == 4


@given(st.text(max_size=200), st.integers(min_value=0, max_value=900))
def test_cut_utf8_is_the_longest_prefix(text, limit):
    cut = cut_utf8(text, limit)
    assert text.startswith(cut)
    assert len(cut.encode()) <= limit
    if cut != text:
        assert len(text[: len(cut) + 1].encode()) > limit


@pytest.mark.parametrize("url", ["https://ci.example/a?b=c#d", "http://127.0.0.1:8000/x", "runs/17/report.html", "#w1"])
def test_safe_urls(url):
    assert safe_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "javascript:alert(1)",
        "JaVaScript:x",
        "data:text/html,x",
        "//evil.example",
        "java\nscript:x",
        "https://",
        "a b",
        "\\\\evil.example\\x",
        "vbscript:x",
        "http://[bad",
        situations.HOSTILE_NAMES[5],
    ],
)
def test_unsafe_urls(url):
    assert safe_url(url) is None


def test_quoted_lines_speak_neither_to_the_runner_nor_to_the_terminal() -> None:
    quoted = "failed\n    ::error::x\n##[group]y\n\x1b[31mred\x1b[0m \x1b]0;title\x07 Gr\u00f6\u00dfe\n\ttab"
    assert plain_lines(quoted).split("\n") == [
        "failed",
        "    : :error::x",
        "# #[group]y",
        "red \\x1b]0;title\\x07 Gr\u00f6\u00dfe",
        " tab",
    ]
