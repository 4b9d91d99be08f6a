"""The verdict algebra. One definition, used by every table, exit code and GitHub conclusion."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from perfci.errors import ExitCode


class Verdict(StrEnum):
    """What is known about one check. NOT_MEASURED and NOT_COMPARABLE are non-verdicts: never green."""

    PASS = "PASS"  # noqa: S105  (a verdict, not a password)
    IMPROVEMENT = "IMPROVEMENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    NOT_COMPARABLE = "NOT_COMPARABLE"
    NOT_MEASURED = "NOT_MEASURED"
    REGRESSION = "REGRESSION"


_SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}

_EXIT_CODES = {
    Verdict.PASS: ExitCode.OK,
    Verdict.IMPROVEMENT: ExitCode.OK,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
    Verdict.NOT_COMPARABLE: ExitCode.INCONCLUSIVE,
    Verdict.NOT_MEASURED: ExitCode.MEASUREMENT,
    Verdict.REGRESSION: ExitCode.REGRESSION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many checks ended in each verdict: the lossless join of verdicts.

    Adding tallies is commutative and associative with ``Tally.of(())`` as identity, and no count is ever dropped,
    so the worst verdict of
    a part is never hidden by the whole. The order of severity follows the exit codes: 3 > 5 > 4 > 0.
    """

    counts: tuple[tuple[Verdict, int], ...] = ()

    def __post_init__(self) -> None:
        verdicts = [verdict for verdict, _ in self.counts]
        if verdicts != sorted(set(verdicts), key=_SEVERITY.__getitem__) or any(n <= 0 for _, n in self.counts):
            raise ValueError(f"tally must list each verdict once, by severity, with a positive count: {self.counts}")

    @classmethod
    def of(cls, verdicts: Iterable[Verdict]) -> "Tally":
        """Count the given verdicts."""
        return cls._from_counter(Counter(verdicts))

    @classmethod
    def _from_counter(cls, counter: Counter[Verdict]) -> "Tally":
        return cls(counts=tuple((v, counter[v]) for v in Verdict if counter[v] > 0))

    def __add__(self, other: "Tally") -> "Tally":
        return self._from_counter(Counter(dict(self.counts)) + Counter(dict(other.counts)))

    def count(self, verdict: Verdict) -> int:
        """Number of checks with this verdict."""
        return dict(self.counts).get(verdict, 0)

    @property
    def worst(self) -> Verdict:
        """The one verdict that speaks for all. With nothing checked this is NOT_MEASURED: unknown is not green."""
        return self.counts[-1][0] if self.counts else Verdict.NOT_MEASURED


def exit_code_of(verdict: Verdict) -> ExitCode:
    """Exit code of a command whose worst check ended in ``verdict``."""
    return _EXIT_CODES[verdict]
