"""The words of the reports for verdicts, reasons and metrics: one definition for every format."""

from collections.abc import Iterable
from enum import StrEnum

from perfci.model.comparison import KernelChangeKind, Reason, Row
from perfci.model.verdict import Verdict

MDE_LEGEND = "MDE: the smallest change these launches could have shown"
"""What readers of a table must know of its last column."""


class Status(StrEnum):
    """What a report shows for a row, a workload or the whole: the verdict, or ACCEPTED, or EVIDENCE (no gate).

    Declared from harmless to bad; the values of verdicts are those of Verdict.
    """

    EVIDENCE = "EVIDENCE"
    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    IMPROVEMENT = "IMPROVEMENT"
    ACCEPTED = "ACCEPTED"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_COMPARABLE = "NOT_COMPARABLE"
    NOT_MEASURED = "NOT_MEASURED"
    REGRESSION = "REGRESSION"

    @property
    def word(self) -> str:
        """The status in lower case words: ``not comparable``."""
        return self.value.lower().replace("_", " ")

    @property
    def severity(self) -> int:
        """Rank from harmless (0) to bad."""
        return list(Status).index(self)


def status_of(row: Row) -> Status:
    """The one definition of what a row shows.

    A row is ACCEPTED when its reason says so and its verdict no longer is REGRESSION: a label alone turns nothing
    green.
    """
    if row.verdict is None:
        return Status.EVIDENCE
    if row.reason is Reason.ACCEPTED and row.verdict is not Verdict.REGRESSION:
        return Status.ACCEPTED
    return Status(row.verdict.value)


REASON_TEXTS: dict[Reason, str] = {
    Reason.EXACT_EQUAL: "equal to the unit in every launch",
    Reason.EXACT_CHANGED: "an exact count changed; no statistics needed",
    Reason.WITHIN_BUDGET: "any change lies within the budget",
    Reason.BEYOND_BUDGET: "beyond the noise and beyond the budget",
    Reason.IMPROVED: "better beyond the noise and the budget",
    Reason.INTERVAL_TOO_WIDE: "the interval is too wide to decide",
    Reason.TOO_FEW_LAUNCHES: "too few launches to judge a noisy metric",
    Reason.BIMODAL: "launches of one side fall into two levels; their average means nothing",
    Reason.TREND: "launches of one side drift",
    Reason.NOT_INTERLEAVED: "the sides were not measured interleaved, so drift of the machine may look like a change",
    Reason.VANISHED: "measured on the baseline, missing on the candidate",
    Reason.NEW: "measured on the candidate only; nothing to compare with",
    Reason.NOT_MEASURED: "not measured on either side, although its gate asks for it",
    Reason.BASELINE_ZERO: "the baseline is zero, so a relative change is not computable",
    Reason.KEYS_DIFFER: "the environments differ",
    Reason.SPOILED: "launches were spoiled",
    Reason.STAND_IN_TOO_FAR: "the nearest measured ancestor of the baseline is too far away",
    Reason.NUMERICS_DIFFER: "the losses differ, so the sides did not do the same work",
    Reason.EVIDENCE_ONLY: "no gate; shown as evidence",
    Reason.CUMULATIVE: "small changes have added up beyond the budget",
    Reason.ACCEPTED: "a regression that was accepted",
}

FLAG_TEXTS: dict[str, str] = {
    "bimodal": "launches of one side fall into two levels",
    "trend": "launches of one side rise or fall with time",
    "outlier": "a launch lies far from the others",
    "trimmed": "wild launches were left out, and as many at the other end",
    "zero-variance": "all launches are equal; rounding stands in for the noise",
    "noise-floor": "few launches: known noise counts, as it is larger than the noise seen",
    "unpaired": "the launches of the sides have no partners; they are compared as two groups",
    "unpaired-left-out": "launches without a partner on the other side were left out",
    "not-interleaved": "one side was measured after the other; the interval allows for drift of the machine",
    "varies": "a count that differs between launches of one side; judged as noise",
    "zero-samples": "a launch measured 0, so no relative change is computable",
    "baseline-zero": "the baseline is 0, so no relative change is computable",
    "not-worse": "not decided, but harm beyond the budget is excluded",
    "pinned": "compared with the accepted level; the interval allows for drift of the machine since then",
    "window-differs": "counted over another number of steps than the accepted level",
}
"""What the flags of a row mean, in the order of a legend."""


def flag_legend(flags: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """The flags that appear, each once, with what they mean."""
    seen = set(flags)
    return tuple((flag, text) for flag, text in FLAG_TEXTS.items() if flag in seen)


KERNEL_CHANGE_TEXTS: dict[KernelChangeKind, str] = {
    KernelChangeKind.NEW: "new",
    KernelChangeKind.GONE: "gone",
    KernelChangeKind.SLOWER: "slower",
    KernelChangeKind.FASTER: "faster",
    KernelChangeKind.MORE_LAUNCHES: "more launches",
    KernelChangeKind.FEWER_LAUNCHES: "fewer launches",
}

_SUFFIXES = {"ns": "time", "uj": "", "ratio": "", "s": ""}
_CAPITALS = {"gpu": "GPU", "cpu": "CPU", "api": "API", "nccl": "NCCL", "h2d": "H2D", "d2h": "D2H", "d2d": "D2D"}


def metric_title(metric: str) -> str:
    """A metric's name as words for a sentence: ``gpu_busy_ns`` is ``GPU busy time``, ``sync_count`` ``sync count``."""
    words = metric.removesuffix("_per_s").split("_")
    if words[-1] in _SUFFIXES:
        last = words.pop()
        if _SUFFIXES[last] and words[0] != _SUFFIXES[last]:
            words.append(_SUFFIXES[last])
    return " ".join(_CAPITALS.get(word, word) for word in words)


def plural(count: int, noun: str) -> str:
    """``1 check``, ``2 checks``; ``1 launch``, ``2 launches``."""
    ending = "" if count == 1 else "es" if noun.endswith(("ch", "s")) else "s"
    return f"{count:,} {noun}{ending}"
