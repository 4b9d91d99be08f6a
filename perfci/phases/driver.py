"""The course of one measured launch: warm-up, unprofiled window, capture window, sidecar."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from typing import Any

from perfci.phases import marks, process, record
from perfci.phases.clocks import Clock, HostClock, window_clock
from perfci.phases.collectors import CaptureError, Collector, open_collector
from perfci.phases.meters import EnergyMeter, InstructionMeter
from perfci.phases.plan import Plan, is_steady

DROPPED_RANGE = "perfci_dropped"
"""Marks a step range that is no whole step after all (the data ended, the loop was left): readers must skip it."""

KILLED = "the loop did not reach its end: the process was killed or left without a word"

WARMUP, WALL, CAPTURE, DONE = "warmup", "wall", "capture", "done"


class Window:
    """Step times of one part of the launch: pairs of instants while it runs, nanoseconds once it is closed."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.step_wall_ns: list[int] = []
        self.samples = 0
        self._instants: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.step_wall_ns) + len(self._instants)

    def add(self, start: Any, end: Any) -> None:
        self._instants.append((start, end))

    def read(self) -> None:
        """Turn instants into nanoseconds. The caller has synchronised."""
        self.step_wall_ns += [self.clock.elapsed_ns(start, end) for start, end in self._instants]
        self._instants = []


