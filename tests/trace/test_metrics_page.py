"""docs/metrics.md shows the metric table as it is declared. To write it: python tests/trace/test_metrics_page.py"""

from pathlib import Path

from perfci.model.metrics import METRICS, Direction

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"
WORSE = {Direction.LOWER_IS_BETTER: "more", Direction.HIGHER_IS_BETTER: "less", Direction.NEUTRAL: "–"}


def table() -> str:
    lines = ["| metric | unit | worse is | kind | sample | ranks | source | meaning |", "|" + " --- |" * 8]
    for m in METRICS.values():
        cells = (f"`{m.name}`", m.unit, WORSE[m.direction], m.kind, m.statistic, m.across_ranks, m.source, m.meaning)
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def parts() -> tuple[str, str, str]:
    before, rest = PAGE.read_text().split(BEGIN)
    shown, after = rest.split(END)
    return before, shown, after


def test_the_page_shows_the_table():
    assert parts()[1] == table()


def test_the_page_speaks_only_of_metrics_that_exist():
    before, _, after = parts()
    named = {word.strip("`") for word in (before + after).split() if word.strip("`,.:;()").endswith(("_ns", "_ratio"))}
    assert {word.strip("`,.:;()") for word in named} <= set(METRICS)


if __name__ == "__main__":
    start, _, end = parts()
    PAGE.write_text(start + BEGIN + table() + END + end)
