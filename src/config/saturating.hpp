// Arithmetic on byte and block counts that sticks at the largest int64 instead of wrapping: a number
// that large fits in no memory, so every comparison made with it still has the right answer.
#pragma once

#include <cstdint>
#include <limits>

namespace kvpool::config {

inline constexpr std::int64_t kSaturated = std::numeric_limits<std::int64_t>::max();

// All operands are non-negative.
constexpr std::int64_t add(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kSaturated : sum;
}

constexpr std::int64_t mul(std::int64_t a, std::int64_t b) noexcept {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kSaturated : product;
}

// Quotient rounded up; the divisor is positive. Never overflows.
constexpr std::int64_t cdiv(std::int64_t a, std::int64_t b) noexcept { return a / b + (a % b > 0 ? 1 : 0); }

constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) noexcept {
  return mul(cdiv(a, multiple), multiple);
}

}  // namespace kvpool::config
