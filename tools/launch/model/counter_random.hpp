// Random numbers without state: element `index` of stream `stream` is a pure function of the seed, so every
// rank computes exactly its own slice of a matrix and all ranks agree on the whole.
#pragma once

#include <cstdint>

namespace kvpool::launch {

/// Finalizer with full avalanche over 64 bits.
[[nodiscard]] constexpr std::uint64_t mix_bits(std::uint64_t x) noexcept {
  x ^= x >> 32U;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32U;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32U;
  return x;
}

class CounterRandom {
 public:
  constexpr CounterRandom(std::uint64_t seed, std::uint64_t stream) noexcept
      : key_(mix_bits(mix_bits(seed ^ 0x6b76706f6f6cULL) + stream * 0x9e3779b97f4a7c15ULL)) {}

  /// Uniform in [-1, 1), a multiple of 2^-23: exact in float.
  [[nodiscard]] constexpr float uniform(std::uint64_t index) const noexcept {
    const std::uint64_t bits = mix_bits(key_ + index * 0x9e3779b97f4a7c15ULL) >> 40U;
    return static_cast<float>(static_cast<std::int32_t>(bits) - (1 << 23)) * 0x1p-23F;
  }

 private:
  std::uint64_t key_;
};

}  // namespace kvpool::launch
