"""docs/configuration.md names every key, and the built-in gates as they are."""

import re
from pathlib import Path

from perfci.config import schema
from perfci.config.load import DEFAULT_GATES

PAGE = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text()


def test_every_key_is_documented() -> None:
    sections = (
        schema.ProjectSection,
        schema.MeasureSection,
        schema.JudgeSection,
        schema.EnvironmentSection,
        schema.WorkloadSection,
        schema.PresetSection,
        schema.GateSection,
    )
    for section in sections:
        for key in section.model_fields:
            assert f"`{key}`" in PAGE, f"{section.__name__}.{key} is not in docs/configuration.md"


def test_built_in_gates_are_as_documented() -> None:
    table = PAGE.split("<!-- default gates")[1].split("## ")[0]
    rows = re.findall(r"\| `(\w+)` \| `(\w+)` \| (\d+) % \|", table)
    assert rows == [(g.metric, g.phase, f"{g.budget_ratio * 100:.0f}") for g in DEFAULT_GATES]
