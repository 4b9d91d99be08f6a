"""From signs of training (a fetch, a copy to the GPU, a forward pass, …) to steps and phases (docs/autophase.md).

Knows nothing of torch; `hooks` gives the signs. All of them come from one thread, the one that trains.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import Callable
from typing import Any

from perfci.phases import process, record
from perfci.phases.driver import WARMUP, Driver
from perfci.phases.flat import FlatPhases

DATA, H2D, FORWARD, BACKWARD, OPTIMIZER, VALIDATION = "data", "h2d", "forward", "backward", "optimizer", "validation"

_INNER = ""
_PATIENCE = 100
_KEPT_SOURCES = 8
_REGULAR = 2


class MeasurementDone(SystemExit):
    """All steps are measured: ends the script as ``sys.exit(0)`` does."""


class Tracker:
    """Finds the steps of one training process and leads them through the plan of its `Driver`.

    A *source* is what a batch is fetched from (the dataset of a DataLoader, and whether gradients were on). Sources
    whose batches led to an optimizer step are training data; batches of others are validation.

    First it learns, from the first optimizer step to the second step of any optimizer. If that cycle fetched training
    data, a step begins with the first fetch after an optimizer step. Otherwise it begins with the first sign of
    training after a step of the *closing* optimizer, the one that stepped last in the cycle.
    """

    def __init__(self, driver: Driver, *, settled: Callable[[], None] = lambda: None) -> None:
        self.driver = driver
        atexit.register(self.at_exit)
        self._settled: Callable[[], None] | None = settled
        self._open: list[str] = []  # phases, innermost last; _INNER for those that belong to the one around them
        self._show = FlatPhases().show
        self._by_fetch: bool | None = None  # None while learning
        self._cycle: list[weakref.ref[Any]] = []
        self._closing: weakref.ref[Any] | None = None
        self._sources: dict[tuple[int, bool], Any] = {}  # the dataset is kept so that its id stays its own
        self._fetched: dict[tuple[int, bool], Any] = {}  # since the last optimizer step
        self._viewed: set[tuple[int, bool]] = set()  # of these: batches were only looked at
        self._viewing = False  # a forward pass without gradients, or in eval mode, since the last fetch
        self._suspects: set[tuple[int, bool]] = set()
        self._saw_forward = self._saw_backward = False
        self._implied = self._lingers = False
        self._pending = False  # an optimizer step that may end the step was made
        self._exhausted = False  # the step's last fetch found no more data
        self._progressed = self._looked = False  # since the step began: forward or backward with gradients; without
        self._glanced = False  # a forward pass in training mode without gradients, since the last closing step
        self._glances = 0  # cycles in a row that had one
        self._validation: str | None = None
        self._validated = False  # the validation's last fetch found no more data
        self._owed = False
        self._refusals = 0
        self._begun = False
        self.optimizer_steps = 0

    # Steps

    def _begin(self) -> None:
        if self._owed:
            self._advance()
        self._open = []  # exceptions that the script handled may have left some
        self._show(None)
        self.driver.enter()
        if not self._begun:
            self._begun = True
            atexit.unregister(self.at_exit)  # before the driver's, which says what it finds then
            atexit.register(self.at_exit)
        if self._settled is not None and self.driver.state != WARMUP:
            self._settled()
            self._settled = None
        self._pending = self._exhausted = self._progressed = self._looked = False
        self.driver.begin_step()

    def _end(self) -> None:
        self._show(None)
        self.driver.close_step()
        self._owed = True

    def _advance(self) -> None:
        self._owed = False
        self.driver.advance()
        if self.driver.finished:
            self.check()

    def _drop(self) -> None:
        self._show(None)
        self.driver.drop_step()
        self._exhausted = False

    def check(self) -> None:
        """Called before every sign: once all is measured, the script must end."""
        if not self.driver.finished:
            return
        if self._refusals == 0:
            print("perfci: all steps are measured; the script is ended here", file=sys.stderr)
        self._refusals += 1
        if self._refusals > _PATIENCE:  # it catches SystemExit and goes on
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
        raise MeasurementDone(0)

    def _work(self, *, begins: bool) -> None:
        """Training goes on; ``begins`` when such a sign may begin a step."""
        self._leave_validation()
        if not begins:
            return
        if self.driver.in_step:
            if self._pending:
                self._end()
            elif self._by_fetch and (self._exhausted or (self._looked and not self._progressed)):
                self._drop()  # the rest of an epoch, or a pass over the training data without gradients
            else:
                return
        elif not (self._pending or self._by_fetch):
            return
        self._begin()

    def _validate(self, why: str) -> None:
        if self.driver.in_step:
            if self._pending:
                self._end()
                if process.rank_and_world()[1] == 1:  # other ranks may not validate: meet them at the next step
                    self._advance()
            elif self._exhausted:
                self._drop()
        self._validation, self._validated = why, False
        self._show(VALIDATION)

    def _leave_validation(self) -> None:
        if self._validation is not None:
            self._validation = None
            self._show(None)

    # Phases: flat; only an optimizer step (with a closure) is interrupted by others

    def _enter(self, name: str) -> None:
        self._open.append(name)
        self._show(name)

    def _exit(self) -> None:
        if not self._open:  # opened before the measurement began, or cleared since
            return
        name = self._open.pop()
        if name == _INNER:
            return
        if name == FORWARD:
            lingers = self._lingers
        else:
            lingers = self._implied and (name == H2D or (name == DATA and not self._exhausted)) and not self._pending
        if lingers and self.driver.in_step:
            self._show(FORWARD)  # the loss is computed, up to the next sign
        else:
            self._show(self._open[-1] if self._open else None)

    def _within(self, name: str) -> bool:
        """Whether a phase that would begin now belongs to an open one. If so it is noted, for its end."""
        inner = bool(self._open) and (self._open[-1] != OPTIMIZER or name == OPTIMIZER)
        if inner:
            self._open.append(_INNER)
        return inner

    @property
    def at_top(self) -> bool:
        """Whether a forward pass that begins now is an outermost one."""
        return not self._open or self._open[-1] == OPTIMIZER

    @property
    def _begins(self) -> bool:
        return self._by_fetch is False

    @property
    def _unfinished(self) -> bool:
        """Whether a step is under way whose batch was fetched before a validation began."""
        return bool(self._by_fetch) and self.driver.in_step and not self._pending

    # Signs

    def fetch_begins(self, dataset: Any, *, grad: bool) -> None:
        """The next batch of ``dataset`` is asked for."""
        self.check()
        if self._within(DATA):
            return
        source = (id(dataset), grad)
        if self._viewing and source in self._fetched:
            self._viewed.add(source)
        self._viewing = False
        self._fetched[source] = dataset
        if self._by_fetch is None or source in self._sources:
            self._work(begins=bool(self._by_fetch))
            self._enter(DATA)
        else:
            self._validate("fetch")
            self._open.append(_INNER)

    def fetch_ends(self, *, found: bool) -> None:
        """The batch is here, or there was none left."""
        if not found and self._by_fetch and self._open[-1:] == [DATA]:
            self._exhausted = True
        if not found and self._open == [_INNER]:
            self._validated = True
        self._exit()

    def transfer_begins(self, *, grad: bool) -> None:
        """A tensor is about to be copied from the CPU to another device."""
        self.check()
        if self._within(H2D):
            return
        over = grad and (self._validation == "no_grad" or (self._validated and self._unfinished))
        if self._validation is not None and not over:
            self._open.append(_INNER)
            return
        self._work(begins=self._begins and grad)
        self._enter(H2D)

    def forward_begins(self, *, grad: bool, training: bool, trained: Callable[[], bool]) -> None:
        """An outermost module is called. ``training`` is its mode; ``trained()`` whether an optimizer knows its
        parameters (asked only when needed)."""
        self.check()
        if self._within(FORWARD):
            return
        phase = FORWARD
        self._viewing = self._viewing or not (grad and training)
        if self._begins and not grad and not training:
            self._viewed.update(self._fetched)  # also where a validation takes but one batch
        usual = training and (self._by_fetch or self._glances >= _REGULAR)  # a GAN's generator, pseudo-labels
        between = not grad and self._by_fetch is not None and self._pending and trained()
        self._glanced = self._glanced or (between and training)
        if grad:
            over = self._validation != "fetch" or (training and (self._begins or self._unfinished))
            if self._validation is not None and not over:
                self._open.append(_INNER)
                return
            self._saw_forward = True
            self._work(begins=self._begins)
            self._progressed = True
        elif self._validation is not None and not (self._validation == "no_grad" and between and usual):
            self._open.append(_INNER)
            return
        elif between and not usual:
            if not self._by_fetch:
                self._validate("no_grad")
                self._open.append(_INNER)
                return
            phase = VALIDATION
        else:
            self._looked = self._looked or (not self._progressed and trained())
            self._work(begins=self._begins)
        self._lingers = grad and (training or not self._pending)
        self._enter(phase)

    def backward_begins(self, loss: Any) -> None:
        """Gradients are about to be computed. ``loss`` is the scalar they are of, or None."""
        self.check()
        if self._within(BACKWARD):
            return
        self._saw_backward = True
        self._viewing = False
        self._work(begins=self._begins)
        self._progressed = True
        self._enter(BACKWARD)
        if loss is not None and self.driver.in_step:
            self.driver.log_loss(loss)

    def optimizer_begins(self) -> None:
        """An optimizer is about to step."""
        self.check()
        if self._within(OPTIMIZER):
            return
        self._work(begins=self._begins)
        self._progressed = True
        self._enter(OPTIMIZER)

    def optimizer_ends(self, optimizer: Any) -> None:
        """An optimizer has stepped, or a gradient scaler decided that it must not."""
        self.optimizer_steps += 1
        self._exit()
        self._learn_sources()
        if self._by_fetch is None:
            self._learn_cycle(optimizer)
        elif self._by_fetch:
            self._pending = True
        else:
            assert self._closing is not None
            closing = self._closing()
            if closing is None:  # a new optimizer took its place
                self._closing = weakref.ref(optimizer)
            if closing is None or optimizer is closing:
                self._pending = True
                self._glances = self._glances + 1 if self._glanced else 0
                self._glanced = False

    def scaler_begins(self) -> None:
        """A gradient scaler works on the gradients: part of the optimizer phase."""
        self.check()
        if not self._within(OPTIMIZER):
            self._work(begins=False)
            self._enter(OPTIMIZER)

    def phase_ends(self) -> None:
        """The transfer, forward pass, backward pass or scaler call that began last is over."""
        self._exit()

    # Learning

    def _learn_sources(self) -> None:
        new = {source: dataset for source, dataset in self._fetched.items() if source not in self._sources}
        suspects = set()
        for source, dataset in new.items():
            if source in self._viewed:
                continue
            if self._by_fetch is None or source in self._suspects:
                if len(self._sources) >= _KEPT_SOURCES:
                    del self._sources[next(iter(self._sources))]
                self._sources[source] = dataset
                if self._by_fetch is False:
                    self._by_fetch = True
            else:
                suspects.add(source)  # one step is no proof: a batch fetched ahead may have been waiting
        if self._fetched:  # several optimizer steps on one batch say nothing new
            self._suspects = suspects
        self._fetched, self._viewed = {}, set()

    def _learn_cycle(self, optimizer: Any) -> None:
        if not any(known() is optimizer for known in self._cycle):
            self._cycle.append(weakref.ref(optimizer))
            return
        self._by_fetch = bool(self._sources)
        self._closing = self._cycle[-1]
        self._pending = self._by_fetch or self._closing() is optimizer
        self._implied = self._saw_backward and not self._saw_forward

    # The end

    def give_way(self) -> None:
        """The script leads its loop itself from here on."""
        atexit.unregister(self.at_exit)
        self._show(None)
        self.driver.abandon()

    def at_exit(self) -> None:
        """Say in the sidecar why the measurement is not whole, unless an error or the driver says it already."""
        driver = self.driver
        if driver.finished or driver.pid != os.getpid() or getattr(sys, "last_value", None) is not None:
            return
        if self._begun:
            driver.leave("the script ended")
        else:
            driver.reason = "the script ended before perfci had seen two optimizer steps and the start of a third"
            record.write(driver, "short")
