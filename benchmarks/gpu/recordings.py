"""Keeps recordings of compared launches: exported, scrubbed and packed into one archive of bounded size.

The archive `recordings.tar.xz` holds CASE/SIDE-N.sqlite (SIDE is `baseline` or `candidate`, N the pair, from 1) and
CASE/comparison.json, what `perfci compare` said of them. `other_tools.py` reads it.
"""

import io
import lzma
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from perfci.capture.export import export_sqlite
from perfci.capture.nsys import NsysTool, find_nsys
from perfci.capture.scrub import replacements, scrub_export

PAIRS_KEPT = 2
MOST_BYTES = 15 << 20
_LAUNCH_FOLDER = re.compile(r"\d+-(?P<side>baseline|candidate)-.+")
_SAID = re.compile(r": launch \d+ of \d+, (?:baseline|candidate) ")

Pair = tuple[str, int]
"""(case, number of the pair from 1)."""


def chosen(folders: Sequence[str], log: str) -> dict[tuple[str, int], str]:
    """(side, pair) → folder of the launches to keep: the first of each side that were not spoiled.

    ``folders`` are names of launch folders of one session. perfci's log has one line for each launch, in the same
    order; where it has not (another version), no launch is left out.
    """
    launches = sorted(name for name in folders if _LAUNCH_FOLDER.fullmatch(name))
    lines = [line.rstrip() for line in log.splitlines() if _SAID.search(line)]
    spoiled = [line.endswith("spoiled") for line in lines] if len(lines) == len(launches) else [False] * len(launches)
    kept: dict[tuple[str, int], str] = {}
    seen = {"baseline": 0, "candidate": 0}
    for name, bad in zip(launches, spoiled, strict=True):
        match = _LAUNCH_FOLDER.fullmatch(name)
        assert match is not None
        side = match["side"]
        if not bad and seen[side] < PAIRS_KEPT:
            seen[side] += 1
            kept[side, seen[side]] = name
    return kept


def put_aside(session: Path, log: str, shelf: Path) -> None:
    """Copy the reports worth keeping from a session's folder to ``shelf``, before perfci forgets old sessions."""
    folders = [path.name for path in session.iterdir() if (path / "report.nsys-rep").is_file()]
    shelf.mkdir(parents=True, exist_ok=True)
    for (side, pair), name in chosen(folders, log).items():
        shutil.copyfile(session / name / "report.nsys-rep", shelf / f"{side}-{pair}.nsys-rep")


def member(name: str, content: bytes) -> bytes:
    """One file of a tar archive as an xz stream of its own. Such streams one after the other are an xz file."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    padded = 512 + -(-len(content) // 512) * 512
    return lzma.compress(file.getvalue()[:padded], preset=6)


def packed(report: Path, name: str, tool: NsysTool, private: Sequence[tuple[str, str]]) -> bytes:
    """The scrubbed export of ``report`` as the archive's member ``name``."""
    with tempfile.TemporaryDirectory() as folder:
        export = Path(folder) / "trace.sqlite"
        export_sqlite(tool, report, export)
        scrub_export(export, private)
        return member(name, export.read_bytes())


def select(sizes: Mapping[Pair, int], budget_bytes: int) -> tuple[list[Pair], list[Pair]]:
    """(kept, left out): first pairs of all cases before second ones, each pair whole, as long as they fit."""
    kept, left_out = [], []
    for pair in sorted(sizes, key=lambda pair: (pair[1], pair[0])):
        if sizes[pair] <= budget_bytes:
            budget_bytes -= sizes[pair]
            kept.append(pair)
        else:
            left_out.append(pair)
    return kept, left_out


def pack(shelf: Path, out: Path, private_folders: Sequence[Path]) -> str:
    """Write ``out``/recordings.tar.xz from the shelf and say what is in it and what was left out.

    ``private_folders`` are folders whose paths must not stay in the exports, beside home and the name of the host.
    """
    tool = find_nsys()
    private = [(str(path), "<folder>") for path in private_folders]
    private += replacements(checkout=shelf, out_dir=out, tool=tool.path)
    reports = sorted(shelf.glob("*/*.nsys-rep"))
    names = [f"{path.parent.name}/{path.stem}.sqlite" for path in reports]
    with ProcessPoolExecutor(max_workers=max(1, len(os.sched_getaffinity(0)))) as pool:
        jobs = [pool.submit(packed, path, name, tool, private) for path, name in zip(reports, names, strict=True)]
        streams = {name: job.result() for name, job in zip(names, jobs, strict=True)}
    said = {path.stem: member(f"{path.stem}/comparison.json", path.read_bytes()) for path in cases_of(out)}
    sizes: dict[Pair, int] = {}
    for name, stream in streams.items():
        pair = pair_of(name)
        sizes[pair] = sizes.get(pair, 0) + len(stream)
    end = lzma.compress(bytes(tarfile.RECORDSIZE))
    kept, left_out = select(sizes, MOST_BYTES - len(end) - sum(map(len, said.values())))
    archive = out / "recordings.tar.xz"
    with archive.open("wb") as file:
        for stream in said.values():
            file.write(stream)
        for name, stream in streams.items():
            if pair_of(name) in kept:
                file.write(stream)
        file.write(end)
    left = ", ".join(f"{case} pair {number}" for case, number in left_out) or "nothing"
    return f"{archive.name}: {len(kept)} pairs, {archive.stat().st_size / 2**20:.1f} MiB; left out: {left}"


def cases_of(out: Path) -> list[Path]:
    """The comparisons that `prove.py` left in its folder."""
    return sorted(out.glob("[0-9][0-9]-*.json"))


def pair_of(name: str) -> Pair:
    """The pair that a member CASE/SIDE-N.sqlite belongs to."""
    case, file = name.split("/")
    return case, int(file.removesuffix(".sqlite").rsplit("-", 1)[1])
