#include "multigpu/ordered_sum.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace kvpool::multigpu {

namespace {

constexpr std::size_t kChunk = 1024;  // elements; one level of the tree stays in the first-level cache
using Chunk = std::array<float, kChunk>;

void load(const float* from, std::size_t count, Chunk& into) { std::memcpy(into.data(), from, count * sizeof(float)); }

void load(const std::uint16_t* from, std::size_t count, Chunk& into) {
  for (std::size_t i = 0; i < count; ++i) into[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16U);
}

void store(const Chunk& from, std::size_t count, float* into) { std::memcpy(into, from.data(), count * sizeof(float)); }

void store(const Chunk& from, std::size_t count, std::uint16_t* into) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(from[i]);
    const bool is_nan = (bits & 0x7fff'ffffU) > 0x7f80'0000U;
    const std::uint32_t rounded = is_nan ? (bits | 0x0040'0000U) : bits + 0x7fffU + ((bits >> 16U) & 1U);
    into[i] = static_cast<std::uint16_t>(rounded >> 16U);
  }
}

template <class T>
void add_up(std::span<const T* const> parts, std::size_t offset, std::size_t count, Chunk& into) {
  if (parts.size() == 1) {
    load(parts[0] + offset, count, into);
    return;
  }
  const std::size_t left = std::bit_floor(parts.size() - 1);
  Chunk right;
  add_up(parts.first(left), offset, count, into);
  add_up(parts.subspan(left), offset, count, right);
  for (std::size_t i = 0; i < count; ++i) into[i] += right[i];
}

template <class T>
void sum_in_chunks(std::span<const T* const> parts, T* out, std::size_t count) {
  Chunk total;
  for (std::size_t offset = 0; offset < count; offset += kChunk) {
    const std::size_t length = std::min(kChunk, count - offset);
    add_up(parts, offset, length, total);
    store(total, length, out + offset);
  }
}

}  // namespace

void tree_sum(std::span<const float* const> parts, float* out, std::size_t count) { sum_in_chunks(parts, out, count); }

void tree_sum(std::span<const std::uint16_t* const> parts, std::uint16_t* out, std::size_t count) {
  sum_in_chunks(parts, out, count);
}

}  // namespace kvpool::multigpu
