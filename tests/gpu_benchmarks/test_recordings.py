"""benchmarks/gpu/recordings.py: which launches are kept, and an archive that plain tar reads."""

import io
import lzma
import sys
import tarfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

from recordings import chosen, member, pair_of, select

FOLDERS = ["000-baseline-gpt", "001-candidate-gpt", "002-candidate-gpt", "003-baseline-gpt", "004-probe-baseline-gpt"]
FOLDERS += ["005-baseline-gpt", "006-candidate-gpt"]


def said(*ends):
    sides = ("baseline", "candidate", "candidate", "baseline", "baseline", "candidate")
    return "\n".join(
        f"gpt: launch 1 of 6, {side} main: step 1.000 ms, 2.0 s{end}" for side, end in zip(sides, ends, strict=True)
    )


def test_the_first_two_launches_of_each_side_are_kept_and_no_probe():
    assert chosen(FOLDERS, said(*[""] * 6)) == {
        ("baseline", 1): "000-baseline-gpt",
        ("candidate", 1): "001-candidate-gpt",
        ("candidate", 2): "002-candidate-gpt",
        ("baseline", 2): "003-baseline-gpt",
    }


def test_a_spoiled_launch_is_passed_over():
    kept = chosen(FOLDERS, said(", spoiled", "", "", "", "", ""))
    assert kept["baseline", 1] == "003-baseline-gpt"
    assert kept["baseline", 2] == "005-baseline-gpt"


def test_first_pairs_go_before_second_ones_and_a_pair_that_does_not_fit_is_named():
    sizes = {("00-a", 1): 4, ("00-a", 2): 4, ("01-b", 1): 5, ("01-b", 2): 1}
    assert select(sizes, 10) == ([("00-a", 1), ("01-b", 1), ("01-b", 2)], [("00-a", 2)])


def test_members_one_after_the_other_are_a_tar_archive():
    contents = {
        "00-a/baseline-1.sqlite": b"x" * 1000,
        "00-a/candidate-2.sqlite": b"",
        "00-a/comparison.json": b"{}" * 256,
    }
    packed = b"".join(member(name, content) for name, content in contents.items())
    packed += lzma.compress(bytes(tarfile.RECORDSIZE))
    with tarfile.open(fileobj=io.BytesIO(packed), mode="r:xz") as archive:
        assert {entry.name: archive.extractfile(entry).read() for entry in archive} == contents
    assert pair_of("00-a/candidate-2.sqlite") == ("00-a", 2)
