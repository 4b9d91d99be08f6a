"""Options of the whole suite. Golden files are regenerated with ``pytest --update-goldens``: read their diff."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

REAL_TOOLS = {"nsys", "browser", "torch"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write golden files instead of comparing with them")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """In CI (PERFCI_NO_SKIPS=1) a skipped test of a real tool means a missing install step, and fails the run."""
    if os.environ.get("PERFCI_NO_SKIPS") != "1":
        return
    skipped = [
        report.nodeid
        for report in terminalreporter.stats.get("skipped", [])
        if REAL_TOOLS & set(getattr(report, "keywords", ())) and "GPU" not in str(report.longrepr)  # CI has none
    ]
    if skipped:
        terminalreporter.section("tests of real tools were skipped", red=True)
        for name in skipped:
            terminalreporter.line(name)
        terminalreporter._session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """``golden(path, text)``: the text must equal the file, or becomes it under --update-goldens."""
    update = bool(request.config.getoption("--update-goldens"))

    def check(path: Path, text: str) -> None:
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing: run pytest --update-goldens and read what it wrote"
        assert text == path.read_text(encoding="utf-8"), (
            "if this change is meant: pytest --update-goldens, read the diff"
        )

    return check
