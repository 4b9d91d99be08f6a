"""The answer of ``perfci diagnose``: text and JSON."""

import json
from dataclasses import replace

import pytest
from timeline_builder import healthy

from perfci.diagnosis import rules
from perfci.diagnosis.kernel_diff import diff_kernels
from perfci.diagnosis.pair import compare_findings, gone_findings
from perfci.model.finding import Confidence, Finding, Quantity, SourceLocation
from perfci.model.run import KernelStat, Note
from perfci.model.timeline import SyncKind
from perfci.report.diagnosis_text import MAX_KERNELS, DiagnosedTrace, Diagnosis, render_json, render_text


def waiting() -> tuple[Finding, ...]:
    made = healthy()
    for number in range(10):
        made.call("cudaStreamSynchronize_v3020", number * 1000 + 985, number * 1000 + 995, sync=SyncKind.STREAM)
    return rules.find(made.build())


def stat(name: str, total_ns: int, count: int = 10) -> KernelStat:
    return KernelStat(phase="forward", name=name, count=count, total_ns=total_ns)


def pair(kernels: int = 3) -> Diagnosis:
    gone = Finding(
        rule="pageable-copies", phase="h2d", title="1 large copy", advice="pin", confidence=Confidence.HIGH,
        evidence=(Quantity(name="cost", value=1, unit="ns"),),
    )  # fmt: skip
    after = [stat(f"k{number}", 100_000 + 10_000 * number) for number in range(kernels)]
    return Diagnosis(
        baseline=DiagnosedTrace(name="a.sqlite", step_count=10),
        candidate=DiagnosedTrace(name="b.sqlite", step_count=10, notes=(Note(code="x", text="no thread names"),)),
        findings=compare_findings([gone], waiting()),
        gone=gone_findings([gone], waiting()),
        kernel_changes=diff_kernels([], 10, after, 10),
    )


def test_one_trace():
    text = render_text(Diagnosis(candidate=DiagnosedTrace(name="a.sqlite", step_count=10), findings=waiting()))
    assert text.splitlines()[0] == "a.sqlite (10 steps)"
    assert "cudaStreamSynchronize waits for the GPU 1× in every step" in text
    assert "CPU blocked per step: 10 µs" in text
    assert "share of the step: " in text
    assert "docs/rules/accidental-sync.md" in text
    assert "new" not in text
    assert "kernels that changed" not in text


def test_no_finding_is_not_praise():
    text = render_text(Diagnosis(candidate=DiagnosedTrace(name="a", step_count=1)))
    assert "no known pattern found" in text
    assert "(1 step)" in text


def test_pair_says_new_gone_and_kernels():
    text = render_text(pair())
    assert text.splitlines()[0] == "a.sqlite (10 steps) → b.sqlite (10 steps)"
    assert "note: no thread names" in text
    assert ", new, high confidence]" in text.replace("\n", " ")
    assert "gone since the baseline" in text
    assert "• 1 large copy  [h2d, gone, high confidence]" in text
    assert "cost: 1 ns" in text
    assert "→ pin" not in text  # there is nothing left to do about it
    assert "kernel time: forward +33 µs" in text
    assert [line.split()[1] for line in text.splitlines() if line.startswith(" forward")] == ["k2", "k1", "k0"]


def test_patterns_of_both_sides_take_one_line_and_worsened_ones_stay_whole():
    (found,) = waiting()
    cost, *others = found.evidence
    cheaper = replace(found, evidence=(replace(cost, value=cost.value / 2), *others))
    sides = {"baseline": DiagnosedTrace(name="a", step_count=10), "candidate": DiagnosedTrace(name="b", step_count=10)}
    shared = render_text(Diagnosis(**sides, findings=compare_findings([found], [found])), width=200)
    assert "[log, on both sides, high confidence]".replace("log", found.phase) in shared
    for part in (found.advice[:30], "CPU blocked per step", found.docs):
        assert part not in shared
        assert part in render_text(Diagnosis(**sides, findings=compare_findings([cheaper], [found])), width=200)
        assert part in render_text(Diagnosis(candidate=sides["candidate"], findings=(found,)), width=200)
    assert "told in full by `perfci diagnose` of one file" in shared
    document = json.loads(render_json(Diagnosis(**sides, findings=compare_findings([found], [found]))))
    assert document["findings"][0]["advice"] == found.advice


