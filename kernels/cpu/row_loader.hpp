// What row loaders have in common: how many vectors they fill, and where the elements of a row come to stand in them.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids.
#pragma once

#include <cstdint>

namespace kvpool::kernels {
namespace {

/// Elements keep their order; no dot products of bf16.
template <int Vecs>
struct InOrder {
  static constexpr int kVecs = Vecs;
  static constexpr bool kBf16Dot = false;
  static std::int64_t place(std::int64_t i) { return i; }
  static std::int64_t bf16_place(std::int64_t i) { return i; }
};

/// Two vectors from pairs: the even members come first, then the odd ones.
template <int Lanes>
struct EvenThenOdd : InOrder<2> {
  static std::int64_t place(std::int64_t i) { return (i % 2) * Lanes + i / 2; }
};

}  // namespace
}  // namespace kvpool::kernels
