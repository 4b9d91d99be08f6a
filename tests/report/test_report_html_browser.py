"""The HTML page drawn by a real browser: bars and dots where the numbers put them, no overflow, no request."""

import os
from pathlib import Path

import pytest
import situations

from perfci.report.charts import bar_charts, strips
from perfci.report.html_page import render

CHROMIUM = os.environ.get("PERFCI_CHROMIUM", "/usr/bin/chromium")
ARGUMENTS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --disable-sync"
)
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no Chromium at {CHROMIUM} (set PERFCI_CHROMIUM)"),
]
BOXES = "nodes => nodes.map(n => { const b = n.getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })"


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS.split())
        yield started
        started.close()


@pytest.fixture
def draw(browser, tmp_path):
    """``draw(comparison, width, scheme)``: the open page, checked for requests and console messages at the end."""
    pages, requests, messages = [], [], []

    def opened(comparison, width=1280, scheme="light"):
        path = tmp_path / "report.html"
        path.write_text(render(comparison, situations.CONTEXT), encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=scheme)
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(path.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert messages == []


@pytest.mark.parametrize("width", [390, 1280])
def test_bars_are_as_long_as_their_numbers(draw, width):
    comparison = situations.regression()
    page = draw(comparison, width)
    rows = comparison.workloads[0].rows
    for chart in bar_charts(rows):
        values = {r.phase: (r.baseline.location, r.candidate.location) for r in rows if r.metric == chart.metric}
        largest = max(max(values[bar.phase]) for bar in chart.bars)
        figure = page.locator(f'figure.bars[data-metric="{chart.metric}"]')
        frame = figure.locator("svg").first.bounding_box()
        for side, kind in enumerate(("baseline", "candidate")):
            boxes = figure.locator(f"rect.{kind}").evaluate_all(BOXES)
            assert len(boxes) == len(chart.bars) >= 3
            for bar, (x, _, length, height) in zip(chart.bars, boxes, strict=True):
                assert x == pytest.approx(frame["x"], abs=0.5)
                assert height == pytest.approx(11, abs=0.5)
                assert length == pytest.approx(frame["width"] * values[bar.phase][side] / largest, abs=0.6)


def test_the_slower_phase_is_drawn_in_the_colour_of_a_regression(draw):
    page = draw(situations.regression())
    fills = page.locator("figure.bars rect.candidate").evaluate_all("nodes => nodes.map(n => getComputedStyle(n).fill)")
    assert len(set(fills)) == 2
    bad = page.locator("figure.bars rect.REGRESSION")
    assert bad.count() == 1
    assert bad.evaluate("n => n.closest('.bar').querySelector('.phase').textContent") == "forward"


@pytest.mark.parametrize("width", [390, 1280])
def test_each_launch_is_a_dot_inside_its_plot_at_its_value(draw, width):
    comparison = situations.regression()
    page = draw(comparison, width)
    drawn = strips(comparison.workloads[0].rows)
    figures = page.locator("figure.strip")
    assert figures.count() == len(drawn) == 5
    for index, strip in enumerate(drawn):
        figure = figures.nth(index)
        frame = figure.locator("svg").bounding_box()
        row = next(r for r in comparison.workloads[0].rows if (r.phase, r.metric) == (strip.phase, strip.metric))
        values = [*row.baseline.samples, *row.candidate.samples]
        boxes = figure.locator("circle").evaluate_all(BOXES)
        assert len(boxes) == len(values) == 10
        centers = [x + w / 2 for x, _, w, _ in boxes]
        for x, y, w, h in boxes:
            assert frame["x"] <= x
            assert x + w <= frame["x"] + frame["width"] + 0.5
            assert frame["y"] <= y
            assert y + h <= frame["y"] + frame["height"] + 0.5
        low, high = min(values), max(values)
        left, right = min(centers), max(centers)
        assert right - left > 0.8 * frame["width"]
        for value, center in zip(values, centers, strict=True):
            assert center == pytest.approx(left + (right - left) * (value - low) / (high - low), abs=0.6)
        assert figure.locator("line.pair").count() == 5


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_nothing_is_wider_than_a_phone(draw, name):
    page = draw(situations.SITUATIONS[name](), 390)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.locator("details").evaluate_all("nodes => nodes.forEach(n => { n.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("script").count() == 0
    assert page.locator("h1").count() == 1


def test_tables_scroll_inside_their_frame_on_a_phone(draw):
    page = draw(situations.regression(), 390)
    frame = page.locator(".scroll").first
    sizes = frame.evaluate("n => [n.scrollWidth, n.clientWidth]")
    assert sizes[0] > sizes[1]
    assert frame.get_attribute("tabindex") == "0"


CONTRAST = """nodes => nodes.map(node => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  let back = node;
  while (back && (rgb(getComputedStyle(back).backgroundColor)[3] === 0)) back = back.parentElement;
  const a = light(rgb(getComputedStyle(node).color));
  const b = light(rgb(getComputedStyle(back || document.body).backgroundColor));
  return (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
})"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(draw, scheme):
    """WCAG 2 AA: at least 4.5 to 1 for running text."""
    page = draw(situations.mixed(), scheme=scheme)
    ratios = page.locator(".pill, .quiet, td, th, .legend, .headline, .values span, .reason, a").evaluate_all(CONTRAST)
    assert len(ratios) > 100
    assert min(ratios) >= 4.5
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (dark == "rgb(15, 20, 26)") == (scheme == "dark")


def test_print_keeps_the_page(draw):
    page = draw(situations.regression())
    page.emulate_media(media="print")
    assert page.locator(".scroll").first.evaluate("n => getComputedStyle(n).overflowX") == "visible"
    assert len(page.pdf()) > 10_000
