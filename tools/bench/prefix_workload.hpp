// The workload `prefix`: many requests over a few thousand shared prefixes, on a pool that is nearly full.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <thread>
#include <vector>

#include "kvpool/block/block_hash.hpp"

namespace kvpool::tools {

inline constexpr std::size_t kPrefixBlocks = 32;   ///< hashes a request looks up
inline constexpr std::size_t kNewBlocks = 64;      ///< blocks it allocates in one call
inline constexpr std::size_t kPrivateHashes = 24;  ///< hashes it publishes that nobody looks up
inline constexpr std::uint32_t kPoolBlocks = 65'536;

/// Hashes of all prefixes; groups of 16 prefixes have their first 8 blocks in common. The same in every run.
class PrefixTable {
 public:
  static constexpr std::size_t kPrefixes = 4'096;

  PrefixTable();
  [[nodiscard]] std::span<const BlockHash> chain(std::size_t prefix) const noexcept {
    return std::span(hashes_).subspan(prefix * kPrefixBlocks, kPrefixBlocks);
  }

 private:
  std::vector<BlockHash> hashes_;
};

/// A digest of 32 random-looking bytes that depends on `number` alone.
[[nodiscard]] BlockHash numbered_hash(std::uint64_t number) noexcept;

/// Prefix numbers with Zipf's distribution, exponent 0.99, drawn in advance.
class ZipfSequence {
 public:
  explicit ZipfSequence(std::uint64_t seed);
  [[nodiscard]] std::size_t next() noexcept {
    position_ = (position_ + 1) % draws_.size();
    return draws_[position_];
  }

 private:
  std::vector<std::uint16_t> draws_;
  std::size_t position_ = 0;
};

/// Counts of one thread.
struct PrefixCounts {
  std::uint64_t block_ops = 0;  ///< pins, allocations, publications, releases of one block each
  std::uint64_t requests = 0;
  std::uint64_t hit_blocks = 0;

  PrefixCounts& operator+=(const PrefixCounts& other) noexcept {
    block_ops += other.block_ops;
    requests += other.requests;
    hit_blocks += other.hit_blocks;
    return *this;
  }
};

/// One thread's requests. Keeps them alive from run to run; `live_limit` of them at most.
class PrefixWorker {
 public:
  PrefixWorker(const PrefixTable& table, std::uint64_t number, std::size_t live_limit)
      : table_(&table), zipf_(number), live_limit_(live_limit), private_base_((number + 1) << 40U) {}

  /// One request. `timed(call)` runs each call of the pool.
  template <class Pool, class Timed>
  void step(Pool& pool, Timed&& timed) {
    const std::span<const BlockHash> chain = table_->chain(zipf_.next());
    Request request;
    timed([&] { request.pinned = pool.match_and_pin(chain, std::span(request.blocks).first(kPrefixBlocks)); });
    const std::span<BlockId> fresh = std::span(request.blocks).subspan(request.pinned, kNewBlocks);
    bool allocated = false;
    for (;;) {
      timed([&] { allocated = pool.allocate(fresh); });
      if (allocated) {
        break;
      }
      if (live_.empty()) {
        std::this_thread::yield();  // others hold everything
      } else {
        release_oldest(pool, timed);
      }
    }
    publish(pool, chain, request, timed);
    counts.block_ops += request.pinned + kNewBlocks;
    counts.hit_blocks += request.pinned;
    ++counts.requests;
    live_.push_back(request);
    if (live_.size() > live_limit_) {
      release_oldest(pool, timed);
    }
  }

  PrefixCounts counts;

 private:
  struct Request {
    std::array<BlockId, kPrefixBlocks + kNewBlocks> blocks{};
    std::size_t pinned = 0;
  };

  template <class Pool, class Timed>
  void publish(Pool& pool, std::span<const BlockHash> chain, const Request& request, Timed&& timed) {
    std::array<BlockHash, kPrefixBlocks + kPrivateHashes> hashes;
    std::size_t count = 0;
    for (std::size_t i = request.pinned; i < kPrefixBlocks; ++i) {
      hashes[count++] = chain[i];
    }
    for (std::size_t i = 0; i < kPrivateHashes; ++i) {
      hashes[count++] = numbered_hash(private_base_ + private_count_++);
    }
    const auto blocks = std::span(request.blocks).subspan(request.pinned, count);
    timed([&] { pool.publish(blocks, std::span(hashes).first(count)); });
    counts.block_ops += count;
  }

  template <class Pool, class Timed>
  void release_oldest(Pool& pool, Timed&& timed) {
    const Request& oldest = live_.front();
    std::array<BlockId, kPrefixBlocks + kNewBlocks> reversed{};
    const std::size_t count = oldest.pinned + kNewBlocks;
    for (std::size_t i = 0; i < count; ++i) {
      reversed[i] = oldest.blocks[count - 1 - i];
    }
    timed([&] { pool.release(std::span(reversed).first(count)); });
    counts.block_ops += count;
    live_.pop_front();
  }

  const PrefixTable* table_;
  ZipfSequence zipf_;
  std::size_t live_limit_;
  std::uint64_t private_base_;
  std::uint64_t private_count_ = 0;
  std::deque<Request> live_;
};

}  // namespace kvpool::tools
