"""JUnit XML: valid against a schema, mapping of verdicts, unique cases."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import situations
import xmlschema

from perfci.report.junit import render

SCHEMA = xmlschema.XMLSchema(str(Path(__file__).parent / "junit.xsd"))


@pytest.mark.parametrize("name", situations.SITUATIONS)
def test_valid_and_cases_are_unique_within_a_suite(name):
    text = render(situations.SITUATIONS[name](), situations.CONTEXT)
    SCHEMA.validate(text)
    for suite in ET.fromstring(text.encode("utf-8")):
        keys = [(case.get("classname"), case.get("name")) for case in suite.iter("testcase")]
        assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("name", "tag", "kind"),
    [
        ("regression", "failure", "REGRESSION"),
        ("inconclusive", "error", "INCONCLUSIVE"),
        ("not-comparable", "error", "NOT_COMPARABLE"),
        ("nothing-measured", "error", "NOT_MEASURED"),
        ("no-workload", "error", "NOT_MEASURED"),
        ("first-run", "error", "INCONCLUSIVE"),
    ],
)
def test_mapping(name, tag, kind):
    root = ET.fromstring(render(situations.SITUATIONS[name](), situations.CONTEXT))
    assert {element.get("type") for element in root.iter(tag)} == {kind}


def test_accepted_is_skipped_with_its_numbers():
    root = ET.fromstring(render(situations.accepted(), situations.CONTEXT))
    skipped = list(root.iter("skipped"))
    assert len(skipped) == 5
    assert all("accepted" in element.get("message") for element in skipped)
    assert root.get("failures") == "0"
