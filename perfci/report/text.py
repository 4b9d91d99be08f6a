"""The comparison as text for a terminal or a CI log."""

from collections import Counter
from collections.abc import Iterable, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfci.model.comparison import Comparison
from perfci.report.context import ReportContext
from perfci.report.drawing import drawn
from perfci.report.names import clean
from perfci.report.quantities import MISSING
from perfci.report.view import view_of
from perfci.report.view_model import FindingView, ReportView, RevisionView, RowView, WorkloadView
from perfci.report.wording import MDE_LEGEND, Status, plural

NARROW = 110
"""Below this many columns a row takes several lines instead of a table line."""
MAX_PASSED = 40
MAX_EVIDENCE = 10
MAX_KERNELS = 8
MAX_FINDINGS = 12
MAX_UNDECIDED = 8

_STYLES: dict[Status, str] = {
    Status.EVIDENCE: "dim",
    Status.PASS: "green",
    Status.IMPROVEMENT: "bold green",
    Status.ACCEPTED: "magenta",
    Status.INCONCLUSIVE: "yellow",
    Status.NOT_COMPARABLE: "yellow",
    Status.NOT_MEASURED: "bold yellow",
    Status.REGRESSION: "bold red",
}


def render(comparison: Comparison, context: ReportContext) -> str:
    """Text of ``context.width`` columns, with escape sequences only when ``context.color`` is set."""
    return drawn(Group(*_report(view_of(comparison, context))), width=context.width, color=context.color)


def _report(view: ReportView) -> Iterable[RenderableType]:
    badge = Text(f" {view.status.word.upper()} ", style=f"{_STYLES[view.status]} reverse")
    yield Text.assemble(badge, "  ", _revision(view.baseline), " → ", _revision(view.candidate))
    yield Text(view.headline, style="bold")
    mde = f"; {MDE_LEGEND}" if view.shows_mde else ""
    yield Text(f"{checks_text(view)}; false alarm rate of the whole comparison {view.error_rate}{mde}", style="dim")
    yield from (_note(note.text, spoils=note.spoils) for note in view.notes)
    for workload in view.workloads:
        yield Text()
        yield from _workload(workload, width=view.context.width, alone=len(view.workloads) == 1)
    legend = view.flag_legend(evidence=False)
    if legend:
        yield _heading("flags")
        yield from (_bullet(f"{flag}: {meaning}") for flag, meaning in legend)
    yield from _footer(view.context)


def checks_text(view: ReportView) -> str:
    """``checks: 1 regression, 11 pass``: the counts of the whole comparison, worst first."""
    if not view.counts:
        return "checks: none"
    return "checks: " + ", ".join(f"{count:,} {status.word}" for status, count in view.counts)


def _revision(revision: RevisionView) -> str:
    short = revision.commit[:10]
    name = revision.label if not short or revision.label.startswith(short[:7]) else f"{revision.label} ({short})"
    return f"{name} + uncommitted changes" if revision.dirty else name


def _workload(workload: WorkloadView, *, width: int, alone: bool) -> Iterable[RenderableType]:
    before, after = workload.launches
    sides = f"{plural(before, 'launch')} baseline, {after:,} candidate"
    yield Text.assemble((workload.name, "bold underline"), "  ", (sides, "dim"))
    if not alone:
        yield Text(workload.headline, style=_STYLES[workload.status])
    yield from (_bullet(text) for text in workload.differences)
    yield from (_note(note.text, spoils=note.spoils) for note in workload.notes)
    shown, folded = workload.split_passed(MAX_PASSED)
    if shown:
        yield _rows(shown, width=width)
    if folded:
        yield Text(f"  {plural(len(folded), 'further check')} passed; -f html or json lists them", style="dim")
    if workload.undecided:
        yield _heading("not decided because")
        yield from (_bullet(f"{row.phase} {row.metric}: {row.reason}") for row in workload.undecided[:MAX_UNDECIDED])
        if len(workload.undecided) > MAX_UNDECIDED:
            yield _bullet(f"{len(workload.undecided) - MAX_UNDECIDED:,} more; -f html or json lists them")
    yield from _evidence(workload, width=width)
    if workload.findings:
        yield _heading("why")
        yield from (_finding(finding) for finding in workload.findings[:MAX_FINDINGS])
    yield from _kernels(workload)