class Driver:
    """Leads a training loop through the plan. Whoever iterates calls, on the training thread, ``enter`` before a pass
    over the data, ``begin_step`` and ``end_step`` (or ``drop_step``) around each step, ``leave`` after the pass, and
    stops when ``finished``. Who leads it unasked sets ``give_way``, which must let go and call ``abandon``.

    `phases.loop` is the usual caller; callbacks of training frameworks may be others.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.pid = os.getpid()
        self.state = WARMUP
        self.windows: dict[str, Window] = {WARMUP: Window(HostClock())}
        self.steady = False
        self.losses: list[Any] = []
        self.first_step_ns: int | None = None
        self.energy_uj: int | None = None
        self.instructions: int | None = None
        self.marks_kind = "none"
        self.reason = KILLED
        self.in_step = False
        self.give_way: Callable[[], None] | None = None
        self._start: Any = None
        self._loss: Any = None
        self._samples = 0
        self._collector: Collector | None = None
        self._meters: tuple[EnergyMeter, InstructionMeter] | None = None
        self._entered = False
        self._stepped = False
        self._refused = False

    @property
    def finished(self) -> bool:
        """True when every asked step was measured and the sidecar is complete."""
        return self.state == DONE

    def enter(self) -> None:
        """A pass over the data begins. Once finished, a further pass ends the process (exit code 0): nothing more is to
        be measured, and epochs without steps would only cost time."""
        if self.finished:
            print("perfci: all steps are measured; the next epoch is not run", file=sys.stderr)
            raise SystemExit(0)
        if self._entered:
            return
        self._entered = True
        atexit.register(self._at_exit)
        record.write(self, "aborted")  # so that a killed process is told from one that never reached the loop
        if self.plan.warmup == 0:
            self._open_wall()

    def begin_step(self) -> None:
        """A step begins, with the fetch of its data."""
        self.in_step = True
        self._start = self.windows[self.state].clock.now()
        marks.step().__enter__()

    def end_step(self) -> None:
        """The step is whole."""
        self.close_step()
        self.advance()

    def close_step(self) -> None:
        """The step is whole, but not every rank may have got here: its time is taken, and ``advance``, at which ranks
        meet, follows before the next step begins."""
        marks.step().__exit__(None, None, None)
        self.in_step = False
        if self.state == WARMUP:
            process.synchronize()  # true times of single steps, to see when they are steady
        window = self.windows[self.state]
        window.add(self._start, window.clock.now())
        window.samples += self._samples
        self._samples = 0
        self._keep_loss()
        self.saw_first_step()

    def saw_first_step(self) -> None:
        """The first step of the process is done (a caller may learn this before it counts steps)."""
        if not self._stepped:
            self._stepped = True
            self.first_step_ns = process.since_process_start_ns()

    def drop_step(self) -> None:
        """The step that was begun is not one: count nothing."""
        with marks.phase(DROPPED_RANGE):
            pass
        marks.step().__exit__(None, None, None)
        self.in_step = False
        self._loss, self._samples = None, 0

    def leave(self, reason: str) -> None:
        """The pass over the data is over, whatever the cause; ``reason`` is told when no further pass follows."""
        if self.in_step:
            self.drop_step()
        if not self.finished and not self._refused:
            asked, seen = self._next_goal()
            if self.state == WARMUP:
                self.reason = f"{reason} after {seen} warm-up steps (at least {asked}, then until steady)"
            else:
                self.reason = f"{reason} after {seen} of {asked} {self.state} steps"
            record.write(self, "short")

    def abandon(self) -> None:
        """Another driver takes over: what was seen so far counts for nothing. SystemExit when the profiler runs
        already, since it cannot be started twice."""
        if self.in_step:
            self.drop_step()
        atexit.unregister(self._at_exit)
        self._refused = True
        if self.state == WALL and self._meters is not None:
            for meter in self._meters:
                meter.stop()
        if self.state == CAPTURE:
            assert self._collector is not None
            marks.deactivate()
            self._collector.stop()
            self.reason = "phases.loop began when autophase had begun the capture: set autophase to false"
            record.write(self, "aborted")
            print(f"perfci: {self.reason}", file=sys.stderr)
            raise SystemExit(1)

    def log_loss(self, loss: Any) -> None:
        """Remember the loss of the step under way; the last one of a step counts. Never waits for the GPU."""
        self._loss = loss.detach() if hasattr(loss, "detach") else loss

    def add_samples(self, count: int) -> None:
        """Count samples (or tokens) that the step under way works on."""
        self._samples += count

    def _keep_loss(self) -> None:
        # A copy: the program may overwrite the tensor (CUDA graphs do). It is made between two steps, outside of every
        # range and of every timed step.
        loss, self._loss = self._loss, None
        self.losses.append(loss.clone() if hasattr(loss, "clone") else loss)

    def _next_goal(self) -> tuple[int, int]:
        asked = {WARMUP: self.plan.warmup, WALL: self.plan.wall, CAPTURE: self.plan.capture}[self.state]
        return asked, len(self.windows[self.state])

    def advance(self) -> None:
        """Go on in the plan after a closed step."""
        asked, seen = self._next_goal()
        if self.state == WARMUP:
            window = self.windows[WARMUP]
            window.read()
            self.steady = is_steady(window.step_wall_ns)
            # Ranks must agree on every step, so with several of them the warm-up is exactly the asked one.
            cap = asked if process.rank_and_world()[1] > 1 else self.plan.warmup_cap
            if seen >= cap or (seen >= asked and self.steady):
                self._open_wall()
        elif seen < asked:
            return
        elif self.state == WALL:
            self._close_wall()
            self._open_capture()
        else:
            self._finish()

    def _open_wall(self) -> None:
        if self.plan.wall == 0:
            self._open_capture()
            return
        gpu = process.gpu() or {}
        process.synchronize()
        self.windows[WALL] = Window(window_clock())
        self.state = WALL
        self._meters = EnergyMeter(gpu.get("uuid")), InstructionMeter()

    def _close_wall(self) -> None:
        process.synchronize()
        assert self._meters is not None
        energy, instructions = self._meters
        self.instructions = instructions.stop()
        self.energy_uj = energy.stop()
        self.windows[WALL].read()

    def _open_capture(self) -> None:
        if self.plan.capture == 0:
            self._finish()
            return
        try:
            self._collector = open_collector(self.plan.collector, torch_trace=record.with_rank(self.plan.torch_trace))
        except CaptureError as error:
            self.reason = str(error)
            self._refused = True
            record.write(self, "aborted")
            print(f"perfci: {error}", file=sys.stderr)
            raise SystemExit(1) from error
        assert self._collector is not None
        process.synchronize()
        process.barrier()
        self.marks_kind = self._collector.marks.kind
        self.windows[CAPTURE] = Window(window_clock())
        self.state = CAPTURE
        self._collector.start()
        marks.activate(self._collector.marks)

    def _finish(self) -> None:
        process.synchronize()
        if self._collector is not None:
            process.barrier()
            marks.deactivate()
            self._collector.stop()
            self.windows[CAPTURE].read()
            self._collector.save()
        self.state = DONE
        self.reason = ""
        record.write(self, "complete")
        process.end_data_workers_soon()

    def _at_exit(self) -> None:
        if self.finished or self._refused or os.getpid() != self.pid:
            return
        marks.deactivate()
        if self.state == CAPTURE and self._collector is not None:
            self._collector.stop()  # torch.profiler crashes when it is still on as the interpreter goes
        error = getattr(sys, "last_value", None)
        if error is not None:
            self.reason = f"{type(error).__name__}: {error}"[:500]
            record.write(self, "aborted")
        elif self.in_step:
            self.reason = "the process left the loop in the middle of a step"
            record.write(self, "aborted")
