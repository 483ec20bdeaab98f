"""The time of a device is explained by groups of kernels and by the gaps between them."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.kernels import (
    Kernel,
    busy_by_group,
    by_name,
    gaps_between,
    group_of,
    shortened,
    summary,
)
from benchmarks.gpu.traces import kernels_of

ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, at::native::"
NAMES = {
    "products": [
        "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
        "segment_k_off_kernel__5x_cublas",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align8>"
        "(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align8::Params)",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int, int>>>",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, false>",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>",
        "volta_sgemm_128x64_nn",
        "triton_tem_fused_mm_3",
        "aten::linear",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, "
        "4, false, false, cutlass::bfloat16_t>, true, true>(pytorch_flash::Flash_fwd_params)",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Bwd>",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::"
        "bfloat16_t, cutlass::arch::Sm80, true, 64, 64, 64, true, true>::Params)",
        "fmha_cutlassB_bf16_aligned_128x64_k64_dropout_sm80(PyTorchMemEffAttention::Params)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_7_64x64x64_kernel0_0",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 6, false, false>"
        "(float*, float const*, int, int, int, bool const*, int, bool)",
        "triton_tem_fused_flex_attention_0",
        "aten::scaled_dot_product_attention",
    ],
    "norm": [
        "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>",
        "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<float>",
        "void at::native::(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<float, 32u>",
        "triton_per_fused_add_native_dropout_native_layer_norm_4",
        "aten::native_layer_norm_backward",
    ],
    "dropout": [
        "void at::native::(anonymous namespace)::fused_dropout_kernel_vec<c10::BFloat16, float, "
        "unsigned int, 1, 4, bool>(at::cuda::detail::TensorInfo<c10::BFloat16 const>)",
        f"{ELEMENTWISE}(anonymous namespace)::masked_scale_kernel<bool, c10::BFloat16, float>",
        "void at::native::(anonymous namespace)::distribution_elementwise_grid_stride_kernel<int>",
        "triton_poi_fused_native_dropout_2",
        "aten::random_",
    ],
    "loss": [
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, at::"
        "native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, float const*, int)",
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>",
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float>",
        "triton_red_fused__to_copy_exp_logsumexp_mean_sub_1",
    ],
    "optimizer": [
        "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
        "namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::"
        "FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)0, false>, float const*, double>",
        "void at::native::lpnorm_cleanup<float, (at::native::NormType)1, float, float>",
        "aten::_fused_adam_",
    ],
    "top-k": [
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>",
        "void at::native::bitonicSortKVInPlace<2, -1, 16, 16, float, long, at::native::GTOp>",
        "void at_cuda_detail::cub::DeviceSegmentedRadixSortKernel<at_cuda_detail::cub::Policy800>",
    ],
    "copies": [
        "Memcpy DtoD (Device -> Device)",
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::"
        "TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}, 4>",
        f"{ELEMENTWISE}bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{{lambda(float)#1}}>",
        f"{ELEMENTWISE}FillFunctor<float>, std::array<char*, 1ul> >(int, float)",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy_contig<at::native::Opaque>",
        "aten::copy_",
    ],
    "other": [
        f"{ELEMENTWISE}CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, float)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps>>",
        "void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, unsigned int>",
        "triton_poi_fused_relu_threshold_backward_5",
        "aten::embedding",
    ],
}


@pytest.mark.parametrize("group, name", [(g, name) for g, names in NAMES.items() for name in names])
def test_a_kernel_belongs_to_a_group_by_its_name(group: str, name: str) -> None:
    assert group_of(name) == group


def test_the_block_that_launches_a_kernel_counts_but_for_products() -> None:
    addition, product = NAMES["other"][0], NAMES["products"][0]
    assert group_of(addition, "loss") == "loss"
    assert group_of(product, "loss") == "products"


GEMM, NORM, COPY = NAMES["products"][0], NAMES["norm"][0], "Memset (Device)"
KERNELS = [
    Kernel(GEMM, 0.0, 10.0, launched=-5.0),
    Kernel(NORM, 12.0, 20.0, launched=3.0),  # the host was early
    Kernel(COPY, 18.0, 24.0, launched=4.0),  # on another stream
    Kernel(GEMM, 30.0, 40.0, launched=26.0),  # the host was late
]


def test_all_time_is_of_a_group_or_idle() -> None:
    spent = busy_by_group(KERNELS)
    assert (spent["products"], spent["norm"], spent["copies"]) == (20.0, 8.0, 4.0)
    gaps = gaps_between(KERNELS)
    assert [(gap.length, gap.waits_for_host) for gap in gaps] == [(2.0, False), (6.0, True)]
    assert sum(spent.values()) + sum(gap.length for gap in gaps) == 40.0


def test_a_summary_is_of_one_of_several_updates() -> None:
    values = summary(KERNELS, 2)
    assert (values["ms"], values["kernels"]) == (0.02, 2.0)
    assert values["products"] == "0.01 (50.0%)"
    assert values["idle"] == "0.00 (20.0%)"
    assert values["waits for the host"] == "0.00 (15.0%)"
    assert values["longest gaps"].split("; ")[0] == f"6 µs before {GEMM[:40]}"
    with pytest.raises(RuntimeError, match="no kernel"):
        summary([], 2)


def test_kernels_are_listed_by_the_time_they_take() -> None:
    lines = list(by_name(KERNELS))
    assert lines[0] == {"group": "products", "ms": 0.02, "calls": 2, "kernel": GEMM}
    assert [line["calls"] for line in lines] == [2, 1, 1]


def test_a_long_name_keeps_what_tells_it_from_others() -> None:
    assert shortened(NAMES["norm"][0]) == "vectorized_layer_norm_kernel<float, floa"


def event(name: str, start: float, end: float, **more: Any) -> Any:
    known = {"device_type": DeviceType.CPU, "is_user_annotation": False, "id": 0}
    return SimpleNamespace(
        name=name, time_range=SimpleNamespace(start=start, end=end), **known | more
    )


def test_a_trace_of_a_gpu_says_when_and_where_a_kernel_was_launched() -> None:
    on_gpu = {"device_type": DeviceType.CUDA}
    addition = NAMES["other"][0]
    events = [
        event("FusedLoss", 0, 10),
        event("cudaLaunchKernel", 5, 6, id=1),
        event("cudaGraphLaunch", 20, 21, id=2),
        event("cudaDeviceSynchronize", 22, 90, id=3),
        event(addition, 30, 40, id=1, **on_gpu),
        event(addition, 40, 50, id=2, **on_gpu),
        event("Optimizer.step#Adam.step", 30, 50, is_user_annotation=True, **on_gpu),
    ]
    assert list(kernels_of(events)) == [
        Kernel(addition, 30, 40, launched=5, scope="loss"),
        Kernel(addition, 40, 50, launched=20),
    ]


def test_a_trace_of_a_cpu_has_the_outermost_operators() -> None:
    weight = torch.randn(4, 4, requires_grad=True)
    with profile(activities=[ProfilerActivity.CPU]) as watched:
        torch.nn.functional.linear(weight, weight)
    assert [kernel.name for kernel in kernels_of(watched.events() or ())] == ["aten::linear"]
