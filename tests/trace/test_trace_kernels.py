"""Kernel and call names reduced to what a rebuild reproduces."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfci.model.timeline import SyncKind
from perfci.trace.calls import allocates, launches_graph, launches_work, polls, wait_of
from perfci.trace.kernels import LONGEST_NAME, call_identity, is_nccl, kernel_identity

TRACES = Path(__file__).parents[1] / "traces"

SAME = [
    ("triton_poi_fused_add_relu_3", "triton_poi_fused_add_relu_11"),
    ("triton_red_fused__to_copy_mean_pow_0", "triton_red_fused__to_copy_mean_pow_4"),
    ("triton_poi_fused_add_0_0d1d2d3de", "triton_poi_fused_add_7_0d1d2d3de"),
    ("triton__0d1d2de", "triton_"),
    ("triton_tem_fused_addmm_12", "triton_tem_fused_addmm_2"),
    ("_my_kernel_0d1d2d34", "_my_kernel_0d1d2d34"),
    ("void add<(int)4, (bool)1>(float *, int)", "void add<4, true>(float *, int)"),
    ("void add<4u>(float*)", "add<4>(float*, float*)"),
    ("void <unnamed>::f<float>(T1)", "void (anonymous namespace)::f<float>(float)"),
    ("void _INTERNAL_0d5f3d5a_12_foo_cu_1a2b3c4d::f(int)", "void _INTERNAL_99887766_12_foo_cu_deadbeef::f(int)"),
    ("kernel_0x7f3a1200", "kernel_0x7ffe00aa"),
    ("jit_fusion_9f86d081884c7d65", "jit_fusion_1b4f0e9851971998"),
    (
        "void k<f(at::It &)::[lambda() (instance 3)]::operator ()() const::[lambda(float) (instance 7)]>(int, T2)",
        "void k<f(at::It &)::{lambda()#3}::operator ()() const::{lambda(float)#7}>(int, T2)",
    ),
]
DIFFERENT = [
    ("triton_poi_fused_add_3", "triton_poi_fused_mul_3"),
    ("triton_poi_fused_add_3", "triton_red_fused_add_3"),
    ("void add<4, float>(T1)", "void add<8, float>(T1)"),
    ("void add<float>(T1)", "void add<c10::BFloat16>(T1)"),
    ("void k<[lambda(float) (instance 7)]>(int)", "void k<[lambda(float) (instance 8)]>(int)"),
    ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", "nvjet_sm90_tst_128x64_64x8_1x2_h_bz_TNT"),
    ("sm80_xmma_gemm_f16f16_f16f32_f32_tn_n", "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"),
    ("sm90_gemm_bf16bf16bf16_128", "sm90_gemm_f16f16f16f16_128"),
    ("sm80_xmma_gemm_cf32cf32_cf32cf32_cf32_tn_n", "sm80_xmma_gemm_cf64cf64_cf32cf32_cf32_tn_n"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_a_rebuild_keeps_the_name(one, other):
    assert kernel_identity(one) == kernel_identity(other)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_different_kernels_stay_apart(one, other):
    assert kernel_identity(one) != kernel_identity(other)


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("void at::native::reduce_kernel<(int)128, (int)4, R>(T3)", "at::native::reduce_kernel<128, 4, R>"),
        ("nvjet_sm90_tst_64x96_64x8_2x1_v_bz_NTT", "nvjet_sm90_tst_64x96_64x8_2x1_v_bz_NTT"),
        ("triton_poi_fused_add_3", "triton_poi_fused_add"),
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<(unsigned long)4096>)",
         "ncclDevKernel_AllReduce_Sum_f32_RING_LL"),
        ("", "(no name)"),
    ],
)  # fmt: skip
def test_identities(name, identity):
    assert kernel_identity(name) == identity


@given(st.text(max_size=700) | st.text("abc<>()[]{}0x_,:&* ", max_size=700))
def test_any_text_has_one_short_identity(text):
    identity = kernel_identity(text)
    assert 0 < len(identity) <= LONGEST_NAME
    assert kernel_identity(identity) == identity


def test_recorded_kernels_stay_apart_by_type_and_functor(tmp_path):
    path = tmp_path / "t.sqlite"
    path.write_bytes(gzip.decompress((TRACES / "h200_transformer_32steps_nsys2025.3.sqlite.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as database:
        names = [
            name
            for (name,) in database.execute(
                "SELECT DISTINCT value FROM StringIds JOIN CUPTI_ACTIVITY_KIND_KERNEL ON id = demangledName"
            )
        ]
    assert len({kernel_identity(name) for name in names}) == len(names) > 40


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaMemcpyAsync_ptsz", "cudaMemcpyAsync"),
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cudaMallocAsync_v11020_ptsz", "cudaMallocAsync"),
        ("cuLaunchKernelEx", "cuLaunchKernelEx"),
        ("cudaStreamIsCapturing_v10000", "cudaStreamIsCapturing"),
    ],
)
def test_call_identities(name, identity):
    assert call_identity(name) == identity


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cudaDeviceSynchronize", SyncKind.DEVICE),
        ("cuCtxSynchronize", SyncKind.DEVICE),
        ("cuStreamSynchronize", SyncKind.STREAM),
        ("cudaEventSynchronize", SyncKind.EVENT),
        ("cudaMemcpy", SyncKind.COPY),
        ("cudaMemcpy2D", SyncKind.COPY),
        ("cuMemcpyDtoH", SyncKind.COPY),
        ("cudaMemcpyAsync", SyncKind.NONE),
        ("cuMemcpyHtoDAsync", SyncKind.NONE),
        ("cudaMemcpy3DPeerAsync", SyncKind.NONE),
        ("cudaStreamWaitEvent", SyncKind.NONE),
        ("cudaEventQuery", SyncKind.NONE),
        ("cudaLaunchKernel", SyncKind.NONE),
    ],
)
def test_waits(name, kind):
    assert wait_of(name) is kind


def test_kinds_of_calls():
    assert all(
        map(allocates, ("cudaMalloc", "cudaFree", "cudaMallocAsync", "cudaHostAlloc", "cuMemCreate", "cuMemUnmap"))
    )
    assert not any(map(allocates, ("cudaMemcpyAsync", "cudaMemGetInfo", "cudaLaunchKernel", "cuMemcpyDtoH")))
    assert launches_graph("cudaGraphLaunch")
    assert not launches_graph("cudaGraphInstantiate")
    assert all(map(launches_work, ("cudaLaunchKernelExC", "cuLaunchKernelEx", "cudaMemsetAsync", "cudaGraphLaunch")))
    assert not launches_work("cudaStreamSynchronize")
    assert polls("cudaEventQuery")
    assert polls("cuStreamQuery")
    assert not polls("cudaEventRecord")
    assert is_nccl("ncclDevKernel_AllReduce")
    assert not is_nccl("nccl_test")
