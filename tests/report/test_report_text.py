"""Text: plain without a terminal, colour only where wanted, no wider than asked, no command to a CI runner."""

import io
import os
import pty
import re
from dataclasses import replace

import pytest
import situations
from rich.cells import cell_len

from perfci.report.terminal import PLAIN_WIDTH, fit_to
from perfci.report.text import render


@pytest.mark.parametrize("width", [40, 60, 80, 109, 110, 120, 200])
@pytest.mark.parametrize("name", ["regression", "mixed", "hostile", "first-run"])
def test_lines_stay_within_the_width(name, width):
    text = render(situations.SITUATIONS[name](), replace(situations.CONTEXT, width=width))
    assert max(cell_len(line) for line in text.splitlines()) <= width
    for line in text.splitlines():
        assert line == line.rstrip()


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_plain_text_holds_no_control_character(name):
    text = render(situations.SITUATIONS[name](), situations.CONTEXT)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", text)


def test_colour_adds_only_styles():
    plain = render(situations.regression(), situations.CONTEXT)
    colored = render(situations.regression(), replace(situations.CONTEXT, color=True))
    assert "\x1b[" in colored
    assert re.sub(r" +$", "", re.sub(r"\x1b\[[\d;]*m", "", colored), flags=re.M) == plain


def test_phase_names_cannot_command_a_runner():
    names = ["::add-mask::secret", "##[error]x", "::stop-commands::x"]
    rows = tuple(situations.noisy(name, "wall_ns", 1e6, 1e6) for name in names)
    for width in (40, 60, 120):
        text = render(situations.comparison(situations.workload(rows)), replace(situations.CONTEXT, width=width))
        assert "add-mask" in re.sub(r"\s", "", text)
        for line in text.splitlines():
            assert not line.lstrip().startswith("::")
            assert "##[" not in line


def test_no_terminal_is_plain():
    fitted = fit_to(situations.CONTEXT, io.StringIO(), {})
    assert not fitted.color
    assert fitted.width == PLAIN_WIDTH
    assert fit_to(situations.CONTEXT, io.StringIO(), {"COLUMNS": "70"}).width == 70
    assert fit_to(situations.CONTEXT, io.StringIO(), {"COLUMNS": "3"}).width == 40


@pytest.mark.parametrize(
    ("environ", "color"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_real_terminal(environ, color):
    parent, child = pty.openpty()
    try:
        with os.fdopen(child, "w") as stream:
            fitted = fit_to(situations.CONTEXT, stream, environ)
    finally:
        os.close(parent)
    assert fitted.color is color
    assert fitted.width >= 40
