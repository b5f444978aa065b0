#include "kernels/cpu/row_states.hpp"

#include <cmath>

namespace kvpool::kernels {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

/// exp(x - max), where both may be -infinity: then 1, so that a NaN in the part it weighs is kept.
float weight(float x, float max) noexcept {
  if (x == max) return 1;
  return static_cast<float>(std::exp(static_cast<double>(x) - static_cast<double>(max)));
}

}  // namespace

void copy_row(const RowStates& part, const RowStates& total, std::int64_t r) noexcept {
  for (std::int64_t d = 0; d < part.stride; ++d) total.acc[r * part.stride + d] = part.acc[r * part.stride + d];
  total.max[r] = part.max[r];
  total.sum[r] = part.sum[r];
}

void fold_row(const RowStates& part, const RowStates& total, std::int64_t r) noexcept {
  const float max = part.max[r] > total.max[r] ? part.max[r] : total.max[r];
  const float old = weight(total.max[r], max);
  const float add = weight(part.max[r], max);
  float* acc = total.acc + r * total.stride;
  const float* more = part.acc + r * part.stride;
  for (std::int64_t d = 0; d < total.stride; ++d) acc[d] = acc[d] * old + more[d] * add;
  total.sum[r] = total.sum[r] * old + part.sum[r] * add;
  total.max[r] = max;
}

float merge_row(const float* a, float lse_a, const float* b, float lse_b, float* out, std::int64_t dim) noexcept {
  const bool no_a = lse_a == kMinusInfinity;
  const bool no_b = lse_b == kMinusInfinity;
  if (no_a || no_b) {
    const float* source = no_a ? b : a;
    for (std::int64_t d = 0; d < dim; ++d) out[d] = no_a && no_b ? 0 : source[d];
    return no_a ? lse_b : lse_a;
  }
  const float max = lse_b > lse_a ? lse_b : lse_a;
  const double old = std::exp(static_cast<double>(lse_a) - static_cast<double>(max));
  const double add = std::exp(static_cast<double>(lse_b) - static_cast<double>(max));
  const auto part_a = static_cast<float>(old / (old + add));
  const auto part_b = static_cast<float>(add / (old + add));
  for (std::int64_t d = 0; d < dim; ++d) out[d] = part_a * a[d] + part_b * b[d];
  return static_cast<float>(static_cast<double>(max) + std::log(old + add));
}

}  // namespace kvpool::kernels
