// Everything about one block in one cache line: a look-up that hits touches the index and this line.
#pragma once

#include <atomic>
#include <cstdint>

#include "block/key_words.hpp"
#include "foundation/cache_line.hpp"

namespace kvpool {

/// `Atom` is std::atomic in the shipped library and a scheduler's atomic in model checks.
///
/// All words but `state` are relaxed: they are written only by whoever owns the block for writing, and
/// become valid for others through `state` (HASHED is set with release, loaded with acquire).
template <template <class> class Atom>
struct alignas(kCacheLineBytes) BlockLine {
  static constexpr unsigned kOrdinalBits = 24;
  static constexpr std::uint64_t kMaxOrdinal = (std::uint64_t{1} << kOrdinalBits) - 1;

  Atom<std::uint64_t> state{0};
  Atom<std::uint64_t> digest[4]{};
  Atom<std::uint64_t> coverage{0};  ///< covered tokens:40 | ordinal among equal keys:24
  Atom<std::uint32_t> shape{0};     ///< group and digest length
  Atom<std::uint32_t> version{0};   ///< number of the last registration of a primary key
  Atom<std::uint32_t> next{0};      ///< next block of the stack, 0 = last
  Atom<std::uint32_t> slot{0};      ///< position of the primary key in the index

  void store_key(const KeyWords& key, std::uint64_t covered_tokens, std::uint64_t ordinal) noexcept {
    digest[0].store(key.digest[0], std::memory_order_relaxed);  // [K1]
    digest[1].store(key.digest[1], std::memory_order_relaxed);  // [K1]
    digest[2].store(key.digest[2], std::memory_order_relaxed);  // [K1]
    digest[3].store(key.digest[3], std::memory_order_relaxed);  // [K1]
    shape.store(key.shape, std::memory_order_relaxed);          // [K1]
    const std::uint64_t capped = ordinal < kMaxOrdinal ? ordinal : kMaxOrdinal;
    coverage.store((covered_tokens << kOrdinalBits) | capped, std::memory_order_relaxed);  // [K1]
  }

  [[nodiscard]] KeyWords load_key() const noexcept {
    KeyWords key;
    for (std::size_t i = 0; i < 4; ++i) key.digest[i] = digest[i].load(std::memory_order_relaxed);  // [K2]
    key.shape = shape.load(std::memory_order_relaxed);                                              // [K2]
    return key;
  }

  /// Compares word by word and stops at the first difference. The loads acquire, so that a caller who
  /// holds a reference sees one registration's words or at least one word that differs.
  [[nodiscard, gnu::always_inline]] bool has_key(const KeyWords& key) const noexcept {
    for (std::size_t i = 0; i < 4; ++i) {
      if (digest[i].load(std::memory_order_acquire) != key.digest[i]) return false;  // [K2]
    }
    return shape.load(std::memory_order_acquire) == key.shape;  // [K2]
  }

  [[nodiscard]] std::uint64_t covered_tokens() const noexcept {
    return coverage.load(std::memory_order_relaxed) >> kOrdinalBits;  // [K2]
  }
  [[nodiscard]] std::uint64_t ordinal() const noexcept {
    return coverage.load(std::memory_order_relaxed) & kMaxOrdinal;  // [K2]
  }
};

static_assert(sizeof(BlockLine<std::atomic>) == kCacheLineBytes, "one block, one line");
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace kvpool
