"""Matrix products that left the tensor cores are named; other changes of products are not."""

from dataclasses import replace

import pytest
from launches import BFLOAT16_GEMM, FLOAT32_GEMM, GPT, PLAIN, evidence, recorded, training

from perfci.diagnosis.matmul_names import Precision, matmul_precision
from perfci.diagnosis.pair_patterns import float32_matmul
from perfci.diagnosis.pair_rules import find_between
from perfci.diagnosis.pair_view import PairView
from perfci.model.finding import Confidence
from perfci.model.run import KernelStat


def find(baseline, candidate):
    return list(float32_matmul.find(PairView(baseline, candidate)))


FULL, REDUCED = Precision.FLOAT32, Precision.REDUCED


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_aligna4_alignc4", FULL),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x64x16_stage6_warpsize2x2x1_tensor16x8x8", REDUCED),
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64_warpgroupsize1x1x1", REDUCED),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw_tilesize32x32x8_ffma", FULL),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16", REDUCED),
        ("ampere_sgemm_128x64_tn", FULL),
        ("volta_sgemm_32x128_nn", FULL),
        ("ampere_scudnn_128x64_relu_xregs_large_nn_v", FULL),
        ("volta_fp16_sgemm_fp16_128x64_nn", REDUCED),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", REDUCED),
        ("turing_fp16_s1688gemm_fp16_256x64_ldg8_f2f_tn", REDUCED),
        ("cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", FULL),
        ("cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_16x3_nn_align4>", REDUCED),
        ("cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>", REDUCED),
        ("magma_sgemmEx_kernel<float, float, float, 1, 0, 6, 4, 6, 3, 4>", FULL),
        ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_bias_TNT", REDUCED),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", REDUCED),
        ("gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true, cublasGemvTensorStridedBatched<float const>>", FULL),
        ("gemmSN_TN_kernel<float, 128, 16, 2, cublasGemvTensorStridedBatched<__nv_bfloat16 const>>", REDUCED),
        ("gemmk1_kernel<int, float, 256, 5, true, false, false, false, cublasGemvTensorStridedBatched<float>>", FULL),
        ("gemmk1_kernel<int, float2, 256, 5, true, false, false, false, cublasGemvTensorStridedBatched<float2>>", None),
        ("gemmSN_TN_kernel<double, 128, 16, 2, 4, 4, 4, true>", None),
        ("volta_dgemm_64x64_nn", None),
        ("gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>", None),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", None),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0", None),
        ("at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char *, 1>>", None),
        ("triton_poi_fused_gelu_view", None),
    ],
)
def test_precision_by_name(name, precision):
    """Names from recorded traces and published profiles."""
    assert matmul_precision(name) is precision


def test_no_product_of_the_recorded_bfloat16_training_is_float32():
    products = {k.name for k in recorded(GPT).kernels if matmul_precision(k.name)}
    assert len(products) > 5
    assert {matmul_precision(name) for name in products} == {Precision.REDUCED}


def moved(launch, phase, products, *, each_ns=400_000):
    """Some products of the phase move to float32."""
    return launch.with_kernel(phase, BFLOAT16_GEMM, 6 - products, 50_000).with_kernel(
        phase, FLOAT32_GEMM, products, each_ns
    )


def test_a_layer_in_float32_is_named_in_both_passes():
    candidate = moved(moved(training(), "forward", 1), "backward", 2)
    backward, forward = find([training()] * 2, [candidate] * 2)
    assert (forward.phase, backward.phase) == ("forward", "backward")
    assert all(f.new and f.confidence is Confidence.HIGH for f in (forward, backward))
    assert forward.title == (
        "matrix products in float32 instead of on tensor cores: 1 per step in forward, for 48 % of its kernel time"
    )
    seen = evidence(backward)
    assert seen["extra time of matrix products per step"] == 2 * (400_000 - 50_000)
    assert (seen["float32 products per step"], seen["float32 products per step, baseline"]) == (2, 0)
    reduced = "reduced-precision products per step"
    assert (seen[reduced], seen[f"{reduced}, baseline"]) == (4, 6)
    assert seen[FLOAT32_GEMM] == 2 * 400_000


def test_a_layer_of_a_recorded_training_in_float32():
    clean = recorded(GPT)
    product = next(k for k in clean.kernels if k.phase == "forward" and k.name == BFLOAT16_GEMM)
    per_step, each_ns = product.count // clean.step_count, product.total_ns / product.count
    planted = clean.with_kernel("forward", BFLOAT16_GEMM, per_step - 1, each_ns)
    planted = planted.with_kernel("forward", FLOAT32_GEMM, 1, 10 * each_ns)
    (finding,) = [f for f in find_between([clean], [planted]) if f.rule == "float32-matmul"]
    assert (finding.phase, finding.confidence) == ("forward", Confidence.HIGH)
    assert evidence(finding)["extra time of matrix products per step"] == pytest.approx(9 * each_ns, rel=1e-3)
    assert find([planted], [clean]) == []  # the way back is no finding


def test_new_float32_products_beside_the_old_ones_may_be_wanted():
    (finding,) = find([training()], [training().with_kernel("forward", FLOAT32_GEMM, 1, 400_000)])
    assert finding.confidence is Confidence.MEDIUM
    assert finding.title.startswith("more matrix products in float32: 1 per step")


def test_a_small_layer_in_float32_is_less_sure():
    (finding,) = find([training()], [moved(training(), "forward", 1, each_ns=50_100)])
    assert finding.confidence is Confidence.MEDIUM


@pytest.mark.parametrize(
    "candidate",
    [
        training(),
        training().with_kernel("forward", PLAIN, 20, 40_000),
        training().with_kernel("forward", BFLOAT16_GEMM, 8, 90_000),
        training().with_kernel("forward", BFLOAT16_GEMM, 0, 0).with_kernel("forward", "nvjet_sm90_tst_64x8", 6, 90_000),
        moved(training(), "forward", 1, each_ns=40_000),  # float32 and faster: nothing was lost
    ],
    ids=["equal", "other kernels", "more products", "another kernel of the same precision", "faster"],
)
def test_other_changes_are_not_named(candidate):
    assert find([training()], [candidate]) == []


def test_another_float32_kernel_of_a_float32_program_is_not_named():
    bare = training().with_kernel("forward", BFLOAT16_GEMM, 0, 0)
    one = bare.with_kernel("forward", "ampere_sgemm_128x64_tn", 6, 1e5)
    other = bare.with_kernel("forward", FLOAT32_GEMM, 6, 2e5)
    assert find([one], [other]) == []


def test_one_launch_that_differs_is_no_pattern():
    assert find([training()] * 2, [moved(training(), "forward", 1), training()]) == []


def test_a_validation_in_a_window_that_lost_a_step_is_no_new_work():
    def validating(steps, products):
        made = replace(training(), step_count=steps, kernels=())
        made = made.with_kernel("forward", BFLOAT16_GEMM, 6, 50_000)
        product = KernelStat(phase="validation", name=FLOAT32_GEMM, count=products, total_ns=products * 100_000)
        return replace(made, kernels=(*made.kernels, product))

    assert find_between([validating(30, 150)], [validating(29, 150)]) == ()
    assert find_between([validating(29, 150)], [validating(30, 150)]) == ()
    (more,) = find_between([validating(30, 150)], [validating(29, 300)])
    assert more.rule == "float32-matmul"
