"""One definition of the verdict: headline, counts and rows of every format agree, and nothing unknown is green."""

import json
import math
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import situations
from run_builder import run as judged_run

from perfci.model.comparison import Reason, Side
from perfci.model.run import Note
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.report import html_page, json_document, junit, markdown, text
from perfci.report.headline import comparison_headline
from perfci.report.quantities import interval_text
from perfci.report.ranking import phases_on_one_side
from perfci.report.view import view_of
from perfci.report.wording import FLAG_TEXTS, Status
from perfci.stats.judge import judge_workload

ALL = pytest.mark.parametrize("name", situations.SITUATIONS)
LEADS = {
    Status.PASS: "No regression",
    Status.IMPROVEMENT: "Improvement",
    Status.ACCEPTED: "Accepted regression",
    Status.INCONCLUSIVE: "Inconclusive",
    Status.NOT_COMPARABLE: "Not comparable",
    Status.NOT_MEASURED: "Not measured",
    Status.REGRESSION: "Regression",
}


@ALL
def test_counts_are_the_tally_and_the_headline_leads_with_the_verdict(name):
    comparison = situations.SITUATIONS[name]()
    view = view_of(comparison, situations.CONTEXT)
    merged = Counter()
    for status, count in view.counts:
        merged[Verdict.PASS if status is Status.ACCEPTED else Verdict(status.value)] += count
    assert merged == Counter(dict(comparison.tally.counts))
    assert view.headline_lead == LEADS[view.status]
    assert view.status is Status.ACCEPTED or view.status.value == comparison.verdict.value
    assert view.headline.endswith(".")
    assert "\n" not in view.headline


@ALL
def test_every_format_shows_each_bad_check(name):
    """Row 12 and 16: what the counts say is in the tables, inconclusive included. Only PASS may be folded."""
    comparison = situations.SITUATIONS[name]()
    view = view_of(comparison, situations.CONTEXT)
    shown = Counter(row.status for workload in view.workloads for row in workload.checks)
    plain = text.render(comparison, replace(situations.CONTEXT, width=160))
    mark = markdown.render(comparison, situations.CONTEXT)
    html = html_page.render(comparison, situations.CONTEXT)
    for status, count in shown.items():
        if status is Status.PASS:
            continue
        assert len(re.findall(rf"^\| \S+ {status.word}[ |(]", mark, flags=re.M)) == count
        assert html.count(f'<tr class="{status.value}">') == count
        rows = [line for line in plain.splitlines() if re.search(rf"   {status.word}( \(.*)?(   |$)", line)]
        assert len(rows) == count


@ALL
def test_json_agrees(name):
    comparison = situations.SITUATIONS[name]()
    document = json.loads(json_document.render(comparison, situations.CONTEXT))
    counted = Counter(r["verdict"] for w in document["workloads"] for r in w["rows"] if r["gated"])
    counted.update(w["verdict_override"] for w in document["workloads"] if w["verdict_override"])
    assert document["verdict"] == comparison.verdict.value
    assert {k: v for k, v in document["tally"].items() if v} == dict(counted)


@ALL
def test_junit_agrees_and_nothing_unknown_is_green(name):
    comparison = situations.SITUATIONS[name]()
    root = ET.fromstring(junit.render(comparison, situations.CONTEXT))
    cases = list(root.iter("testcase"))
    counted = Counter(next((c.tag for c in case if c.tag != "system-out"), "passed") for case in cases)
    tally = comparison.tally
    unknown = (Verdict.INCONCLUSIVE, Verdict.NOT_COMPARABLE, Verdict.NOT_MEASURED)
    assert counted["failure"] == tally.count(Verdict.REGRESSION)
    assert counted["error"] == max(sum(map(tally.count, unknown)), not comparison.workloads)
    assert counted["passed"] + counted["skipped"] == tally.count(Verdict.PASS) + tally.count(Verdict.IMPROVEMENT)
    green = not counted["failure"] and not counted["error"]
    assert green == (comparison.verdict in (Verdict.PASS, Verdict.IMPROVEMENT))
    assert int(root.get("tests")) == len(cases)
    assert int(root.get("errors")) == counted["error"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "regression",
            ["step unprofiled wall time +12.3%", "99% interval +11.7 … +12.9%", "in forward (+4.80 ms", "cause"],
        ),
        ("improvement", ["−8.0%", "4 of 6 checks improved"]),
        ("mixed", ["gpt: step", "also 4 improved, 3 inconclusive"]),
        ("inconclusive", ["detectable change 31%", "about 140 launches per side"]),
        ("not-comparable", ["driver differs (570.124.06 on the baseline, 575.51.03 on the candidate)", "1 more"]),
        ("nothing-measured", ["all 6 launches ended before the capture range"]),
        ("workload-vanished", ["H2D count: measured on the baseline, missing on the candidate"]),
        ("first-run", ["no baseline to compare with"]),
        ("pass", ["8 checks passed in gpt", "a change of 0.9% in step unprofiled wall time would have been seen"]),
        ("400-phases", ["block_399 wall time +21.0%", "2 of 800 checks regressed"]),
    ],
)
def test_headline_names_what_matters(name, words):
    headline = view_of(situations.SITUATIONS[name](), situations.CONTEXT).headline
    for word in words:
        assert word in headline


