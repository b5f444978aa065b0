// A stack of blank free blocks: Treiber's, with chains pushed and popped in one step.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "block/block_protocol.hpp"
#include "foundation/cache_line.hpp"

namespace kvpool {

/// Links run through the blocks' own lines; block 0 ends a chain. `top` carries a tag that every change
/// raises, so a pop that slept through pops and pushes fails (modulo 2^32 changes during one pop).
///
/// Popping means owning: a block that was popped is reachable by nobody else.
template <template <class> class Atom>
class BlockStack {
 public:
  using Protocol = BlockProtocol<Atom>;

  /// Blocks chained by one thread before they are pushed: first in, first out of the stack.
  class Chain {
   public:
    [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
    [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
    void append(Protocol& protocol, std::uint32_t block) noexcept {
      if (size_ == 0) {
        first_ = block;
      } else {
        protocol.line(last_).next.store(block, std::memory_order_relaxed);  // [T1]
      }
      last_ = block;
      ++size_;
    }

   private:
    friend class BlockStack;
    std::uint32_t first_ = 0;
    std::uint32_t last_ = 0;
    std::uint32_t size_ = 0;
  };

  /// Puts the chain on top, its first block uppermost. Lock-free.
  void push(Protocol& protocol, const Chain& chain) noexcept {
    if (chain.empty()) return;
    std::uint64_t top = top_.load(std::memory_order_relaxed);  // [H]
    do {
      protocol.line(chain.last_).next.store(index_of(top), std::memory_order_relaxed);  // [T1]
    } while (!top_.compare_exchange_weak(top, raised(top, chain.first_), std::memory_order_release,
                                         std::memory_order_relaxed));  // [T1] links and state before the top
    count_.fetch_add(chain.size_, std::memory_order_relaxed);          // [H]
  }

  /// Pops at most out.size() blocks, uppermost first, and answers how many. Lock-free.
  [[nodiscard]] std::size_t pop(Protocol& protocol, std::span<std::uint32_t> out) noexcept {
    std::uint64_t top = top_.load(std::memory_order_acquire);  // [T2]
    for (;;) {
      std::size_t taken = 0;
      std::uint32_t block = index_of(top);
      while (block != 0 && taken < out.size()) {
        out[taken++] = block;
        // A link read while others pop and push may be outdated; then the tag has changed and the exchange
        // below fails. It is always the number of some block.
        block = protocol.line(block).next.load(std::memory_order_relaxed);  // [T2]
      }
      if (taken == 0) return 0;
      if (top_.compare_exchange_weak(top, raised(top, block), std::memory_order_acquire,
                                     std::memory_order_acquire)) {  // [T2] everything before the push of [T1]
        count_.fetch_sub(static_cast<std::uint32_t>(taken), std::memory_order_relaxed);  // [H]
        return taken;
      }
    }
  }

  /// Size as a hint: may be off by operations in progress, also below zero.
  [[nodiscard]] std::int64_t count_hint() const noexcept {
    return static_cast<std::int32_t>(count_.load(std::memory_order_relaxed));  // [H]
  }

  /// Calls visit(block) from the top; only while nobody else works on the stack.
  template <class Visit>
  void for_each(const Protocol& protocol, Visit visit) const {
    for (std::uint32_t block = index_of(top_.load(std::memory_order_acquire)); block != 0;  // [T2]
         block = protocol.line(block).next.load(std::memory_order_relaxed)) {
      visit(block);
    }
  }

 private:
  static constexpr std::uint32_t index_of(std::uint64_t top) noexcept { return static_cast<std::uint32_t>(top); }
  static constexpr std::uint64_t raised(std::uint64_t top, std::uint32_t block) noexcept {
    return (((top >> 32U) + 1U) << 32U) | block;
  }

  alignas(kCacheLineBytes) Atom<std::uint64_t> top_{0};  ///< tag:32 | block:32
  Atom<std::uint32_t> count_{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace kvpool
