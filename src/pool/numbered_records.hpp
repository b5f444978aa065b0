// Records that live as long as their owner and are told apart by numbers: storage that grows without moving them, and
// stacks of those that are not in use.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "foundation/aligned_array.hpp"
#include "foundation/prefetch.hpp"

namespace kvpool {

/// Records numbered from 0 in the order in which they were added.
template <template <class> class Atom, class Record>
class NumberedRecords {
 public:
  NumberedRecords() = default;
  NumberedRecords(const NumberedRecords&) = delete;
  NumberedRecords& operator=(const NumberedRecords&) = delete;
  ~NumberedRecords() {
    for (auto& chunk : chunks_) delete chunk.load(std::memory_order_acquire);  // [K7]
  }

  /// A record that nobody had before; empty when the number space is used up. Lock-free.
  [[nodiscard]] std::optional<std::uint32_t> add() {
    const std::uint32_t number = used_.fetch_add(1, std::memory_order_relaxed);  // [H]
    if (number >= kMaxRecords) return std::nullopt;
    install_chunk(chunk_of(number));
    return number;
  }

  [[nodiscard]] Record& operator[](std::uint32_t number) noexcept {
    const std::size_t chunk = chunk_of(number);
    return (*chunks_[chunk].load(std::memory_order_acquire))[number - first_of(chunk)];  // [K7]
  }
  [[nodiscard]] const Record& operator[](std::uint32_t number) const noexcept {
    const std::size_t chunk = chunk_of(number);
    return (*chunks_[chunk].load(std::memory_order_acquire))[number - first_of(chunk)];  // [K7]
  }

 private:
  static constexpr std::uint32_t kFirstChunk = 64;
  static constexpr std::size_t kChunks = 24;
  static constexpr std::uint32_t kMaxRecords = kFirstChunk * ((1U << kChunks) - 1U);
  using Chunk = AlignedArray<Record>;

  /// Chunk c holds kFirstChunk << c records, so numbers map to chunks by their highest bit.
  static constexpr std::size_t chunk_of(std::uint32_t number) noexcept {
    return static_cast<std::size_t>(std::bit_width((number / kFirstChunk) + 1U)) - 1U;
  }
  static constexpr std::uint32_t first_of(std::size_t chunk) noexcept { return kFirstChunk * ((1U << chunk) - 1U); }

  void install_chunk(std::size_t chunk) {
    if (chunks_[chunk].load(std::memory_order_acquire) != nullptr) return;  // [K7]
    auto fresh = std::make_unique<Chunk>(std::size_t{kFirstChunk} << chunk);
    Chunk* expected = nullptr;
    if (chunks_[chunk].compare_exchange_strong(expected, fresh.get(), std::memory_order_acq_rel,
                                               std::memory_order_acquire)) {  // [K7]
      static_cast<void>(fresh.release());
    }
  }

  static_assert(std::atomic<std::uint32_t>::is_always_lock_free && std::atomic<Chunk*>::is_always_lock_free);
  std::array<Atom<Chunk*>, kChunks> chunks_{};
  Atom<std::uint32_t> used_{0};
};

/// Records that are not in use, linked through their member `next`. A record that was popped is its popper's alone,
/// with everything that was written to it before it was pushed.
template <template <class> class Atom>
class FreeRecords {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffU;

  /// Empty: there is none. Lock-free.
  template <class Records>
  [[nodiscard]] std::optional<std::uint32_t> pop(Records& records) noexcept {
    std::uint64_t top = top_.load(std::memory_order_acquire);  // [K6]
    while (number_of(top) != kNone) {
      // A link read while others pop and push may be outdated; then the tag has changed and the exchange fails.
      const std::uint32_t next = records[number_of(top)].next.load(std::memory_order_relaxed);
      if (top_.compare_exchange_weak(top, raised(top, next), std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {  // [K6]
        if (next != kNone) prefetch_to_write(&records[next]);       // for who comes next
        return number_of(top);
      }
    }
    return std::nullopt;
  }

  /// Pushes the records from `first` to `last`, which the caller has linked. Lock-free.
  template <class Records>
  void push(Records& records, std::uint32_t first, std::uint32_t last) noexcept {
    std::uint64_t top = top_.load(std::memory_order_relaxed);  // [H]
    do {
      records[last].next.store(number_of(top), std::memory_order_relaxed);
    } while (!top_.compare_exchange_weak(top, raised(top, first), std::memory_order_acq_rel,
                                         std::memory_order_relaxed));  // [K6]
  }

 private:
  static constexpr std::uint32_t number_of(std::uint64_t top) noexcept { return static_cast<std::uint32_t>(top); }
  static constexpr std::uint64_t raised(std::uint64_t top, std::uint32_t number) noexcept {
    return (((top >> 32U) + 1U) << 32U) | number;
  }

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
  Atom<std::uint64_t> top_{kNone};  ///< tag:32 | record:32
};

}  // namespace kvpool
