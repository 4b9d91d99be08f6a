"""Finds reporters by entry points, built-ins included: group ``perfci.reporters``, name = the ``--format`` value."""

from importlib.metadata import EntryPoint, entry_points
from typing import Protocol

from perfci.errors import UsageError
from perfci.model.comparison import Comparison
from perfci.report.context import ReportContext

GROUP = "perfci.reporters"


class Reporter(Protocol):
    """Draws a comparison. A module with a ``render`` function is a reporter, so is any object with such a method.

    ``render`` is pure: equal input gives equal output; it reads no clock, environment, file outside its package or
    network. It must not fail on any valid Comparison, and must never show an INCONCLUSIVE, NOT_COMPARABLE or
    NOT_MEASURED check as good.
    """

    def render(self, comparison: Comparison, context: ReportContext) -> str | bytes:
        """The report; bytes where the format is not text."""
        ...


def names() -> tuple[str, ...]:
    """Names of all installed reporters, sorted."""
    return tuple(sorted({point.name for point in entry_points(group=GROUP)}))


def reporter(name: str) -> Reporter:
    """The reporter of that name. UsageError when there is none, when two packages claim the name, or when it cannot
    be loaded."""
    points = [*entry_points(group=GROUP, name=name)]
    distinct = {point.value for point in points}
    if not points:
        raise UsageError(f"there is no report format {name!r}", wanted="one of " + ", ".join(names()))
    if len(distinct) > 1:
        raise UsageError(
            f"several installed packages offer a report format {name!r}: {', '.join(sorted(distinct))}",
            todo="uninstall one of them",
        )
    return _load(points[0])


def _load(point: EntryPoint) -> Reporter:
    try:
        loaded = point.load()
    except (ImportError, AttributeError) as error:
        raise UsageError(
            f"the report format {point.name!r} cannot be loaded from {point.value}: {error}",
            todo="repair or uninstall the package that offers it",
        ) from error
    if not callable(getattr(loaded, "render", None)):
        raise UsageError(
            f"the report format {point.name!r} ({point.value}) has no render function",
            wanted="render(comparison, context) -> str | bytes",
        )
    return loaded  # type: ignore[no-any-return]  # entry points are untyped; render was checked above