def test_a_long_table_is_cut_and_says_so():
    text = render_text(pair(kernels=MAX_KERNELS + 5))
    assert sum(line.startswith(" forward") for line in text.splitlines()) == MAX_KERNELS
    assert "and 5 further rows: +" in text


def test_tiny_changes_are_counted_not_shown():
    after = [stat("big", 1_000_000), stat("tiny", 10)]
    one = DiagnosedTrace(name="a", step_count=10)
    text = render_text(Diagnosis(candidate=one, baseline=one, kernel_changes=diff_kernels([], 10, after, 10)))
    assert "big" in text
    assert "tiny" not in text
    assert "and 1 further row: +1 ns together" in text


def test_equal_kernels_are_said_to_be_equal():
    one = DiagnosedTrace(name="a", step_count=3)
    assert "no kernel changed" in render_text(Diagnosis(candidate=one, baseline=one))


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("color", [True, False])
def test_width_and_colour(width, color):
    text = render_text(pair(), width=width, color=color)
    assert ("\x1b[" in text) is color
    if not color:
        assert max(map(len, text.splitlines())) <= width


def test_hostile_names_are_harmless():
    evil = "\x1b[31m\u202e" + "x" * 5000
    finding = Finding(
        rule="r", phase=evil, title=evil, advice=evil, confidence=Confidence.LOW, subject=evil, docs=evil,
        evidence=(Quantity(name=evil, value=2, unit=evil),), location=SourceLocation(path=evil, line=3),
    )  # fmt: skip
    diagnosis = Diagnosis(
        candidate=DiagnosedTrace(name=evil, step_count=1, notes=(Note(code="c", text=evil),)),
        baseline=DiagnosedTrace(name=evil, step_count=1),
        findings=(finding,),
        gone=(finding,),
        kernel_changes=diff_kernels([], 1, [KernelStat(phase=evil, name=evil, count=1, total_ns=5)], 1),
    )
    text = render_text(diagnosis)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert json.loads(render_json(diagnosis))["findings"][0]["title"] == evil


def test_json_holds_everything():
    document = json.loads(render_json(pair(kernels=40)))
    assert document["schema_version"] == 1
    assert document["baseline"] == {"name": "a.sqlite", "steps": 10, "notes": []}
    (finding,) = document["findings"]
    assert (finding["rule"], finding["new"], finding["worsened"]) == ("accidental-sync", True, False)
    assert finding["evidence"][1] == {"name": "waits per step", "value": 1.0, "unit": "count"}
    assert len(document["kernel_changes"]) == 40
    assert document["kernel_change_ns"]["forward"] == pytest.approx(
        sum(change["delta_ns"] for change in document["kernel_changes"])
    )
    assert [finding["rule"] for finding in document["gone"]] == ["pageable-copies"]


def test_json_of_one_trace_has_no_baseline():
    document = json.loads(render_json(Diagnosis(candidate=DiagnosedTrace(name="a", step_count=1))))
    assert document["baseline"] is None
    assert document["kernel_changes"] == []


@pytest.mark.parametrize("name", ["::error::pwned", "##[error]pwned"])
def test_a_name_is_no_command_of_the_runner(name: str) -> None:
    text = render_text(Diagnosis(candidate=DiagnosedTrace(name=name, step_count=10)))
    assert "pwned (10 steps)" in text
    assert not text.lstrip().startswith("::")
    assert "##[" not in text
