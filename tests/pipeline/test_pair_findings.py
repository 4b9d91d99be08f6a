"""What only both sides show reaches the comparison and its headline."""

from dataclasses import replace

from run_builder import paired

from perfci.model.run import KernelStat, Note, Run
from perfci.model.settings import Gate, JudgeSettings
from perfci.model.verdict import Verdict
from perfci.pipeline.judging import judge_all
from perfci.report.headline import workload_headline

SETTINGS = JudgeSettings(gates=(Gate(metric="gpu_busy_ns", budget_ratio=0.01),), error_rate=0.1, max_launches=6)


def judged(left: list[Run], right: list[Run]):
    (result,) = judge_all(
        {"tiny": left},
        {"tiny": right},
        SETTINGS,
        floors_of=lambda _workload, _environment: {},
        golden={},
        notes={},
        pinned=lambda _workload, _runs: [],
    )
    return result


def with_kernels(side: list[Run], *kernels: tuple[str, int, int]) -> list[Run]:
    stats = tuple(KernelStat(phase="forward", name=name, count=n, total_ns=ns) for name, n, ns in kernels)
    return [replace(one, kernels=stats) for one in side]


def test_what_only_both_sides_show_is_the_cause_in_the_headline() -> None:
    """A product in float32 is normal in one trace; beside the baseline it is what changed."""
    left, right = paired([1.0e6, 1.001e6, 0.999e6], [1.4e6, 1.401e6, 1.399e6])
    gemm, full = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT", "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ffma"
    left, right = with_kernels(left, (gemm, 20, 2000)), with_kernels(right, (gemm, 10, 1000), (full, 10, 9000))
    result = judged(left, right)
    assert result.tally.worst is Verdict.REGRESSION
    assert [(f.rule, f.phase, f.new) for f in result.findings] == [("float32-matmul", "forward", True)]
    assert "likely cause: matrix products in float32 instead of on tensor cores" in workload_headline(result)
    spoiled = [replace(one, notes=(Note(code="throttled", text="hot", spoils=True),)) for one in right]
    assert judged(left, spoiled).findings == ()
