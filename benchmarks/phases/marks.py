"""What a mark costs: nobody listening, and listened to, side by side with the bare alternatives, in one run.

    python benchmarks/phases/marks.py [--json FILE]

Each line is the least of 15 repeats of 20,000 uses, so that a busy machine disturbs little. Ratios are to an empty
context manager (`contextlib.nullcontext`) of the same run: compare those, not nanoseconds, between machines.
"""

import argparse
import json
import timeit
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from perfci import phases
from perfci.phases import marks

_USES = 20_000
_REPEATS = 15


def cost_ns(use: Callable[[], object]) -> float:
    """Least time of one use, nanoseconds, the call of ``use`` included."""
    return min(timeit.repeat(use, number=_USES, repeat=_REPEATS)) / _USES * 1e9


def entered(make: Callable[[], AbstractContextManager[object]]) -> Callable[[], None]:
    def use() -> None:
        with make():
            pass

    return use


def ways() -> dict[str, Callable[[], object]]:
    """Everything that is measured, by name. What a machine lacks is left out."""
    empty = nullcontext()
    decorated = phases.phase("forward")(lambda: None)
    found: dict[str, Callable[[], object]] = {
        "empty context manager": entered(lambda: empty),
        "phases.phase, nobody listens": entered(lambda: phases.phase("forward")),
        "phases.step, nobody listens": entered(phases.step),
        "phases.epoch, nobody listens": entered(lambda: phases.epoch(1)),
        "decorated function, nobody listens": decorated,
        "phases.log_loss, nobody measures": lambda: phases.log_loss(1.0),
    }
    try:
        from torch.profiler import record_function  # noqa: PLC0415  (optional)
    except ImportError:
        return found
    found["torch.profiler.record_function, no profiler"] = entered(lambda: record_function("forward"))
    return found


def listened() -> dict[str, Callable[[], object]]:
    """Marks that are written to NVTX with no tool attached: the floor of the profiled window."""
    nvtx = marks.nvtx_marks()
    if nvtx is None:
        return {}
    return {f"phases.phase, written to {nvtx.kind}": entered(lambda: phases.phase("forward"))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the numbers here")
    arguments = parser.parse_args()
    found = {name: cost_ns(use) for name, use in ways().items()}
    nvtx = marks.nvtx_marks()
    if nvtx is not None:
        marks.activate(nvtx)
        found |= {name: cost_ns(use) for name, use in listened().items()}
        marks.deactivate()
    floor = found["empty context manager"]
    for name, ns in found.items():
        print(f"{name:48} {ns:8.0f} ns {ns / floor:7.2f} x")
    if arguments.json:
        arguments.json.write_text(json.dumps({name: round(ns, 1) for name, ns in found.items()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
