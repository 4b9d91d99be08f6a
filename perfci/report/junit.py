"""The comparison as JUnit XML: one test suite per workload, one test case per gate.

REGRESSION is a failure. INCONCLUSIVE, NOT_COMPARABLE and NOT_MEASURED are errors: JUnit's word for a test that could
not give an answer, because viewers count skipped tests as green. Only an accepted regression is skipped.
"""

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from perfci.model.comparison import Comparison
from perfci.report.context import ReportContext
from perfci.report.quantities import MISSING
from perfci.report.text import change_cell
from perfci.report.view import view_of
from perfci.report.view_model import ReportView, RowView, WorkloadView
from perfci.report.wording import Status

_ELEMENTS: dict[Status, str] = {
    Status.REGRESSION: "failure",
    Status.INCONCLUSIVE: "error",
    Status.NOT_COMPARABLE: "error",
    Status.NOT_MEASURED: "error",
    Status.ACCEPTED: "skipped",
}


def render(comparison: Comparison, context: ReportContext) -> str:
    """One XML document. Names are the cleaned, shortened ones of the view: XML cannot hold control characters."""
    view = view_of(comparison, context)
    root = ET.Element("testsuites", name="perfci")
    for workload in view.workloads:
        root.append(_suite(workload.name, _cases(workload), _properties(view, workload)))
    if not view.workloads:
        root.append(_suite("perfci", [_case("perfci", "comparison", view.status, view.headline, "")], []))
    for count in ("tests", "failures", "errors", "skipped"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(name: str, cases: Sequence[ET.Element], properties: Sequence[tuple[str, str]]) -> ET.Element:
    suite = ET.Element("testsuite", name=name, tests=str(len(cases)))
    for attribute, element in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(sum(case.find(element) is not None for case in cases)))
    if properties:
        group = ET.SubElement(suite, "properties")
        for key, value in properties:
            ET.SubElement(group, "property", name=key, value=value)
    suite.extend(cases)
    return suite


def _properties(view: ReportView, workload: WorkloadView) -> list[tuple[str, str]]:
    sides = [
        ("baseline", view.baseline.commit or view.baseline.label),
        ("candidate", view.candidate.commit or view.candidate.label),
        ("baseline launches", str(workload.launches[0])),
        ("candidate launches", str(workload.launches[1])),
    ]
    return sides + [(line.title, line.candidate) for line in workload.environment if line.candidate != MISSING]


def _cases(workload: WorkloadView) -> list[ET.Element]:
    cases = [_row_case(workload.name, row) for row in workload.checks]
    if workload.override is not None:
        details = "\n".join([*workload.differences, *(note.text for note in workload.notes)])
        cases.insert(0, _case(workload.name, "workload", workload.override, workload.headline, details))
    return cases


def _row_case(workload: str, row: RowView) -> ET.Element:
    message = f"{row.status.word}: {row.phase} {row.metric} {change_cell(row)}; {row.reason}"
    details = [
        f"baseline {row.baseline}, candidate {row.candidate}",
        f"change {change_cell(row)}, budget {row.budget}",
        f"smallest detectable change {row.mde}",
        *([f"flags: {', '.join(row.flags)}"] if row.flags else []),
    ]
    return _case(f"{workload}.{row.phase}", row.metric, row.status, message, "\n".join(details))


def _case(classname: str, name: str, status: Status, message: str, details: str) -> ET.Element:
    case = ET.Element("testcase", classname=classname, name=name)
    element = _ELEMENTS.get(status)
    if element == "skipped":
        ET.SubElement(case, "skipped", message=message)
    elif element is not None:
        ET.SubElement(case, element, message=message, type=status.value).text = details
    if details and (element is None or element == "skipped"):
        ET.SubElement(case, "system-out").text = details
    return case
