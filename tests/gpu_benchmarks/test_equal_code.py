"""benchmarks/gpu/equal_code.py: what it counts as a false alarm, and noise from launches of both sides."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "gpu"))

import equal_code


def row(
    verdict: str, baseline: list[float], candidate: list[float], *, kind: str = "noisy", gated: bool = True
) -> dict:
    metric = "gpu_busy_ns" if kind == "noisy" else "sync_count"
    sides = {"baseline": {"samples": baseline}, "candidate": {"samples": candidate}}
    return {"phase": "step", "metric": metric, "kind": kind, "gated": gated, "verdict": verdict, **sides}


def document(*rows: dict, workload: str = "tiny") -> dict:
    return {"workloads": [{"workload": workload, "baseline_launches": 3, "candidate_launches": 3, "rows": list(rows)}]}


CALM = ([100.0, 101.0, 102.0], [100.5, 101.5, 99.5])


def test_claims_in_both_directions_are_false_alarms_and_open_gates_are_none() -> None:
    documents = [document(row(verdict, *CALM)) for verdict in ("REGRESSION", "IMPROVEMENT", "PASS", "INCONCLUSIVE")]
    documents.append(document(row("PASS", *CALM), row("REGRESSION", *CALM, gated=False)))
    (found,) = equal_code.gather(documents)
    assert (found.comparisons, found.launches, found.alarms) == (5, 30, 2)
    assert found.noisy == {"REGRESSION": 1, "IMPROVEMENT": 1, "PASS": 2, "INCONCLUSIVE": 1}
    assert "2 of 5 comparisons raised a false alarm" in equal_code.alarms_table([found])


def test_counts_that_differ_are_named() -> None:
    equal = row("PASS", [4.0, 4.0], [4.0, 4.0], kind="exact")
    other = row("REGRESSION", [4.0, 4.0], [4.0, 5.0], kind="exact")
    assert equal_code.gather([document(equal)])[0].differing == ()
    (found,) = equal_code.gather([document(equal), document(other)])
    assert (found.differing, found.alarms) == (("step/sync_count",), 1)


def test_noise_is_that_of_both_sides_within_each_comparison() -> None:
    """Two sessions whose levels lie 10 % apart: the noise within is that of 100 ± 1."""
    low, high = [99.0, 101.0] * 3, [109.0, 111.0] * 3
    (found,) = equal_code.gather([document(row("PASS", one[:3], one[3:])) for one in (low, high)])
    floor = equal_code.noise_of(found.samples["step", "gpu_busy_ns"], "step", "gpu_busy_ns")
    assert floor is not None
    assert floor.launches == 12
    assert floor.deviation == pytest.approx(0.0105, rel=0.05)
    assert "not known" in equal_code.noise_table([found])


def test_a_folder_without_comparisons_of_equal_code_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "00-tiny-item-each-step.json").write_text("{}")
    monkeypatch.setattr(sys, "argv", ["equal_code.py", str(tmp_path)])
    assert equal_code.main() == 2
    assert "comparisons of `none`" in capsys.readouterr().err
