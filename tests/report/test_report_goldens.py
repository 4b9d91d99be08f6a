"""One golden file per situation and format. Regenerate: ``pytest tests/report --update-goldens``."""

from dataclasses import replace
from pathlib import Path

import pytest
import situations

from perfci.report.registry import reporter

GOLDEN = Path(__file__).parent / "golden"
SUFFIX = {"text": "txt", "md": "md", "junit": "xml", "json": "json"}
LARGE = {"400-phases", "hostile"}


@pytest.mark.parametrize("name", situations.SITUATIONS)
@pytest.mark.parametrize("form", SUFFIX)
def test_golden(golden, name, form):
    if name in LARGE and form in ("json", "junit"):
        pytest.skip("large and covered by its schema")
    context = replace(situations.CONTEXT, width=120)
    text = reporter(form).render(situations.SITUATIONS[name](), context)
    golden(GOLDEN / f"{name}.{SUFFIX[form]}", text)


@pytest.mark.parametrize("name", ["regression", "inconclusive"])
def test_golden_narrow_terminal(golden, name):
    text = reporter("text").render(situations.SITUATIONS[name](), replace(situations.CONTEXT, width=60))
    golden(GOLDEN / f"{name}.narrow.txt", text)