def _rows(rows: Sequence[RowView], *, width: int) -> RenderableType:
    if width < NARROW:
        return Group(*(_stacked(row) for row in rows))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), header_style="bold")
    table.add_column("phase", overflow="fold", min_width=8, max_width=24)
    table.add_column("metric", overflow="fold", min_width=18)
    for title in ("baseline", "candidate", "change", "interval"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("verdict")
    table.add_column("MDE", justify="right", no_wrap=True)
    for row in rows:
        numbers = (Text(cell) for cell in (row.baseline, row.candidate, row.change, row.interval))
        table.add_row(Text(row.phase), Text(row.metric), *numbers, _status(row), Text(row.mde))
    return table


def change_cell(row: RowView) -> str:
    """``+12.3% [+11.8 … +12.9%]``."""
    return f"{row.change} [{row.interval}]" if row.interval else row.change


def _status(row: RowView) -> Text:
    word = MISSING if row.status is Status.EVIDENCE else row.status.word
    return Text(f"{word} ({', '.join(row.flags)})" if row.flags else word, style=_STYLES[row.status])


def _stacked(row: RowView) -> RenderableType:
    head = Text.assemble(_status(row), f"  {row.phase} {row.metric}")
    body = Text(f"{row.baseline} → {row.candidate}  {change_cell(row)}")
    if row.mde != MISSING:
        body.append(f"  MDE {row.mde}")
    return Group(head, Padding(body, (0, 0, 0, 4)))


def _evidence(workload: WorkloadView, *, width: int) -> Iterable[RenderableType]:
    gone = [row for row in workload.evidence if row.one_sided]
    if gone:
        yield _heading("measured on one side only (no gate)")
        counts = Counter(row.change for row in gone)
        yield from (_bullet(f"{row.change}: {row.phase} {row.metric} {row.only_value}") for row in gone[:MAX_EVIDENCE])
        if len(gone) > MAX_EVIDENCE:
            yield _bullet(f"in all {', '.join(f'{n:,} {word}' for word, n in sorted(counts.items()))}")
    telling = workload.telling_evidence
    hidden = len(workload.evidence) - len(gone) - min(len(telling), MAX_EVIDENCE)
    if telling:
        yield _heading("evidence beyond the noise (no gate, no verdict)")
        yield _rows(telling[:MAX_EVIDENCE], width=width)
    if hidden > 0:
        yield Text(f"  {plural(hidden, 'further metric')} without a gate; -f html or json lists them", style="dim")


def _finding(finding: FindingView) -> RenderableType:
    mark = finding.standing
    about = f"  [{finding.phase}, {mark}, {finding.confidence} confidence]"
    lines = [Text.assemble((finding.title, "bold"), (about, "dim"))]
    if finding.location or finding.subject:
        lines.append(Text(" ".join(filter(None, (finding.subject, finding.location and f"at {finding.location}")))))
    if finding.evidence:
        lines.append(Text(", ".join(f"{name} {value}" for name, value in finding.evidence)))
    lines.append(Text(f"→ {finding.advice}"))
    if finding.docs:
        lines.append(Text(f"see {finding.docs}"))
    return _bullet(Text("\n").join(lines))


def _kernels(workload: WorkloadView) -> Iterable[RenderableType]:
    if not workload.kernels:
        return
    yield _heading("kernels that changed, per step")
    for kernel in workload.kernels[:MAX_KERNELS]:
        launches = f"{kernel.launches[0]} → {kernel.launches[1]} launches"
        place = f", at {kernel.location}" if kernel.location else ""
        times = f"{kernel.time[0]} → {kernel.time[1]}"
        yield _bullet(f"{kernel.change}: {kernel.name} in {kernel.phase}: {times} ({kernel.delta}), {launches}{place}")
    if len(workload.kernels) > MAX_KERNELS:
        yield _bullet(f"{len(workload.kernels) - MAX_KERNELS:,} more; -f html or json lists them")


def _footer(context: ReportContext) -> Iterable[RenderableType]:
    if context.reproduce:
        yield _heading("reproduce")
        yield from (Text(f"  {clean(command, limit=2000)}") for command in context.reproduce)
    for link in context.links:
        yield Text(f"{clean(link.title)}: {clean(link.url, limit=2000)}")


def _heading(text: str) -> RenderableType:
    return Padding(Text(text, style="bold"), (1, 0, 0, 0))


def _bullet(text: str | Text, mark: str = "•") -> RenderableType:
    """Text that hangs under its mark when it wraps."""
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(Text(f"  {mark}"), Text(text) if isinstance(text, str) else text)
    return grid


def _note(text: str, *, spoils: bool) -> Text:
    return Text(f"  {'spoiled' if spoils else 'note'}: {text}", style="yellow" if spoils else "dim")
