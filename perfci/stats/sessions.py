"""The ledger of interleaved sessions: what share of the declared error each repetition of a comparison may spend."""

from collections import Counter
from collections.abc import Sequence

from perfci.model.run import Run

FIRST_SHARE = 0.9
"""Share of the first session; the k-th has ``(1 - FIRST_SHARE) * 2 ** (1 - k)``: all together at most 1."""
LAST_HALVED = 29
"""The last session with half the share of the one before. Halved for ever, the share would soon be too small for a
number; those that follow divide what is left after this one, slowly, so that the sum stays."""

LEAST_PERCENT_SHOWN = 0.01
LEAST_LAUNCHES = 2
"""Fewest usable launches of a side that may decide a noisy gate."""


def share_of(session: int | None) -> float:
    """Share of the error rate that the ``session``-th session (from 1) may spend. None, that is runs stored before
    sessions were counted or not made in turns: 1, as they were judged then."""
    if session is None:
        return 1.0
    if session < 1:
        raise ValueError(f"sessions count from 1, got {session}")
    if session == 1:
        return FIRST_SHARE
    share = (1 - FIRST_SHARE) * 2.0 ** (1 - min(session, LAST_HALVED))
    late = session - LAST_HALVED
    return share if late <= 0 else share / (late * (late + 1))  # 1/2 + 1/6 + 1/12 + … = 1


def share_text(session: int) -> str:
    """The share of a session in words: ``5 % of the error rate``."""
    percent = 100 * share_of(session)
    number = f"{percent:.3g}" if percent >= LEAST_PERCENT_SHOWN else f"less than {LEAST_PERCENT_SHOWN:g}"
    return f"{number} % of the error rate"


def next_session(baseline: Sequence[Run], candidate: Sequence[Run], *, like: Run) -> int:
    """The number (from 1) of the session that ``like`` is a launch of, after the stored runs of both revisions.

    Counted are other sessions of the workload and comparability key of ``like`` in which a noisy gate could have been
    decided: with usable launches of both sides, and of one at least two. With one launch a side only exact counts are
    decided, which spend no error; with two of the candidate an accepted level can be judged. Equal when the sides are
    swapped.
    """
    left, right = (
        Counter(
            run.launch.schedule
            for run in runs
            if run.launch.schedule not in ("", like.launch.schedule)
            and run.workload == like.workload
            and run.environment.key == like.environment.key
            and not run.spoiled
        )
        for runs in (baseline, candidate)
    )
    return 1 + sum(max(left[schedule], right[schedule]) >= LEAST_LAUNCHES for schedule in left.keys() & right.keys())
