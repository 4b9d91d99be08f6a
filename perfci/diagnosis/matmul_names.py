"""Which kernels multiply matrices, and in what precision: told by the names that NVIDIA's libraries give them."""

import re
from enum import StrEnum
from functools import lru_cache


class Precision(StrEnum):
    """What the factors of a matrix product are made of."""

    FLOAT32 = "float32"
    """Full float32, on the ordinary cores."""
    REDUCED = "reduced precision"
    """bfloat16, float16, TF32, float8 or integers, on tensor cores."""


_MATMUL = re.compile(
    r"gemm(?!v)|(?<![a-z])s(?:cudnn)|^nvjet_|xmma_(?:fprop|dgrad|wgrad)|cutlass\w*_(?:fprop|dgrad|wgrad)", re.IGNORECASE
)
"""Products and implicit products (convolutions): cuBLAS, cuBLASLt (nvjet), cuDNN, CUTLASS, MAGMA."""
_ATTENTION = re.compile(r"fmha|flash|sdpa", re.IGNORECASE)
"""Fused attention holds products, but its choice of a kernel follows other rules."""
_REDUCED = re.compile(
    r"bf16|bfloat16|f(?:p)?16|half|tf32|e4m3|e5m2|fp8|^nvjet_"
    r"|(?<![a-z])[shi](?:884|1688|16816|161616|16832|64x\w+x\w+)\w*gemm|(?<![a-z])hgemm"
    r"|(?<![0-9a-z])(?:i8|s8|u8)",
    re.IGNORECASE,
)
"""Element types in the name, the shapes of tensor core instructions (s1688gemm without a type is TF32: the CUTLASS
profiler's names), and nvjet, which has kernels for tensor cores only."""
_FLOAT32 = re.compile(r"_f32f32_f32f32_f32(?:_|$)|(?<![a-z])s(?:gemm|cudnn)(?![a-z])|gemm\w*<(?:int, )?float\b")
"""xmma names say operands, arithmetic and result: f32f32_f32f32_f32 is float32 throughout (and ``ffma`` in its name),
f32f32_tf32f32_f32 is TF32. ``sgemm`` is the name of the float32 product since the first BLAS. cuBLAS's kernels for
thin matrices are templates on the type (gemmSN_TN_kernel<float, …>)."""


@lru_cache(maxsize=4096)
def matmul_precision(name: str) -> Precision | None:
    """The precision of a kernel that multiplies matrices, None for other kernels and for names that do not say it.

    >>> matmul_precision("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma").value
    'float32'
    """
    if not _MATMUL.search(name) or _ATTENTION.search(name):
        return None
    if _REDUCED.search(name):
        return Precision.REDUCED
    return Precision.FLOAT32 if _FLOAT32.search(name) else None