def test_one_sided_metrics_are_listed_everywhere():
    """Row 2: vanished and new metrics are named, without a gate too."""
    for module in (text, markdown, html_page):
        report = module.render(situations.passing(), situations.CONTEXT)
        assert "vanished" in report
        assert "d2h_count" in report
        assert "memset_count" in report


def phase_row(phase, before, after):
    """The wall time of a phase, judged by no gate; None: this side has no such phase."""
    row = situations.noisy(phase, "wall_ns", before or 1.0, after or 1.0, verdict=None)
    gone = Side()
    return replace(
        row,
        baseline=gone if before is None else row.baseline,
        candidate=gone if after is None else row.candidate,
        effect=row.effect if before and after else None,
    )


def headline_with(slower_ns, *rows, verdict=Verdict.REGRESSION):
    step = situations.noisy("step", "unprofiled_wall_ns", 40e6, 40e6 + slower_ns, verdict=verdict)
    profiled = situations.noisy("step", "wall_ns", 41e6, 41e6 + slower_ns, verdict=None)
    return comparison_headline(situations.comparison(situations.workload((step, profiled, *rows))))


def test_a_new_phase_that_slows_the_step_is_named_with_its_time():
    said = headline_with(28e6, phase_row("forward", 10e6, 16e6), phase_row("log", None, 20.4e6))
    assert "most of it in the new phase log (+20.4 ms wall time)" in said
    assert "is new" not in said
    said = headline_with(28e6, phase_row("forward", 10e6, 36e6), phase_row("log", None, 1.5e6))
    assert "most of it in forward (+26 ms wall time); the phase log is new (1.500 ms per step)" in said


def test_a_renamed_phase_is_new_and_gone():
    rows = (phase_row("fwd", None, 12e6), phase_row("aux", None, 1e6), phase_row("forward", 11e6, None))
    said = headline_with(0, *rows, verdict=Verdict.PASS)
    assert "the phase fwd is new (12 ms per step), and 1 more phase; the phase forward is gone (11 ms" in said
    said = headline_with(0, *rows, verdict=Verdict.INCONCLUSIVE)
    assert "the phase forward is gone" in said
    assert "is new" not in headline_with(0, phase_row("forward", 11e6, 11e6), verdict=Verdict.PASS)


def test_nothing_is_new_where_a_side_was_not_measured():
    for name in ("first-run", "workload-vanished"):
        assert not phases_on_one_side(situations.SITUATIONS[name]().workloads[0])
    only = situations.workload((phase_row("step", None, 3e6), phase_row("forward", None, 2e6)))
    assert not phases_on_one_side(only)


@pytest.mark.parametrize("low", [-1.0, -math.inf])
def test_launches_that_bound_nothing_have_no_interval(low):
    """One launch a side: an effect down to -100 % and up without end is not an interval to print."""
    row = situations.noisy("step", "unprofiled_wall_ns", 40e6, 42e6, verdict=Verdict.INCONCLUSIVE)
    row = replace(row, effect=replace(row.effect, low_ratio=low, high_ratio=math.inf))
    said = comparison_headline(situations.comparison(situations.workload((row,))))
    assert "+5.0% (no interval, budget 2%)" in said
    assert interval_text(row.effect) == "unbounded"
    assert interval_text(replace(row.effect, low_ratio=-0.5)) == "−50.0 … +∞%"


def test_baseline_zero_is_not_computable():
    """Row 3: no infinity, no percent, the absolute change instead."""
    row = situations.exact("forward", "sync_count", 0, 3, verdict=Verdict.REGRESSION)
    comparison = situations.comparison(situations.workload((row,)))
    view = view_of(comparison, situations.CONTEXT)
    assert view.workloads[0].checks[0].change == "+3 (ratio not computable)"
    assert "went from 0 to 3" in view.headline
    document = json.loads(json_document.render(comparison, situations.CONTEXT))
    assert document["workloads"][0]["rows"][0]["effect"] is None
    assert document["workloads"][0]["rows"][0]["effect_note"] == "not computable"


