// Which other shard has fallen idle, so that everything in it is older than everything here.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "foundation/cache_line.hpp"

namespace kvpool {

/// A thread that the system moves to another processor leaves content behind in the order of its former shard. Nobody
/// releases there, so nobody evicts there either, and the thread would evict young content of its own first. So every
/// shard looks at one other shard at a time: if nothing was put into that one's order while twice as much was put into
/// this one's as it held, the other order is the older one and is used up first, blank blocks included, until nothing
/// is left but what was put into it since. Then the next shard is looked at.
///
/// All of it is a hint about order, for which any thread may be late or wrong: relaxed, and seldom a line of another
/// shard. Wait-free.
template <template <class> class Atom>
class ShardWatch {
 public:
  /// The shard to take from first, if there is one. `shards` has the orders of all, two or more; `self` is this one.
  template <class Shards>
  [[nodiscard]] std::optional<std::uint32_t> idle(const Shards& shards, std::uint32_t self) noexcept {
    const std::uint64_t puts = shards[self]->order.puts_hint();
    const std::uint32_t verdict = verdict_.load(std::memory_order_relaxed);  // [H]
    const std::uint32_t shard = verdict & ~kIdle;
    const auto put_since = [&] {
      return shards[shard]->order.puts_hint() - seen_.load(std::memory_order_relaxed);  // [H]
    };
    if (static_cast<std::int64_t>(puts - due_.load(std::memory_order_relaxed)) < 0) {  // [H]
      if ((verdict & kIdle) == 0) return std::nullopt;
      const std::uint64_t young = put_since();
      if (young == 0 || young < shards[shard]->order.span_hint()) return shard;
    }
    due_.store(puts + (2 * shards[self]->order.span_hint()) + kLeastPeriod, std::memory_order_relaxed);  // [H]
    if (shard != kNobody && put_since() == 0) {
      verdict_.store(shard | kIdle, std::memory_order_relaxed);  // [H]
      return shard;
    }
    const auto count = static_cast<std::uint32_t>(shards.size());
    std::uint32_t next = ((shard == kNobody ? self : shard) + 1) % count;
    if (next == self) next = (next + 1) % count;
    seen_.store(shards[next]->order.puts_hint(), std::memory_order_relaxed);  // [H]
    verdict_.store(next, std::memory_order_relaxed);                          // [H]
    return std::nullopt;
  }

  /// Nothing is left in the idle shard.
  void used_up() noexcept {
    seen_.store(kNever, std::memory_order_relaxed);                                                // [H]
    verdict_.store(verdict_.load(std::memory_order_relaxed) & ~kIdle, std::memory_order_relaxed);  // [H]
  }

 private:
  static constexpr std::uint32_t kIdle = 1U << 31U;
  static constexpr std::uint32_t kNobody = kIdle - 1;
  static constexpr std::uint64_t kNever = ~std::uint64_t{0};
  static constexpr std::uint64_t kLeastPeriod = 64;

  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
  alignas(kCacheLineBytes) Atom<std::uint32_t> verdict_{kNobody};  ///< idle:1 | shard looked at:31
  Atom<std::uint64_t> seen_{0};                                    ///< what had been put there
  Atom<std::uint64_t> due_{0};                                     ///< what will have been put here at the next look
};

}  // namespace kvpool
