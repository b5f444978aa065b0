// Latencies that averages hide: releases beside much cold content, allocations beside long look-ups. And what
// features cost: events, counters, huge pages, metadata, construction.
#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <variant>

#include "foundation/array_memory.hpp"
#include "tools/bench/families.hpp"
#include "tools/bench/prefix_runner.hpp"
#include "tools/bench/rivals/kvpool_adapter.hpp"
#include "tools/bench/rivals/lean_pool.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kLongChain = 8'192;
constexpr std::uint32_t kDefaultShards = 0;
constexpr std::uint32_t kLargePool = 4'194'304;

std::vector<BlockHash> numbered_hashes(std::uint64_t first, std::size_t count) {
  std::vector<BlockHash> hashes(count);
  for (std::size_t i = 0; i < count; ++i) {
    hashes[i] = numbered_hash(first + i);
  }
  return hashes;
}

/// Gives `hashes` to new blocks and releases them: content that nobody uses.
template <class Pool>
void fill(Pool& pool, std::span<const BlockHash> hashes) {
  std::array<BlockId, kBatch> blocks{};
  for (std::size_t i = 0; i < hashes.size(); i += kBatch) {
    const std::size_t count = std::min(kBatch, hashes.size() - i);
    const auto batch = std::span(blocks).first(count);
    if (pool.allocate(batch)) {
      pool.publish(batch, hashes.subspan(i, count));
      pool.release(batch);
    }
  }
}

/// 32 blocks are pinned and released again and again while nine tenths of the pool are cold content.
template <class Pool>
Contender hot_release(const BenchPlan& plan, std::string name) {
  auto pool = std::make_shared<Pool>(kPoolBlocks);
  const std::vector<BlockHash> cold = numbered_hashes(1, kPoolBlocks * 9 / 10);
  const auto hot = std::make_shared<std::vector<BlockHash>>(numbered_hashes(std::uint64_t{1} << 40U, kPrefixBlocks));
  fill(*pool, cold);
  fill(*pool, *hot);
  return {{"hot_release"}, std::move(name), 1, [=, seconds = plan.seconds] {
            LatencyHistogram releases;
            std::array<BlockId, kPrefixBlocks> blocks{};
            const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
            while (std::chrono::steady_clock::now() < end) {
              const std::size_t pinned = pool->match_and_pin(*hot, blocks);
              const auto start = std::chrono::steady_clock::now();
              pool->release(std::span(blocks).first(pinned));
              releases.record(std::chrono::steady_clock::now() - start);
            }
            Sample sample;
            sample.latency_us = releases.percentiles();
            sample.more["p999_over_p50"] = sample.latency_us->p999 / std::max(sample.latency_us->p50, 1e-3);
            return std::vector<Sample>{sample};
          }};
}

/// Allocations of one thread, alone or while another one matches a chain of 8,192 blocks without a pause.
Contender allocate_beside_match(const BenchPlan& plan, bool beside) {
  auto adapter = std::make_shared<KvpoolAdapter>(kPoolBlocks);
  const auto chain = std::make_shared<std::vector<BlockHash>>(numbered_hashes(1, kLongChain));
  fill(*adapter, *chain);
  return {{"allocate_beside_match"}, beside ? "beside" : "idle", beside ? 2U : 1U, [=, seconds = plan.seconds] {
            std::atomic<bool> stop{false};
            std::thread matcher;
            if (beside) {
              matcher = std::thread([&] {
                std::vector<BlockHandle> handles(kLongChain);
                while (!stop.load(std::memory_order_relaxed)) {
                  (void)adapter->pool().find_prefix({*chain, 1}, GroupId{0}, handles);
                }
              });
            }
            LatencyHistogram allocations;
            std::array<BlockId, kBatch> blocks{};
            const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
            while (std::chrono::steady_clock::now() < end) {
              const auto start = std::chrono::steady_clock::now();
              const bool allocated = adapter->allocate(blocks);
              allocations.record(std::chrono::steady_clock::now() - start);
              if (allocated) {
                adapter->release(blocks);
              }
            }
            stop.store(true, std::memory_order_relaxed);
            if (matcher.joinable()) {
              matcher.join();
            }
            Sample sample;
            sample.latency_us = allocations.percentiles();
            return std::vector<Sample>{sample};
          }};
}

/// The workload with every store and removal announced, and the announcements taken away by the workers by turns: read
/// as they were recorded, as who sends them on would, or `built` into events of their own.
template <bool built>
class AnnouncingAdapter : public KvpoolAdapter {
 public:
  explicit AnnouncingAdapter(std::uint32_t num_blocks) : KvpoolAdapter(num_blocks, true) {}

  void publish(std::span<const BlockId> ids, std::span<const BlockHash> hashes) {
    constexpr std::int64_t kTokens = 16;
    EventDraft event = pool().draft_event();
    event->block_hashes.assign(hashes.begin(), hashes.end());
    event->token_ids.resize(hashes.size() * kTokens);
    event->block_size = kTokens;
    event->group_idx = 0;
    pool().append_event(std::move(event));
    KvpoolAdapter::publish(ids, hashes);
    constexpr std::uint32_t kCallsBetweenDrains = 64;
    if (calls_.fetch_add(1, std::memory_order_relaxed) % kCallsBetweenDrains == 0) {
      EventBatch batch = pool().take_event_batch();
      const std::uint32_t number = batch.number();
      // What the batches came to lies in their order, for whoever would send it.
      outbox_[number % outbox_.size()].store(read(std::move(batch)), std::memory_order_relaxed);
    }
  }

