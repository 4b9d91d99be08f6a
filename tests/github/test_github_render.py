"""What each situation looks like on GitHub. Regenerate the goldens: ``pytest tests/github --update-goldens``.

The report itself has its own goldens (tests/report); here is what stands around it, and that it all fits.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from contract_server import BODY_LIMIT
from github_cases import (
    CONTEXT,
    HEAD,
    HOSTILE,
    NOW,
    comparison,
    event,
    of,
    port_to,
    regressed,
    row,
    situations,
    sync_finding,
    workload,
)

from perfci.github import limits
from perfci.github.acceptance import Acceptance
from perfci.github.event import EventKind
from perfci.github.port import AnnotationLevel
from perfci.github.publish import nothing_measured, publish
from perfci.github.render import MAX_ANNOTATIONS, annotations_of, conclusion_of, show
from perfci.github.sticky import StickyState, marker_line, state_of
from perfci.model.finding import Confidence
from perfci.model.verdict import Verdict
from perfci.report.fitting import Limit
from perfci.report.markdown import render_markdown
from perfci.report.view import view_of

GOLDEN = Path(__file__).parent / "golden"
SITUATIONS = situations()
STATE = StickyState(name="perfci", head_sha=HEAD, order=(500, 1), measured=(500, 1), digest="0" * 16, green=False)
ACCEPTANCE = Acceptance(
    repository="octo/train",
    pull_request=7,
    head_sha=HEAD,
    regressions=(("gpt", "step", "unprofiled_wall_ns"),),
    reason="needed for correctness, see the design note",
    author="alice",
    source="comment:1",
    accepted_at=NOW,
)


def shown(name, **more):
    acceptance = ACCEPTANCE if name == "accepted" else None
    return show(SITUATIONS[name], CONTEXT, STATE, acceptance=acceptance, can_accept=True, **more)


@pytest.mark.parametrize("name", SITUATIONS)
def test_golden(golden, name):
    view = shown(name)
    head, _, rest = view.comment.partition("\n")
    foot = view.check_summary
    for size in (limits.COMMENT_CHARS, limits.CHECK_SUMMARY_CHARS):
        report = render_markdown(view_of(SITUATIONS[name], CONTEXT), limit=Limit(characters=size))
        foot = foot.removeprefix(report)
    text = [
        f"check title: {view.title}",
        f"check conclusion: {view.conclusion}",
        f"commit status: {view.status_state}: {view.status_description}",
        f"comment begins: {head}",
        f"                {rest.partition(chr(10))[0]}",
        "below the report:" if len(foot) < 2000 else "below the report (report was cut):",
        *(foot if len(foot) < 2000 else foot[-400:].rpartition("</sub>")[2]).strip().splitlines(),
        *(f"annotation {a.level} {a.path}:{a.line}: {a.title}\n    {a.message}" for a in view.annotations),
    ]
    golden(GOLDEN / f"{name}.txt", "\n".join(text) + "\n")


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_situation_fits_and_is_accepted_by_the_server(server, name, tmp_path):
    summary = tmp_path / "summary"
    outcome = publish(SITUATIONS[name], event(), port_to(server), context=CONTEXT, now=NOW, summary_path=summary)
    assert outcome.failures == ()
    assert outcome.posted == ("job summary", "check run", "comment")
    assert 0 < summary.stat().st_size <= 1024 * 1024
    assert state_of(server.state.comments[0]["body"]).head_sha == HEAD
    server.state.can_check = False
    outcome = publish(SITUATIONS[name], event(run_id=501), port_to(server), context=CONTEXT, now=NOW)
    assert "commit status" in outcome.posted, "the description fits, too"


def huge(count, text="p\u4e2d\u6587-{i}"):
    rows = [row(Verdict.PASS, phase=text.format(i=i), metric="gpu_busy_ns") for i in range(count)]
    return comparison(workload(*rows, regressed(phase="late", metric="gpu_busy_ns", change=7.0)))


def test_400_phases_keep_verdict_and_regressions_first():
    body = shown("400-phases").comment
    assert len(body) <= BODY_LIMIT
    lines = body.splitlines()
    assert "Regression" in lines[1]
    first_rows = [line for line in lines if line.startswith("| ")][:4]
    assert all("late-" in line for line in first_rows[-3:])


def test_a_body_is_cut_to_the_limit_and_says_so():
    big = huge(3000)
    view = show(big, CONTEXT, STATE, can_accept=True)
    for body, limit in ((view.comment, BODY_LIMIT), (view.check_summary, BODY_LIMIT - 1)):
        assert limit - 1000 < limits.utf16_length(body) <= limit
        assert "left out for size" in body
        assert "`late`" in body
        assert body.endswith("(write permission needed).")


def test_characters_that_count_twice_still_fit():
    phase = "\U0001f525" * 60 + "-{i}"
    view = show(huge(800, phase), CONTEXT, STATE)
    assert len(view.comment) < BODY_LIMIT
    assert limits.utf16_length(view.comment) <= BODY_LIMIT


def test_an_1100_kib_summary_is_cut_in_bytes_and_stays_utf8(server, tmp_path):
    big = huge(12_000)
    whole = render_markdown(view_of(big, CONTEXT), limit=Limit(characters=10**8))
    assert len(whole.encode()) > 1100 * 1024
    summary = tmp_path / "summary"
    publish(big, event(), port_to(server), context=CONTEXT, now=NOW, summary_path=summary)
    data = summary.read_bytes()
    assert 1000 * 1024 < len(data) <= 1024 * 1024
    assert data.decode().startswith("## ")
    assert "Regression" in data.decode().splitlines()[0]


def test_the_summary_shares_its_megabyte_with_what_is_there_already(server, tmp_path):
    summary = tmp_path / "summary"
    summary.write_bytes(b"x" * (1024 * 1024 - 1001))
    publish(huge(100), event(), port_to(server), context=CONTEXT, now=NOW, summary_path=summary)
    assert 1024 * 1024 - 10 < summary.stat().st_size <= 1024 * 1024
    summary.read_bytes().decode()


def test_a_summary_that_cannot_be_written_is_a_failure_and_not_a_crash(server, tmp_path):
    outcome = publish(of(Verdict.PASS), event(), port_to(server), context=CONTEXT, now=NOW, summary_path=tmp_path)
    assert outcome.exit_code == 6
    assert "job summary" in outcome.failures[0]


def test_hostile_text_calls_nobody_and_opens_no_html():
    """The report is checked by its own tests; here the parts around it, with everything hostile in the reason."""
    acceptance = replace(ACCEPTANCE, reason=HOSTILE[:400], author="@team")
    around = show(of(Verdict.REGRESSION), CONTEXT, STATE, acceptance=acceptance, can_accept=True)
    plain = show(of(Verdict.REGRESSION), CONTEXT, STATE)
    added = around.check_summary.removeprefix(plain.check_summary)
    assert "1/onerror" not in added
    assert "onerror" in added
    for opener in ("<img", "@team", " #1", "https://evil", "\x1b", "\u202e", "-->"):
        assert opener not in added
    view = shown("hostile-names")
    for text in (view.title, view.status_description, *(a.message for a in view.annotations)):
        assert not set(text) & {"\x1b", "\u202e", "\r"}
    assert "\n" not in view.title + view.status_description


def test_annotations_are_ranked_and_only_inside_the_repository():
    findings = (
        sync_finding(line=1, new=False),
        sync_finding(line=2, confidence=Confidence.LOW),
        sync_finding(line=3),
        sync_finding(line=3),
        sync_finding(path="../outside.py"),
        sync_finding(path="/etc/passwd"),
        sync_finding(path="a\nb.py"),
        sync_finding(path="a/./b.py"),
        sync_finding(path="c:\\x.py"),
        sync_finding(line=0),
        replace(sync_finding(), location=None),
    )
    found = annotations_of(comparison(workload(regressed(), findings=findings)))
    assert [(a.line, a.level) for a in found] == [
        (3, AnnotationLevel.FAILURE),
        (2, AnnotationLevel.WARNING),
        (1, AnnotationLevel.NOTICE),
    ]
    assert {a.level for a in annotations_of(comparison(workload(row(Verdict.PASS), findings=findings)))} == {"notice"}


def test_annotations_have_an_end():
    findings = tuple(sync_finding(line=i + 1, title=HOSTILE, advice=HOSTILE * 3) for i in range(300))
    found = annotations_of(comparison(workload(regressed(), findings=findings)))
    assert len(found) == MAX_ANNOTATIONS
    assert all(len(a.title) <= 255 and len(a.message.encode()) <= 64 * 1024 for a in found)


@pytest.mark.parametrize("verdict", list(Verdict))
def test_unknown_is_never_success(verdict):
    good = verdict in (Verdict.PASS, Verdict.IMPROVEMENT)
    view = show(of(verdict), CONTEXT, STATE)
    assert (view.conclusion == "success") is good
    assert (view.status_state == "success") is good
    assert conclusion_of(of(verdict), strict=True) in ("success", "failure")


def test_no_bundle_at_all_is_published_as_not_measured(server):
    outcome = publish(
        nothing_measured(event(), "the measuring run left no bundle"),
        event(conclusion="failure"),
        port_to(server),
        context=CONTEXT,
        now=NOW,
    )
    assert (outcome.exit_code, outcome.conclusion) == (5, "failure")
    assert "left no bundle" in server.state.comments[0]["body"]
    assert nothing_measured(event(head_sha=None, kind=EventKind.ISSUE_COMMENT), "x").verdict is Verdict.NOT_MEASURED


@pytest.mark.parametrize("name", ["", "a--b", "-->", "x" * 61, "a\nb", 'a"b'])
def test_a_name_that_could_break_the_marker_is_refused(name):
    with pytest.raises(ValueError, match="cannot name a check"):
        replace(STATE, name=name)


def test_a_damaged_marker_is_no_marker():
    good = marker_line(STATE)
    assert state_of(good) == STATE
    assert state_of(good + "\r\nrest") == STATE
    for bad in (good.replace("500", '"x"'), good.replace(HEAD, "zz"), good[:-5], " x" + good, "<!-- perfci {} -->", ""):
        assert state_of(bad) is None
