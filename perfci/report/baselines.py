"""What ``perfci baseline`` prints: what was accepted and what it changes, and the files that are there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfci.model.baseline import PinnedBaseline, PinnedLevel
from perfci.model.metrics import METRICS
from perfci.report.drawing import drawn
from perfci.report.names import PROSE_LIMIT, clean
from perfci.report.quantities import pair_texts, ratio_text, value_text
from perfci.report.ranking import metric_order, phase_order
from perfci.report.terminal import PLAIN_WIDTH
from perfci.report.wording import plural

SeriesKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedView:
    """A baseline that was just written to ``path``, and the one it replaces (None: there was none).

    ``gated`` are the (phase, metric) that can fail a comparison; ``left_out`` says which stored launches were not
    taken, and why.
    """

    path: str
    accepted: PinnedBaseline
    replaced: PinnedBaseline | None
    gated: frozenset[SeriesKey]
    left_out: tuple[str, ...] = ()


def accepted_text(views: Sequence[AcceptedView], *, width: int = PLAIN_WIDTH) -> str:
    """What was written, from which launches, and how its gated levels differ from those accepted before."""
    return drawn(Group(*(part for view in views for part in _accepted(view))), width=width, color=False)


def _accepted(view: AcceptedView) -> Iterable[RenderableType]:
    new, old = view.accepted, view.replaced
    launches = max(level.launches for level in new.levels)
    yield Text(
        f"wrote {clean(view.path, limit=PROSE_LIMIT)}: {clean(new.workload)} at {clean(new.revision.label)}, "
        f"{plural(launches, 'launch')} on {machine_of(new)}"
    )
    for text in view.left_out:
        yield Text(f"  left out: {clean(text, limit=PROSE_LIMIT)}")
    if launches == 1:
        yield Text("  one launch tells no spread: this file can judge counts only; 4 launches or more are better")
    elif not any(level.session_deviation is not None for level in new.levels if _key(level) in view.gated):
        yield Text("  noise between sessions is not known yet: 2% of drift are allowed to times until it is")
    if old is None:
        return
    yield Text(f"  replaces the level accepted on {old.accepted_on}: {clean(old.reason, limit=PROSE_LIMIT)}")
    table = _table("phase", "metric", "was", "is", "change")
    changes = list(_changes(old, new, view.gated))
    for change in changes:
        table.add_row(*change)
    yield table if changes else Text("  no gated level differs")


def _changes(old: PinnedBaseline, new: PinnedBaseline, gated: frozenset[SeriesKey]) -> Iterable[tuple[str, ...]]:
    sides = [{_key(level): level for level in one.levels if _key(level) in gated} for one in (old, new)]
    places = phase_order(phase for side in sides for phase, _ in side)
    for key in sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (places[key[0]], metric_order(key[1]))):
        was, now = (side.get(key) for side in sides)
        if was is not None and now is not None and (was.exact, was.location) == (now.exact, now.location):
            continue
        texts = pair_texts(
            None if was is None else was.location, None if now is None else now.location, METRICS[key[1]].unit
        )
        change = ""
        if was is not None and now is not None and was.location > 0:
            change = ("+" if now.location > was.location else "") + ratio_text(now.location / was.location - 1)
        yield (clean(key[0]), key[1], *texts, change)


def listed_text(found: Sequence[tuple[str, PinnedBaseline]], *, levels: bool, width: int = PLAIN_WIDTH) -> str:
    """One line for each baseline file (name, baseline), however long, with its ``levels`` in a table when wanted."""
    parts = []
    for name, pinned in found:
        head = _head(name, pinned)
        parts.append(drawn(head, width=max(width, head.cell_len), color=False))
        if levels:
            parts.append(drawn(_levels(pinned), width=width, color=False))
    return "".join(parts)


def _head(name: str, pinned: PinnedBaseline) -> Text:
    return Text(
        f"{clean(name)}: {clean(pinned.workload)} at {clean(pinned.revision.label)} on {machine_of(pinned)}, "
        f"{plural(len(pinned.levels), 'level')}, accepted {pinned.accepted_on}: "
        f"{clean(pinned.reason, limit=PROSE_LIMIT)}"
    )


def _levels(pinned: PinnedBaseline) -> Table:
    table = _table("phase", "metric", "level", "noise", "between sessions", "launches", "budget")
    places = phase_order(level.phase for level in pinned.levels)
    for level in sorted(pinned.levels, key=lambda level: (places[level.phase], metric_order(level.metric))):
        statistic = f" ({level.statistic.value})" if level.statistic is not None else ""
        table.add_row(
            clean(level.phase),
            level.metric + statistic,
            value_text(level.location, METRICS[level.metric].unit) if level.exact is None else str(level.exact),
            "exact" if level.exact is not None else ratio_text(level.deviation),
            ratio_text(level.session_deviation) if level.session_deviation is not None else "",
            str(level.launches),
            ratio_text(level.budget_ratio) if level.budget_ratio is not None else "",
        )
    return table


def machine_of(pinned: PinnedBaseline) -> str:
    """The GPU, else the CPU, that a baseline was measured on."""
    return clean(pinned.environment.get("gpu_model") or pinned.environment.get("cpu_model") or "unknown machine")


def _key(level: PinnedLevel) -> SeriesKey:
    return level.phase, level.metric


def _table(*titles: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for title in titles:
        table.add_column(title, overflow="fold", justify="left" if title in ("phase", "metric") else "right")
    return table
