"""Iteration under a plan; plain iteration without one."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

from perfci.phases import marks

if TYPE_CHECKING:
    from perfci.phases.driver import Driver

_Item = TypeVar("_Item")

_driver: Driver | None = None


def current_driver() -> Driver | None:
    """The driver of this process once a loop was entered under perfci, else None."""
    return _driver if _driver is not None and _driver.pid == os.getpid() else None


def driver_for(*, warmup: int | None = None, wall: int | None = None, steps: int | None = None) -> Driver | None:
    """The one driver of this process, made at the first call; None outside perfci. The first caller's wishes count,
    but a caller that leads the driver unasked (autophase) gives way to the next one, for which a new driver is made."""
    global _driver  # noqa: PLW0603  (one launch, one plan)
    found = current_driver()
    if found is not None and found.give_way is not None and not found.finished:
        found.give_way()
        found = None
    if found is None and os.environ.get("PERFCI_SIDECAR"):
        from perfci.phases.driver import Driver  # noqa: PLC0415  (costs nothing outside a measurement)
        from perfci.phases.plan import plan_from  # noqa: PLC0415

        plan = plan_from(os.environ, warmup=warmup, wall=wall, capture=steps)
        found = _driver = None if plan is None else Driver(plan)
    return found


class Loop(Generic[_Item]):
    """See `perfci.phases.loop`."""

    def __init__(
        self, iterable: Iterable[_Item], *, warmup: int | None, wall: int | None, steps: int | None, accumulate: int
    ) -> None:
        if accumulate < 1:
            raise ValueError(f"accumulate must be at least 1, got {accumulate}")
        self._iterable = iterable
        self._wishes = {"warmup": warmup, "wall": wall, "steps": steps}
        self._accumulate = accumulate

    def __len__(self) -> int:
        return len(self._iterable)  # type: ignore[arg-type]  # TypeError as the iterable itself raises it

    def __iter__(self) -> Iterator[_Item]:
        driver = driver_for(**self._wishes)
        if driver is not None and not driver.in_step:  # a loop inside a step belongs to the step
            return self._driven(driver)
        return iter(self._iterable) if driver is not None or not marks.listening() else self._marked()

    def _known_length(self) -> int | None:
        try:
            return len(self._iterable)  # type: ignore[arg-type]
        except TypeError:
            return None

    def _driven(self, driver: Driver) -> Generator[_Item, None, None]:
        driver.enter()
        reason = "the loop was left"
        try:
            iterator = iter(self._iterable)
            left = self._known_length()
            while not driver.finished:
                if left is not None and left < self._accumulate:  # no whole step is to come: do not begin one
                    yield from iterator
                    reason = "the data ended"
                    return
                driver.begin_step()
                for _ in range(self._accumulate):
                    with marks.phase(marks.DATA):
                        try:
                            item = next(iterator)
                        except StopIteration:
                            reason = "the data ended"
                            return
                    yield item
                driver.end_step()
                left = None if left is None else left - self._accumulate
        finally:
            driver.leave(reason)

    def _marked(self) -> Generator[_Item, None, None]:
        """Steps and their data marked, for a program profiled by hand."""
        iterator = iter(self._iterable)
        left = self._known_length()
        while left is None or left >= self._accumulate:
            with marks.step():
                for _ in range(self._accumulate):
                    with marks.phase(marks.DATA):
                        try:
                            item = next(iterator)
                        except StopIteration:
                            return
                    yield item
            left = None if left is None else left - self._accumulate
        yield from iterator
