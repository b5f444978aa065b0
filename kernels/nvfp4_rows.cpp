#include "kvpool/kernels/nvfp4_rows.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "kernels/dtype_dispatch.hpp"

namespace kvpool::kernels {
namespace {

constexpr double kMagnitudes[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
constexpr double kLargest = 6;

Error refusal(std::string message) { return {ErrorCode::invalid_argument, std::move(message)}; }

Status check_rows(const Nvfp4Rows& packed, std::int64_t count, const void* other, DType type) {
  if (!is_compute_type(type)) return {ErrorCode::unsupported, "no NVFP4 rows of " + std::string(to_string(type))};
  if (packed.dim < 1 || packed.dim % kNvfp4Group != 0)
    return refusal("dim is " + std::to_string(packed.dim) + ", must be a multiple of 16");
  if (packed.row_stride < nvfp4_row_bytes(packed.dim)) {
    return refusal("row_stride is " + std::to_string(packed.row_stride) + "; a row takes " +
                   std::to_string(nvfp4_row_bytes(packed.dim)) + " bytes");
  }
  if (!std::isfinite(packed.tensor_scale) || packed.tensor_scale <= 0)
    return refusal("tensor_scale is " + std::to_string(packed.tensor_scale) + ", must be finite and above 0");
  if (count < 0) return refusal("count is " + std::to_string(count));
  if (count > 0 && (packed.data == nullptr || other == nullptr)) return refusal("NVFP4 rows have no memory");
  return {};
}

/// The code nearest to a magnitude, ties to the even one.
unsigned nearest_code(double magnitude) {
  unsigned code = 0;
  while (code < 7) {
    const double middle = (kMagnitudes[code] + kMagnitudes[code + 1]) / 2;
    if (magnitude < middle || (magnitude == middle && code % 2 == 0)) break;
    ++code;
  }
  return code;
}

E4m3 group_scale(const double* values, double tensor_scale) {
  double largest = 0;
  for (std::int64_t i = 0; i < kNvfp4Group; ++i) {
    if (std::isnan(values[i])) return {0x7F};
    if (std::isfinite(values[i])) largest = std::max(largest, std::abs(values[i]));
  }
  const E4m3 scale = encode<E4m3>(largest / kLargest / tensor_scale);
  const bool lost = scale.bits == 0 && std::any_of(values, values + kNvfp4Group, [](double v) { return v != 0; });
  return lost ? E4m3{1} : scale;
}

void pack_group(const double* values, double tensor_scale, std::byte* numbers, std::byte* scale_at) {
  const E4m3 scale = group_scale(values, tensor_scale);
  *scale_at = std::byte{scale.bits};
  const double unit = static_cast<double>(to_float(scale)) * tensor_scale;
  for (std::int64_t i = 0; i < kNvfp4Group; i += 2) {
    unsigned pair = 0;
    for (std::int64_t half = 0; half < 2; ++half) {
      const double value = values[i + half];
      const bool zero = std::isnan(unit) || unit == 0;
      const unsigned code = zero ? 0U : nearest_code(std::abs(value) / unit);
      pair |= (code | (std::signbit(value) ? 8U : 0U)) << (4 * half);
    }
    numbers[i / 2] = static_cast<std::byte>(pair);
  }
}

}  // namespace

Status pack_nvfp4(const QueryRows& rows, std::int64_t count, const Nvfp4Rows& packed) {
  if (Status status = check_rows(packed, count, rows.data, rows.dtype); !status) return status;
  with_compute_type(rows.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t r = 0; r < count; ++r) {
      const T* row = static_cast<const T*>(rows.data) + r * rows.token_stride;
      std::byte* out = packed.data + r * packed.row_stride;
      for (std::int64_t at = 0; at < packed.dim; at += kNvfp4Group) {
        double values[kNvfp4Group];
        for (std::int64_t i = 0; i < kNvfp4Group; ++i) values[i] = static_cast<double>(to_float(row[at + i]));
        pack_group(values, static_cast<double>(packed.tensor_scale), out + at / 2,
                   out + packed.dim / 2 + at / kNvfp4Group);
      }
    }
  });
  return {};
}

Status unpack_nvfp4(const Nvfp4Rows& packed, std::int64_t count, void* out, DType type) {
  if (Status status = check_rows(packed, count, out, type); !status) return status;
  with_compute_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::int64_t r = 0; r < count; ++r) {
      const std::byte* row = packed.data + r * packed.row_stride;
      T* to = static_cast<T*>(out) + r * packed.dim;
      for (std::int64_t i = 0; i < packed.dim; ++i) {
        const auto pair = static_cast<unsigned>(row[i / 2]);
        const unsigned code = i % 2 == 0 ? pair & 0xFU : pair >> 4;
        const E4m3 scale{static_cast<std::uint8_t>(row[packed.dim / 2 + i / kNvfp4Group])};
        const double magnitude =
            kMagnitudes[code & 7U] * static_cast<double>(to_float(scale)) * static_cast<double>(packed.tensor_scale);
        to[i] = stored_form<T>(static_cast<float>((code & 8U) != 0 ? -magnitude : magnitude), 1.0F);
      }
    }
  });
  return {};
}

}  // namespace kvpool::kernels
