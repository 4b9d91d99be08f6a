"""Phases that follow each other and never nest, for callers that learn where the next one begins."""

from __future__ import annotations

from perfci.phases import marks


class FlatPhases:
    """At most one phase is marked at a time, on the calling thread."""

    def __init__(self) -> None:
        self._shown: str | None = None

    def show(self, name: str | None) -> None:
        """From here on it is ``name``; None: no phase. The phase that is shown already goes on."""
        if name != self._shown:
            if self._shown is not None:
                marks.phase(self._shown).__exit__(None, None, None)
            self._shown = name
            if name is not None:
                marks.phase(name).__enter__()
