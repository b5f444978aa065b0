// Threads that share prefixes through a small pool, and the content that betrays a pool that cheats.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kvpool/pool/block_pool.hpp"

namespace kvpool::testing {

inline std::size_t scaled(std::size_t small, std::size_t large) {
  const char* scale = std::getenv("KVPOOL_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "long" ? large : small;
}

inline BlockKey make_key(std::uint64_t number, std::uint32_t group = 0) {
  BlockKey key;
  std::array<std::uint8_t, 32> digest{};
  for (std::size_t i = 0; i < digest.size(); ++i) digest[i] = static_cast<std::uint8_t>(number >> (8 * (i % 8)));
  key.hash = BlockHash::from_digest(digest);
  key.group = GroupId{group};
  return key;
}

/// What the blocks hold. Plain words on purpose: only the pool keeps one thread's writes from another's reads.
class Contents {
 public:
  explicit Contents(std::uint32_t num_blocks) : words_(num_blocks) {}
  void write(BlockId block, std::uint64_t pattern) { words_[block.value()].fill(pattern); }
  [[nodiscard]] bool holds(BlockId block, std::uint64_t pattern) const {
    for (const std::uint64_t word : words_[block.value()]) {
      if (word != pattern) return false;
    }
    return true;
  }

 private:
  std::vector<std::array<std::uint64_t, 4>> words_;
};

struct WorkloadOptions {
  std::uint32_t threads = 4;
  std::size_t requests_per_thread = 2'000;
  std::uint32_t chains = 128;
  std::uint32_t chain_length = 4;
  std::uint32_t most_alive = 2;  ///< requests that a thread keeps
  bool announce = false;         ///< describe what is stored, as the manager does
  std::uint64_t seed = 1;
};

struct WorkloadResult {
  std::uint64_t hits = 0;
  std::uint64_t allocated = 0;
  std::uint64_t refused = 0;
  std::uint64_t lost = 0;
  std::uint64_t wrong_content = 0;        ///< must be 0
  std::uint64_t counts_out_of_range = 0;  ///< must be 0
};

/// One scheduler thread: matches and pins a chain, allocates the rest, writes, publishes, holds, releases.
template <class Pool>
class Scheduler {
 public:
  Scheduler(Pool& pool, Contents& contents, const WorkloadOptions& options, std::uint32_t number)
      : pool_(pool), contents_(contents), options_(options), random_(options.seed * 1'000'003 + number) {}

  void run() {
    for (std::size_t i = 0; i < options_.requests_per_thread; ++i) {
      serve(static_cast<std::uint32_t>(random_() % options_.chains));
      if (pool_.num_free_blocks() > pool_.num_blocks() - 1) ++result_.counts_out_of_range;
      while (alive_.size() > random_() % (options_.most_alive + 1)) release_oldest();
    }
    while (!alive_.empty()) release_oldest();
  }

  [[nodiscard]] const WorkloadResult& result() const { return result_; }

 private:
  struct Request {
    std::uint32_t chain;
    std::vector<BlockId> blocks;
  };

  [[nodiscard]] std::uint64_t number_of(std::uint32_t chain, std::size_t position) const {
    // Every other chain shares its first half with its neighbour.
    const std::uint64_t owner = position < options_.chain_length / 2 ? chain / 2 * 2 : chain;
    return (owner << 16U) | (position + 1);
  }

  void serve(std::uint32_t chain) {
    std::vector<BlockHash> hashes;
    for (std::size_t i = 0; i < options_.chain_length; ++i) hashes.push_back(make_key(number_of(chain, i)).hash);
    std::vector<BlockHandle> handles(hashes.size());
    const std::size_t hits = pool_.find_prefix(HashChain{hashes, 1}, GroupId{0}, handles);
    auto reservation = pool_.try_reserve(options_.chain_length);
    if (!reservation) {
      ++result_.refused;
      return;
    }
    if (random_() % 4 == 0) std::this_thread::yield();  // what was found may be recycled before it is pinned
    Request request{chain, {}};
    for (std::size_t i = 0; i < hits; ++i) {
      if (!pool_.pin(handles[i], make_key(number_of(chain, i)), *reservation)) {
        ++result_.lost;
        release(request);
        return;
      }
      request.blocks.push_back(handles[i].id);
    }
    std::vector<BlockId> fresh(options_.chain_length - hits);
    pool_.allocate(*reservation, fresh);
    result_.hits += hits;
    result_.allocated += fresh.size();
    verify(request);
    for (const BlockId block : fresh) request.blocks.push_back(block);
    for (std::size_t i = hits; i < request.blocks.size(); ++i) {
      const std::uint64_t pattern = number_of(chain, i);
      contents_.write(request.blocks[i], pattern);
      if (options_.announce) {
        BlockStoredEvent stored;
        stored.block_hashes.push_back(make_key(pattern).hash);
        stored.group_idx = 0;
        pool_.append_event(std::move(stored));
      }
      pool_.publish(request.blocks[i], make_key(pattern), static_cast<std::int64_t>(i + 1));
    }
    alive_.push_back(std::move(request));
  }

  void verify(const Request& request) {
    for (std::size_t i = 0; i < request.blocks.size(); ++i) {
      if (!contents_.holds(request.blocks[i], number_of(request.chain, i))) ++result_.wrong_content;
    }
  }
  void release(Request& request) {
    verify(request);
    std::vector<BlockId> blocks(request.blocks.rbegin(), request.blocks.rend());
    if (!pool_.free_blocks(blocks)) ++result_.wrong_content;
  }
  void release_oldest() {
    release(alive_.front());
    alive_.pop_front();
  }

  Pool& pool_;
  Contents& contents_;
  const WorkloadOptions& options_;
  std::mt19937_64 random_;
  std::deque<Request> alive_;
  WorkloadResult result_;
};

/// Runs the threads to their end, and `beside(stop)` next to them, and adds the results up.
template <class Pool, class Beside>
WorkloadResult run_workload(Pool& pool, const WorkloadOptions& options, Beside beside) {
  Contents contents(pool.num_blocks());
  std::vector<Scheduler<Pool>> schedulers;
  for (std::uint32_t i = 0; i < options.threads; ++i) schedulers.emplace_back(pool, contents, options, i);
  std::atomic<bool> stop{false};
  std::thread companion([&] { beside(stop); });
  std::vector<std::thread> threads;
  for (auto& scheduler : schedulers) threads.emplace_back([&scheduler] { scheduler.run(); });
  for (auto& thread : threads) thread.join();
  stop.store(true, std::memory_order_relaxed);
  companion.join();
  WorkloadResult sum;
  for (const auto& scheduler : schedulers) {
    sum.hits += scheduler.result().hits;
    sum.allocated += scheduler.result().allocated;
    sum.refused += scheduler.result().refused;
    sum.lost += scheduler.result().lost;
    sum.wrong_content += scheduler.result().wrong_content;
    sum.counts_out_of_range += scheduler.result().counts_out_of_range;
  }
  return sum;
}

template <class Pool>
WorkloadResult run_workload(Pool& pool, const WorkloadOptions& options) {
  return run_workload(pool, options, [](const std::atomic<bool>&) {});
}

/// Nobody holds anything any more: every block is there once, and every count says so.
template <class Pool>
void expect_at_rest(const Pool& pool) {
  const Status sound = pool.check_invariants();
  EXPECT_TRUE(sound.ok()) << sound.error().message;
  EXPECT_EQ(pool.num_free_blocks(), pool.num_blocks() - 1);
  EXPECT_EQ(pool.free_order().size(), pool.num_blocks() - 1);
  const PoolCounts counts = pool.counts();
  EXPECT_EQ(counts.free, counts.usable);
  EXPECT_EQ(counts.referenced + counts.fenced + counts.reserved, 0U);
}

}  // namespace kvpool::testing
