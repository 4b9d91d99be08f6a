"""How fast torch.profiler's JSON can be read, and how much memory it takes: perfci against whole-document parsers.

    python benchmarks/trace/kineto_speed.py [--copies 100]

Writes a large trace by repeating the events of a recorded one and reads it in every way, each in a process of its own,
in turns (three rounds, best time). Parsers that are not installed are left out; none but the standard library's is
needed. Times are given relative to reading the bytes of the file; the table is in docs/decisions/0090.
"""

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "tests/traces/kineto_cpu/tiny_torch2.13.json.gz"
ROUNDS = 3


def read_bytes(path: Path) -> None:
    with path.open("rb") as file:
        while file.read(1 << 20):
            pass


def standard_library(path: Path) -> None:
    with path.open() as file:
        json.load(file)


def orjson(path: Path) -> None:
    import orjson  # noqa: PLC0415

    orjson.loads(path.read_bytes())


def msgspec(path: Path) -> None:
    import msgspec  # noqa: PLC0415

    msgspec.json.decode(path.read_bytes())


def perfci_events(path: Path) -> None:
    from perfci.trace.kineto_json import KinetoFile  # noqa: PLC0415

    for _ in KinetoFile(path).events():
        pass


def perfci_columns(path: Path) -> None:
    from perfci.trace.kineto import read_kineto  # noqa: PLC0415

    read_kineto(path)


WAYS = {f.__name__: f for f in (read_bytes, standard_library, orjson, msgspec, perfci_events, perfci_columns)}


def write_large(path: Path, copies: int) -> None:
    text = gzip.decompress(RECORDED.read_bytes()).decode()
    start, end = text.index('"traceEvents": [') + len('"traceEvents": ['), text.rindex("]")
    with path.open("w") as file:
        file.write(text[:start])
        for copy in range(copies):
            file.write(text[start:end] + ("," if copy < copies - 1 else ""))
        file.write(text[end:])


def measured(way: str, path: Path) -> tuple[float, int] | None:
    """Seconds and peak MiB of a fresh process, without its imports; None when the parser is not installed."""
    done = subprocess.run(
        [sys.executable, __file__, "--way", way, "--file", str(path)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        return None
    seconds, peak = done.stdout.split()
    return float(seconds), int(peak)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--copies", type=int, default=100)
    options.add_argument("--way", choices=WAYS)
    options.add_argument("--file", type=Path)
    chosen = options.parse_args()
    if chosen.way:
        if chosen.way.startswith("perfci"):
            import perfci.trace.kineto  # noqa: F401, PLC0415
        elif chosen.way in ("orjson", "msgspec"):
            __import__(chosen.way)
        begin = time.perf_counter()
        WAYS[chosen.way](chosen.file)
        print(time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_large(path, chosen.copies)
        best: dict[str, tuple[float, int]] = {}
        for _ in range(ROUNDS):
            for way in WAYS:
                found = measured(way, path)
                if found is not None:
                    best[way] = min(best.get(way, found), found)
        floor = best["read_bytes"][0]
        print(f"{path.stat().st_size / 1e6:.0f} MB\n{'way':18}{'× read_bytes':>14}{'MB/s':>8}{'peak MiB':>10}")
        for way, (seconds, peak) in best.items():
            print(f"{way:18}{seconds / floor:14.1f}{path.stat().st_size / 1e6 / seconds:8.0f}{peak:10}")


if __name__ == "__main__":
    main()