 private:
  /// Looks at every announcement, at every hash in it; answers something that depends on all of them.
  static std::uint64_t read(EventBatch batch) {
    std::uint64_t sum = 0;
    const auto add_all = [&sum](const std::vector<BlockHash>& hashes) {
      for (const BlockHash& hash : hashes) {
        sum += hash.event_id();
      }
    };
    if constexpr (built) {
      for (const KVEvent& event : std::move(batch).build()) {
        if (const auto* const stored = std::get_if<BlockStoredEvent>(&event)) {
          add_all(stored->block_hashes);
        } else if (const auto* const removed = std::get_if<BlockRemovedEvent>(&event)) {
          add_all(removed->block_hashes);
        }
      }
    } else {
      for (EventView view; batch.next(view);) {
        if (view.removed != nullptr) {
          sum += view.removed->hash.event_id();
        } else if (view.stored != nullptr) {
          add_all(view.stored->block_hashes);
        }
      }
    }
    return sum;
  }

  std::atomic<std::uint32_t> calls_{0};
  std::array<std::atomic<std::uint64_t>, 1024> outbox_{};
};

/// The workload with one feature in its two states, at 8 threads where the list has them.
void bench_feature(const BenchPlan& plan, const PrefixTable& table, const std::string& row) {
  const unsigned threads = *std::max_element(plan.threads.begin(), plan.threads.end()) >= 8 ? 8 : plan.threads.back();
  std::vector<Contender> contenders{prefix_contender<KvpoolAdapter>(plan, table, row, "kvpool", threads)};
  if (row == "events") {
    contenders.push_back(prefix_contender<AnnouncingAdapter<false>>(plan, table, row, "announcing", threads));
    contenders.push_back(prefix_contender<AnnouncingAdapter<true>>(plan, table, row, "announcing_built", threads));
  } else if (row == "metrics") {
    contenders.push_back(prefix_contender<KvpoolAdapter>(plan, table, row, "without_metrics", threads, false,
                                                         kDefaultShards, PoolFeatures{.stats = false}));
  } else {
    contenders.push_back(prefix_contender<KvpoolAdapter>(plan, table, row, "small_pages", threads, false,
                                                         kDefaultShards, PoolFeatures{.huge_pages = false}));
  }
  report_against_kvpool(plan, interleave(plan, contenders));
}

/// Bytes that a pool asks for, divided by its blocks.
void bench_metadata(const BenchPlan& plan) {
  for (const std::uint32_t shards : {1U, 2U, 8U}) {
    const auto in_use = [] {
      const struct mallinfo2 info = mallinfo2();
      return std::pair(static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd),
                       static_cast<double>(array_bytes_in_use()));
    };
    const auto [heap_before, arrays_before] = in_use();
    const KvpoolAdapter adapter(kPoolBlocks, false, shards);
    const auto [heap, arrays] = in_use();
    BenchRow row;
    row.name = "metadata";
    row.pool = std::to_string(shards) + "_shards";
    // Arrays below the size of a huge page come from the heap and are in both numbers.
    row.more["bytes_per_block"] = std::max(heap - heap_before, arrays - arrays_before) / kPoolBlocks;
    plan.report->add(std::move(row));
  }
}

/// Construction of a pool of four million blocks with two shards, destruction not included.
Contender construction(const BenchPlan& plan) {
  const std::uint32_t blocks = plan.smoke ? kPoolBlocks : kLargePool;
  return {{"construct"}, "kvpool", 1, [blocks] {
            const auto start = std::chrono::steady_clock::now();
            const auto pool = std::make_unique<KvpoolAdapter>(blocks, false, 2U);
            const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
            Sample sample;
            sample.more["seconds"] = seconds.count();
            sample.more["blocks"] = blocks;
            return std::vector<Sample>{sample};
          }};
}

void bench_costs(const BenchPlan& plan) {
  const PrefixTable table;
  for (const char* row : {"events", "metrics", "huge_pages"}) {
    if (plan.wants(row) && !interrupt_requested()) {
      bench_feature(plan, table, row);
    }
  }
  if (plan.wants("metadata") && !interrupt_requested()) {
    bench_metadata(plan);
  }
  if (plan.wants("construct") && !interrupt_requested()) {
    for (BenchRow& row : interleave(plan, {construction(plan)})) {
      plan.report->add(std::move(row));
    }
  }
}

}  // namespace

void bench_situations(const BenchPlan& plan) {
  const auto measure = [&](const std::vector<Contender>& contenders) {
    for (BenchRow& row : interleave(plan, contenders)) {
      plan.report->add(std::move(row));
    }
  };
  if (plan.wants("hot_release")) {
    measure({hot_release<KvpoolAdapter>(plan, "kvpool"), hot_release<LeanPool<std::mutex>>(plan, "lean")});
  }
  if (plan.wants("allocate_beside_match") && !interrupt_requested()) {
    measure({allocate_beside_match(plan, false), allocate_beside_match(plan, true)});
  }
  bench_costs(plan);
}

}  // namespace kvpool::tools
