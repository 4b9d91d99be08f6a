"""benchmarks/gpu/threshold.py: every launch of one side meets every launch of the other."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

from threshold import main, pairs_of


def test_all_pairs_are_asked_in_both_directions() -> None:
    seen = pairs_of([100.0, 120.0], [100.0, 106.0, 108.0])
    assert seen is not None
    assert (seen.pairs, seen.regressions, seen.improvements) == (6, 1, 3)
    assert (seen.least_ratio, seen.most_ratio) == pytest.approx((100 / 120 - 1, 0.08))
    assert pairs_of([], [1.0]) is None


def test_one_row_per_case_of_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for name, samples in (("gpt:none", {"step/unprofiled_wall_ns": [[10], [11]]}), ("rnn:none", {})):
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps([{"case": name, "verdict": "PASS", "samples": samples}]))
    assert main(list(map(str, paths))) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| gpt:none | PASS | 1 of 1 slower (+10.0% … +10.0%) | not measured |",
        "| rnn:none | PASS | not measured | not measured |",
    ]
    assert main([]) == 2
