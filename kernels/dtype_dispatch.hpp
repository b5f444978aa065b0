// From a DType at run time to a storage type at compile time.
#pragma once

#include <type_traits>

#include "kernels/number_formats.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool::kernels {

template <class T>
struct TypeTag {
  using type = T;
};

/// Calls f(TypeTag<T>{}) for a type a cache row may have. Precondition: is_cache_type(type).
template <class F>
decltype(auto) with_cache_type(DType type, F&& f) {
  switch (type) {
    case DType::float16: return f(TypeTag<Fp16>{});
    case DType::bfloat16: return f(TypeTag<Bf16>{});
    case DType::fp8_e4m3: return f(TypeTag<E4m3>{});
    case DType::fp8_e5m2: return f(TypeTag<E5m2>{});
    case DType::float32:
    case DType::uint8: break;
  }
  return f(TypeTag<float>{});
}

/// Calls f(TypeTag<T>{}) for a type of queries and results. Precondition: is_compute_type(type).
template <class F>
decltype(auto) with_compute_type(DType type, F&& f) {
  switch (type) {
    case DType::float16: return f(TypeTag<Fp16>{});
    case DType::bfloat16: return f(TypeTag<Bf16>{});
    case DType::float32:
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::uint8: break;
  }
  return f(TypeTag<float>{});
}

constexpr bool is_fp8(DType type) noexcept { return type == DType::fp8_e4m3 || type == DType::fp8_e5m2; }
constexpr bool is_cache_type(DType type) noexcept { return type != DType::uint8; }
constexpr bool is_compute_type(DType type) noexcept { return is_cache_type(type) && !is_fp8(type); }

constexpr std::int64_t element_bytes(DType type) noexcept {
  switch (type) {
    case DType::float32: return 4;
    case DType::float16:
    case DType::bfloat16: return 2;
    case DType::fp8_e4m3:
    case DType::fp8_e5m2:
    case DType::uint8: return 1;
  }
  return 0;
}

}  // namespace kvpool::kernels
