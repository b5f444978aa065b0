// The function table of a tier, made from its vector class and its five loaders. For the tier files only.
#pragma once

#include "kernels/cpu/fp8_cast.hpp"
#include "kernels/cpu/latent_kernel.hpp"
#include "kernels/cpu/row_kernel.hpp"
#include "kernels/cpu/row_loader.hpp"

namespace kvpool::kernels {

template <class V, class F32, class F16, class B16, class Fp8A, class Fp8B>
struct TierOf {
  using Latent = LatentKernel<V, F32, Fp8A, B16>;

  static void attend(DType cache, const RowTask& task) {
    switch (cache) {
      case DType::float32: return RowKernel<V, F32>::attend(task);
      case DType::float16: return RowKernel<V, F16>::attend(task);
      case DType::bfloat16: return RowKernel<V, B16>::attend(task);
      case DType::fp8_e4m3: return RowKernel<V, Fp8A>::attend(task);
      case DType::fp8_e5m2: return RowKernel<V, Fp8B>::attend(task);
      case DType::uint8: return Latent::attend(task);
    }
  }

  static void element_order(DType cache, bool bf16, std::int64_t dim, std::int32_t* order) {
    switch (cache) {
      case DType::float32: return RowKernel<V, F32>::element_order(bf16, dim, order);
      case DType::float16: return RowKernel<V, F16>::element_order(bf16, dim, order);
      case DType::bfloat16: return RowKernel<V, B16>::element_order(bf16, dim, order);
      case DType::fp8_e4m3: return RowKernel<V, Fp8A>::element_order(bf16, dim, order);
      case DType::fp8_e5m2: return RowKernel<V, Fp8B>::element_order(bf16, dim, order);
      case DType::uint8: return Latent::element_order(dim, order);
    }
  }

  static bool takes_bf16_queries(DType cache, DType query) {
    if (query != DType::bfloat16) return false;
    switch (cache) {
      case DType::bfloat16: return B16::kBf16Dot;
      case DType::fp8_e4m3: return Fp8A::kBf16Dot;
      case DType::fp8_e5m2: return Fp8B::kBf16Dot;
      case DType::float32:
      case DType::float16:
      case DType::uint8: return false;
    }
    return false;
  }

  static constexpr TierKernels table(CpuTier tier) { return {tier, element_order, takes_bf16_queries, attend, to_fp8}; }
};

}  // namespace kvpool::kernels
