"""The comparison as GitHub markdown: verdict first, then what matters, the rest folded; never longer than asked.

Names come from branches of strangers: they stand in code spans or are escaped so that they open no mention, link,
issue reference, table cell or HTML.
"""

from collections.abc import Iterable, Sequence

from perfci.model.comparison import Comparison
from perfci.report.context import ReportContext
from perfci.report.fitting import Block, Limit, fit
from perfci.report.markdown_escape import code, prose
from perfci.report.names import clean, safe_url
from perfci.report.quantities import MISSING
from perfci.report.view import view_of
from perfci.report.view_model import FindingView, ReportView, RowView, WorkloadView
from perfci.report.wording import MDE_LEGEND, Status, plural

COMMENT_LIMIT = Limit(characters=65_536)
"""A GitHub comment."""

ICONS: dict[Status, str] = {
    Status.EVIDENCE: "",
    Status.PASS: "✅",
    Status.IMPROVEMENT: "🟢",
    Status.ACCEPTED: "🟣",
    Status.INCONCLUSIVE: "🟡",
    Status.NOT_COMPARABLE: "🟠",
    Status.NOT_MEASURED: "⚪",
    Status.REGRESSION: "🔴",
}
MAX_EVIDENCE = 10
MAX_KERNELS = 10

# What is kept first when not everything fits.
_VERDICT, _BAD, _WHY, _FACTS, _REST, _DETAILS = range(6)

_HEAD = (
    "| | phase | metric | baseline | candidate | change | interval | MDE |",
    "|:--|:--|:--|--:|--:|--:|--:|--:|",
)


def render(comparison: Comparison, context: ReportContext) -> str:
    """Markdown that fits a GitHub comment."""
    return render_markdown(view_of(comparison, context))


def render_markdown(view: ReportView, *, limit: Limit = COMMENT_LIMIT) -> str:
    """Markdown within ``limit`` by construction.

    When it does not fit, the verdict stays, then regressions and other checks that did not pass, then why, then the
    rest; every cut names how many lines are left out. Equal views give equal text.
    """
    return fit(_blocks(view), limit)


def _blocks(view: ReportView) -> Iterable[Block]:
    yield Block(priority=_VERDICT, lines=(f"## {ICONS[view.status]} {view.headline_lead}", ""))
    yield Block(priority=_VERDICT, lines=(f"**{prose(view.headline_body)}**", ""))
    counts = " · ".join(f"{count:,} {status.word}" for status, count in view.counts) or "no checks"
    sides = f"{code(view.baseline.label)} → {code(view.candidate.label)}"
    about = f"{sides} · {counts} · false alarm rate of the whole comparison {view.error_rate}"
    about += f" · {MDE_LEGEND}" if view.shows_mde else ""
    yield Block(priority=_VERDICT, lines=(about, ""))
    yield from _notes([note.text for note in view.notes])
    for workload in view.workloads:
        yield from _workload(workload, alone=len(view.workloads) == 1)
    yield from _list(
        "Flags:", [f"{code(flag)}: {meaning}" for flag, meaning in view.flag_legend(evidence=False)], _REST
    )
    yield from _footer(view)


def _workload(workload: WorkloadView, *, alone: bool) -> Iterable[Block]:
    if not alone:
        title = f"### {ICONS[workload.status]} {code(workload.name)}"
        yield Block(priority=_BAD, lines=(title, "", prose(workload.headline), ""))
    yield from _list("Not equal on both sides:", [prose(text) for text in workload.differences], _BAD)
    yield from _notes([note.text for note in workload.notes])
    bad = [row for row in workload.checks if row.status is not Status.PASS]
    passed = [row for row in workload.checks if row.status is Status.PASS]
    yield from _table(bad, priority=_BAD)
    reasons = [f"{code(row.phase)} {code(row.metric)}: {row.reason}" for row in workload.undecided]
    yield from _list("Not decided because:", reasons, _FACTS)
    for finding in workload.findings:
        yield from _finding(finding)
    if passed:
        word = f"{plural(len(passed), 'check')} passed"
        yield from _folded(word, _table(passed, priority=_REST), open_=alone and not bad and len(passed) <= 20)
    gone = [
        f"{row.change}: {code(row.phase)} {code(row.metric)} {row.only_value}"
        for row in workload.evidence
        if row.one_sided
    ]
    yield from _list("Measured on one side only, without a gate:", gone, _FACTS)
    telling = workload.telling_evidence[:MAX_EVIDENCE]
    if telling:
        yield from _folded("Evidence beyond the noise, without a gate", _table(telling, priority=_REST))
    yield from _kernels(workload)
    yield from _environment(workload)


def _table(rows: Sequence[RowView], *, priority: int) -> Iterable[Block]:
    if rows:
        lines = tuple(map(_table_row, rows))
        yield Block(priority=priority, head=_HEAD, lines=lines, tail=("",), noun="row")


