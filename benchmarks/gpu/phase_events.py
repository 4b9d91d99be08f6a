"""Times every phase of the captured window with CUDA events, in an unchanged training script (agree.py starts it).

    python phase_events.py train.py [ARGUMENT …]

Nothing is waited for inside the window: events are read as the process ends, and written to `events.json` beside the
sidecar, as [name, nanoseconds] in the order in which ranges closed. Without a GPU the host's clock stands in.
"""

import atexit
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import torch  # noqa: F401  (before the first mark, as in the training scripts)

from perfci.phases import marks
from perfci.phases.clocks import window_clock

spans: list[tuple[str, Any, Any]] = []


def listen(plain: marks.Marks) -> marks.Marks:
    """The given marks with an instant of the stream taken at both ends, around the range itself."""
    clock = window_clock()
    opened: list[tuple[str, Any]] = []

    def push(name: str) -> None:
        opened.append((name, clock.now()))
        plain.open(name)

    def pop() -> None:
        name, start = opened.pop()
        plain.close(name)
        spans.append((name, start, clock.now()))

    def write() -> None:
        read = [(name, clock.elapsed_ns(start, end)) for name, start, end in spans]
        path = Path(os.environ["PERFCI_SIDECAR"]).with_name("events.json")
        path.write_text(json.dumps({"clock": clock.kind, "spans": read}))

    atexit.register(write)
    return marks.Marks(plain.kind, push, pop)


if __name__ == "__main__":
    plainly = marks.activate
    marks.activate = lambda plain: plainly(listen(plain))
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
