// Where things stand in a 656-byte fp8 row of latent attention; see latent_rows.hpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/number_formats.hpp"
#include "kvpool/kernels/latent_rows.hpp"

namespace kvpool::kernels {

inline constexpr std::int64_t kLatentKeyDim = kLatentDim + kLatentRopeDim;
inline constexpr std::int64_t kLatentGroups = kLatentDim / kLatentScaleGroup;
inline constexpr std::int64_t kLatentScalesAt = kLatentDim;  ///< bytes
inline constexpr std::int64_t kLatentRopeAt = kLatentScalesAt + kLatentGroups * 4;
static_assert(kLatentRopeAt + kLatentRopeDim * 2 == kLatentRowBytes);

/// Copies, since rows need not be aligned.
template <class T>
T get_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

/// Element d of 576.
inline double latent_element(const std::byte* row, std::int64_t d) {
  if (d >= kLatentDim) return static_cast<double>(to_float(get_as<Bf16>(row + kLatentRopeAt + (d - kLatentDim) * 2)));
  const auto scale = get_as<float>(row + kLatentScalesAt + d / kLatentScaleGroup * 4);
  return static_cast<double>(to_float(get_as<E4m3>(row + d))) * static_cast<double>(scale);
}

}  // namespace kvpool::kernels
