"""The time limit of a measured comparison ends it also before its first look and between spoiled launches."""

import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from heard import Heard
from run_builder import run

from perfci.capture.schedule import SideName, Slot
from perfci.errors import MeasurementError
from perfci.model.settings import JudgeSettings
from perfci.pipeline import interleave
from perfci.pipeline.interleave import MOST_ATTEMPTS, Session

LIMITS = JudgeSettings(min_launches=6, max_launches=12, max_minutes=30)


class MadeUp(Session):
    """A session whose launches take no time: ``minutes_gone`` says how long it has measured already."""

    def __init__(self, minutes_gone):
        workspace = SimpleNamespace(require_repository=lambda: None)
        began = time.monotonic() - 60 * minutes_gone
        super().__init__(
            workspace=workspace, store=None, limits=LIMITS, judge=lambda *_: (), progress=Heard(), _started_s=began
        )
        self.done = []

    def _forecast(self, workloads):
        pass

    def _prepare(self, workloads, sides):
        self.still_open = {workload.spec.name: workload for workload in workloads}

    def _launch_block(self, bench, sides, block):
        self.done.append(block)

    def _launch(self, bench, worktree, workload, slot):
        self.done.append(slot.side)
        return run({("step", "unprofiled_wall_ns"): 1e6}, spoiled=True)

    def _enough(self):
        return False


WORKLOAD = SimpleNamespace(spec=SimpleNamespace(name="tiny"))


@pytest.mark.parametrize(("minutes_gone", "blocks"), [(0, 6), (29, 6), (31, 1)])
def test_the_time_limit_holds_before_the_first_look(monkeypatch, minutes_gone, blocks):
    monkeypatch.setattr(interleave, "bench_for", lambda *_, **__: nullcontext())
    side = SimpleNamespace(notes=())
    monkeypatch.setattr(interleave, "worktrees", lambda *_: nullcontext((side, side)))
    made = MadeUp(minutes_gone)
    revision = SimpleNamespace(identity="x", label="x")
    made.measure([WORKLOAD], revision, revision, lock_clocks=False)
    assert made.done == list(range(blocks))
    assert ("stopped: 30 min are over" in made.progress.lines) == (minutes_gone > 30)


@pytest.mark.parametrize(("minutes_gone", "attempts"), [(0, MOST_ATTEMPTS), (31, 1)])
def test_a_spoiled_pair_is_not_launched_again_when_the_time_is_over(minutes_gone, attempts):
    made = MadeUp(minutes_gone)
    pair = [Slot(workload="tiny", side=side, pair=4, position=0) for side in SideName]
    with pytest.raises(MeasurementError, match="every launch of pair 5 was spoiled: throttled"):
        made._launch_pair(None, dict.fromkeys(SideName), WORKLOAD, pair)
    assert len(made.done) == 2 * attempts


def test_both_launches_of_a_spoiled_pair_are_made_again_and_only_clean_ones_are_kept():
    class Disturbed(MadeUp):
        spoiled = (False, True, False, False)

        def _launch(self, bench, worktree, workload, slot):
            self.done.append((slot.side, slot.position))
            self._position = slot.position + 1
            at = len(self.done) - 1
            return run({("step", "unprofiled_wall_ns"): 1e6 + at}, spoiled=self.spoiled[at])

    made = Disturbed(0)
    pair = [Slot(workload="tiny", side=side, pair=4, position=0) for side in SideName]
    made._launch_pair(None, dict.fromkeys(SideName), WORKLOAD, pair)
    assert [side for side, _ in made.done[:2]] == [side for side, _ in made.done[2:]], "in the order of the first try"
    assert [position for _, position in made.done] == [0, 1, 2, 3]
    kept = [*made.measured.baseline["tiny"], *made.measured.candidate["tiny"]]
    assert sorted(one.series[0].values[0] for one in kept) == [1e6 + 2, 1e6 + 3]
    assert "pair 5 was spoiled and is launched again: throttled" in made.progress.lines[-1]
