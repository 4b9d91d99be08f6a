"""Options of the whole suite. Golden files are regenerated with ``pytest --update-goldens``: read their diff."""

from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-goldens", action="store_true", help="write golden files instead of comparing with them")


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
