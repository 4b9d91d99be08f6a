"""Launches for pair rules: what a run stores, made by hand or from a recorded trace."""

import functools
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.model.run import KernelStat, Series
from perfci.trace.extract import extract

TRACES = Path(__file__).parents[1] / "traces"
GPT = "h200_gpt_item_each_step.sqlite.gz"
GPT_DDP = "h200_gpt_ddp_1rank_nccl.sqlite.gz"
GPT_COMPILED = "h200_gpt_cuda_graph_granularity_node.sqlite.gz"
TRANSFORMER = "h200_transformer_32steps_nsys2025.3.sqlite.gz"
KINETO = ("kineto_gpu/pair_nsys.sqlite.gz", "kineto_gpu/pair_torch.json.gz")
EQUAL_CODE = [(name, name) for name in (GPT, GPT_DDP, GPT_COMPILED, TRANSFORMER)] + [KINETO, KINETO[::-1]]
"""Recordings of the same code: with themselves, and by two profilers."""

BFLOAT16_GEMM = "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_bias_TNT"
FLOAT32_GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
PLAIN = "at::native::vectorized_elementwise_kernel<4>"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The part of a run that pair rules read."""

    step_count: int = 10
    series: tuple[Series, ...] = ()
    kernels: tuple[KernelStat, ...] = ()

    def with_kernel(self, phase, name, per_step, each_ns):
        """The launch with such a kernel in place of those of that name in the phase; 0 per step takes it out."""
        others = [k for k in self.kernels if (k.phase, k.name) != (phase, name)]
        count = per_step * self.step_count
        if count:
            others.append(KernelStat(phase=phase, name=name, count=count, total_ns=round(count * each_ns)))
        return replace(self, kernels=tuple(others))

    def with_series(self, phase, metric, values):
        others = [s for s in self.series if (s.phase, s.metric) != (phase, metric)]
        return replace(self, series=(*others, Series(phase=phase, metric=metric, values=tuple(values))))

    def of(self, phase, name):
        return next(k for k in self.kernels if (k.phase, k.name) == (phase, name))


def training():
    """A bfloat16 model with a foreach-free phase each: 6 products of 50 µs and 20 small kernels of 4 µs."""
    made = Launch()
    for phase in ("forward", "backward"):
        made = made.with_kernel(phase, BFLOAT16_GEMM, 6, 50_000).with_kernel(phase, PLAIN, 20, 4_000)
    return made


@functools.cache
def recorded(name):
    """A recorded trace as a launch."""
    found = extract([TRACES / name])
    return Launch(step_count=found.step_count, series=found.series, kernels=found.kernels)


def evidence(finding):
    return {quantity.name: quantity.value for quantity in finding.evidence}