@pytest.mark.parametrize("launches", [1, 2, 6])
@pytest.mark.parametrize("swapped", [False, True])
def test_zeros_on_a_side_show_no_infinity_in_any_format(launches, swapped):
    """Row 3, through the judge: counts, times, rates and ratios that are 0 before, after, or on both sides."""
    samples = {
        ("step", "gpu_busy_ns"): (0, 1e6), ("step", "sync_count"): (0, 3), ("run", "throughput_per_s"): (0, 100),
        ("step", "overlap_ratio"): (0, 0.5), ("forward", "wall_ns"): (0, 5e5), ("step", "unprofiled_wall_ns"): (0, 0),
        ("log", "kernel_count"): (2, 0),
    }  # fmt: skip
    sides = [
        [
            judged_run(
                {key: both[side ^ swapped] for key, both in samples.items()},
                schedule="s",
                pair=at,
                position=2 * at + side,
            )
            for at in range(launches)
        ]
        for side in (0, 1)
    ]
    gates = tuple(Gate(metric=metric, phase=phase, budget_ratio=0.01) for phase, metric in samples)
    comparison = situations.comparison(judge_workload(*sides, JudgeSettings(gates=gates)))
    from_zero = [row for row in comparison.workloads[0].rows if not row.baseline.location and row.candidate.location]
    assert {row.effect for row in from_zero} == {None}
    for module in (text, markdown, html_page, json_document, junit):
        shown = module.render(comparison, situations.CONTEXT)
        assert "not computable" in shown, module
        assert not re.search(r"(?<![a-z])(nan|inf|infinity)(?![a-z])|∞", shown, re.IGNORECASE), module


def test_accepted_reason_alone_turns_nothing_green():
    row = replace(situations.regression_rows()[0], reason=Reason.ACCEPTED)
    assert row.verdict is Verdict.REGRESSION
    view = view_of(situations.comparison(situations.workload((row,))), situations.CONTEXT)
    assert view.status is Status.REGRESSION


def test_workload_without_any_gate_is_not_measured():
    rows = (situations.noisy("step", "wall_ns", 1e6, 1e6, verdict=None),)
    view = view_of(situations.comparison(situations.workload(rows)), situations.CONTEXT)
    assert view.status is Status.NOT_MEASURED
    assert "no gated metric of gpt was measured" in view.headline


def test_higher_is_better_is_worse_when_it_falls():
    rows = (
        situations.noisy("run", "throughput_per_s", 3000, 3010, verdict=Verdict.PASS),
        situations.noisy("run", "throughput_per_s", 3000, 2400, verdict=Verdict.REGRESSION),
    )
    for row in rows:
        comparison = situations.comparison(situations.workload((row,)))
        assert comparison.verdict is row.verdict
    view = view_of(situations.comparison(situations.workload(rows[1:])), situations.CONTEXT)
    assert "throughput −20.0%" in view.headline


LOG = """candidate topic: the workload failed with exit code 1
    log: /home/ci/.perfci/launches/s/000/launch.log
    its last lines:
    Traceback (most recent call last):
    ModuleNotFoundError: No module named 'x'
    {more}
and what another note says"""


@pytest.mark.parametrize(
    ("failure", "headline"),
    [
        (
            LOG.format(more="Generating the report"),
            "candidate topic: the workload failed with exit code 1 (ModuleNotFoundError: No module named 'x')",
        ),
        (
            LOG.replace("ModuleNotFoundError", "no module").format(more="Killed"),
            "candidate topic: the workload failed with exit code 1 (Killed)",
        ),
        ("baseline main: ended\n    log: /x/launch.log\n    it is empty", "baseline main: ended"),
        (
            "prepare failed with exit code 3: make\n    cc\n    no compiler",
            "prepare failed with exit code 3: make (no compiler)",
        ),
    ],
)
def test_a_launch_that_failed_leads_the_headline_with_its_reason(failure, headline):
    none = situations.SITUATIONS["nothing-measured"]()
    (workload,) = none.workloads
    for launches in (0, 2):
        failed = replace(
            workload,
            notes=(Note(code="launch-failed", text=failure),),
            baseline_launches=launches,
            candidate_launches=launches,
        )
        assert comparison_headline(replace(none, workloads=(failed,))) == f"Not measured: {headline}."


def test_flags_are_explained_where_they_appear_and_only_there():
    plain = situations.SITUATIONS["regression"]()
    (workload,) = plain.workloads
    rows = tuple(
        replace(row, flags=("trimmed", "outlier") if row.gated else ("unpaired",) if at % 2 else ())
        for at, row in enumerate(workload.rows)
    )
    assert any(row.flags == ("unpaired",) for row in rows)
    flagged = replace(plain, workloads=(replace(workload, rows=rows),))
    for module, evidence in ((text, False), (markdown, False), (html_page, True)):
        said = module.render(flagged, replace(situations.CONTEXT, width=200))
        assert said.count(FLAG_TEXTS["trimmed"]) == said.count(FLAG_TEXTS["outlier"]) == 1
        assert said.count(FLAG_TEXTS["unpaired"]) == evidence, "only the page shows all evidence"
        assert FLAG_TEXTS["bimodal"] not in said
        assert not any(meaning in module.render(plain, situations.CONTEXT) for meaning in FLAG_TEXTS.values())


def test_every_flag_has_its_words_and_its_line_in_the_documentation():
    page = (Path(__file__).parents[2] / "docs" / "statistics.md").read_text()
    table = page.partition("| flag | meaning |")[2].partition("\n\n")[0]
    named = [flag for line in table.splitlines()[2:] for flag in re.findall(r"`([\w-]+)`", line.split("|")[1])]
    assert sorted(named) == sorted(FLAG_TEXTS)