def _table_row(row: RowView) -> str:
    flags = f" ({', '.join(code(flag, cell=True) for flag in row.flags)})" if row.flags else ""
    verdict = f"{ICONS[row.status]} {row.status.word}" if row.status is not Status.EVIDENCE else MISSING
    cells = (
        verdict + flags,
        code(row.phase, cell=True),
        code(row.metric, cell=True),
        row.baseline,
        row.candidate,
        row.change,
        row.interval,
        row.mde,
    )
    return f"| {' | '.join(cells)} |"


def _list(title: str, items: Sequence[str], priority: int) -> Iterable[Block]:
    if items:
        lines = tuple(f"- {item}" for item in items)
        yield Block(priority=priority, head=(title, ""), lines=lines, tail=("",), noun="line")


def _notes(texts: Sequence[str]) -> Iterable[Block]:
    if texts:
        yield Block(priority=_FACTS, lines=tuple(f"> {prose(text)}  " for text in texts), tail=("",), noun="note")


def _finding(finding: FindingView) -> Iterable[Block]:
    about = f"in {code(finding.phase)}, {finding.standing}, {finding.confidence} confidence"
    if finding.subject:
        about += f", {code(finding.subject)}"
    if finding.location:
        about += f", at {code(finding.location)}"
    numbers = ", ".join(f"{prose(name)} {prose(value)}" for name, value in finding.evidence)
    lines = [f"**Why: {prose(finding.title)}** ({about})  "]
    if numbers:
        lines.append(f"{numbers}  ")
    lines += [f"→ {prose(finding.advice)}{_see(finding.docs)}", ""]
    yield Block(priority=_WHY if finding.telling else _REST, lines=("\n".join(lines),), noun="finding")


def _see(docs: str) -> str:
    url = safe_url(docs) if docs.startswith(("http://", "https://")) else None
    return f" ([more](<{url}>))" if url else f" (see {code(docs)})" if docs else ""


def _kernels(workload: WorkloadView) -> Iterable[Block]:
    shown = workload.kernels[:MAX_KERNELS]
    lines = []
    for kernel in shown:
        cells = (
            kernel.change,
            code(kernel.phase, cell=True),
            code(kernel.name, cell=True) + (f" at {code(kernel.location, cell=True)}" if kernel.location else ""),
            " → ".join(kernel.launches),
            " → ".join(kernel.time),
            kernel.delta,
        )
        lines.append(f"| {' | '.join(cells)} |")
    if lines:
        head = ("| | phase | kernel | launches | time | difference |", "|:--|:--|:--|--:|--:|--:|")
        table = Block(priority=_DETAILS, head=head, lines=tuple(lines), tail=("",), noun="kernel")
        title = f"{plural(len(workload.kernels), 'kernel')} changed, per step"
        yield from _folded(title, [table])


def _environment(workload: WorkloadView) -> Iterable[Block]:
    lines = []
    for line in workload.environment:
        mark = "≠" if line.differs else ""
        values = (MISSING if v == MISSING else code(v, cell=True) for v in (line.baseline, line.candidate))
        lines.append(f"| {code(line.title, cell=True)} | {' | '.join(values)} | {mark} |")
    if lines:
        head = ("| field | baseline | candidate | |", "|:--|:--|:--|:--|")
        before, after = workload.launches
        title = f"Environment; {plural(before, 'launch')} of the baseline, {after:,} of the candidate"
        yield from _folded(title, [Block(priority=_DETAILS, head=head, lines=tuple(lines), tail=("",), noun="field")])


def _folded(summary: str, blocks: Iterable[Block], *, open_: bool = False) -> Iterable[Block]:
    """Blocks behind a fold. ``summary`` is our own text. The fold is part of each block, so that none stays open."""
    start = f"<details{' open' if open_ else ''}><summary>{summary}</summary>"
    for block in blocks:
        yield Block(
            priority=block.priority,
            head=(start, "", *block.head),
            lines=block.lines,
            tail=(*block.tail, "</details>", ""),
            noun=block.noun,
        )


def _footer(view: ReportView) -> Iterable[Block]:
    context = view.context
    if context.reproduce:
        commands = tuple(f"- {code(clean(command, limit=2000))}" for command in context.reproduce)
        yield Block(priority=_FACTS, head=("Reproduce:", ""), lines=commands, tail=("",), noun="command")
    links = []
    for link in context.links:
        url = safe_url(link.url)
        title = prose(clean(link.title))
        links.append(f"- [{title}](<{url}>)" if url else f"- {title}: {code(clean(link.url, limit=300))}")
    if links:
        yield Block(priority=_FACTS, lines=tuple(links), tail=("",), noun="link")
    yield Block(priority=_FACTS, lines=(f"<sub>perfci {prose(clean(context.perfci_version))}</sub>",))
