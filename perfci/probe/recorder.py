"""Counts events by the place that asked for them and by the phase that was open."""

from __future__ import annotations

import sys
from threading import get_ident
from typing import Any

from perfci.phases.marks import STEP
from perfci.probe.frames import Place, UserCode

SCHEMA_VERSION = 1
MAX_PLACES = 20_000
"""Places kept apart. Events at later ones still count, as events of no known place."""

_Key = tuple[str, str, tuple[str, ...], "Place | None"]


class Recorder:
    """Notes events inside the steps of the thread that made it, and those of autograd's threads on its behalf."""

    def __init__(self, code: UserCode) -> None:
        self._code = code
        self._thread = get_ident()
        self._open: list[str] = []
        self._steps = 0
        self._counts: dict[_Key, list[int]] = {}

    def push(self, name: str) -> None:
        """A range was opened."""
        if get_ident() == self._thread:
            self._open.append(name)
            self._steps += name == STEP

    def pop(self) -> None:
        """The innermost range was closed."""
        if get_ident() == self._thread:
            self._open.pop()

    def note(self, kind: str, name: str, *, moved_bytes: int = 0) -> None:
        """Count an event that the code on the stack asked for; nothing outside of a step.

        On another thread (autograd's, for a backward on a GPU) it is the training thread that asked.
        """
        if STEP not in self._open:
            return
        phases = tuple(reversed(self._open[self._open.index(STEP) + 1 :]))
        own = get_ident() == self._thread
        frame = sys._getframe(1) if own else sys._current_frames().get(self._thread)
        key = (kind, name, phases, self._code.place(frame))
        if key not in self._counts and len(self._counts) >= MAX_PLACES:
            key = (kind, name, phases, None)
        found = self._counts.setdefault(key, [0, 0, 0, 0])
        found[0] += 1
        found[1] += moved_bytes
        if found[3] != self._steps:  # the first of its kind in this step
            found[2] += 1
            found[3] = self._steps

    def content(self) -> dict[str, Any]:
        """What was noted, as JSON has it (docs/locations.md)."""
        return {
            "schema_version": SCHEMA_VERSION,
            "steps": self._steps,
            "locations": [
                {
                    "kind": kind,
                    "name": name,
                    "phases": list(phases),
                    "file": None if place is None else place[0],
                    "line": 0 if place is None else place[1],
                    "function": "" if place is None else place[2],
                    "count": count,
                    "bytes": moved_bytes,
                    "steps": steps,
                }
                for (kind, name, phases, place), (count, moved_bytes, steps, _) in self._counts.items()
            ],
        }
