"""The training loop of a framework, seen from its callbacks: steps and phases under a plan, or marks alone."""

from __future__ import annotations

from typing import Any

from perfci.phases import driver_for, marks
from perfci.phases.flat import FlatPhases


class FrameworkLoop:
    """Leads a loop that somebody else iterates. Steps never overlap; a call that does not fit is ignored.

    Under perfci's runner it drives the plan; profiled by hand it marks; otherwise it costs next to nothing.
    """

    def __init__(self) -> None:
        self._driver = driver_for()
        self._in_step = False
        self.show = FlatPhases().show

    @property
    def finished(self) -> bool:
        """True when every asked step was measured: the framework should stop."""
        return self._driver is not None and self._driver.finished

    def enter(self) -> None:
        """Training begins. SystemExit when an earlier training of this process was measured to its end."""
        if self._driver is not None:
            self._driver.enter()

    def begin(self) -> None:
        """A step begins with the fetch of its data."""
        if self._in_step or self.finished:
            return
        self._in_step = True
        if self._driver is not None:
            self._driver.begin_step()
        else:
            marks.step().__enter__()
        self.show(marks.DATA)

    def end(self) -> None:
        """The step is whole."""
        self.show(None)
        if not self._in_step:
            return
        self._in_step = False
        if self._driver is not None:
            self._driver.end_step()
        else:
            marks.step().__exit__(None, None, None)

    def drop(self) -> None:
        """What began is no step: the data ended, or something else came first."""
        self.show(None)
        if not self._in_step:
            return
        self._in_step = False
        if self._driver is not None:
            self._driver.drop_step()
        else:
            marks.step().__exit__(None, None, None)

    def leave(self, reason: str) -> None:
        """Training is over; ``reason`` is told when steps are missing."""
        self.drop()
        if self._driver is not None:
            self._driver.leave(reason)

    def saw_first_step(self) -> None:
        """The first step is done, whether or not it is counted."""
        if self._driver is not None:
            self._driver.saw_first_step()

    def log_loss(self, loss: Any) -> None:
        """The loss of the step under way; never waits for the GPU."""
        if self._driver is not None and self._in_step:
            self._driver.log_loss(loss)
