// Operations of one thread on a pool that nobody else uses: what a transition costs without contention.
#include <algorithm>
#include <array>
#include <atomic>
#include <memory>

#include "tools/bench/families.hpp"
#include "tools/bench/phase_clock.hpp"
#include "tools/bench/prefix_workload.hpp"
#include "tools/bench/rivals/block_list.hpp"
#include "tools/bench/rivals/kvpool_adapter.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kWorkingSet = 4'096;  // blocks that the pin rows walk over

Contender locked_addition(double seconds) {
  return {{"xadd"}, "hardware", 1, [seconds] {
            alignas(64) std::atomic<std::uint64_t> counter{0};
            PhaseClock clock;
            const double batches = repeat_for(seconds, [&] {
              clock([&] {
                for (std::size_t i = 0; i < 16 * kBatch; ++i) {
                  counter.fetch_add(1, std::memory_order_relaxed);
                }
              });
            });
            return std::vector<Sample>{ns_sample(clock.ns_per(batches * 16 * kBatch))};
          }};
}

/// The least that moving a block in and out of a list costs: array links, one thread, no lock.
Contender unlocked_list(double seconds) {
  auto list = std::make_shared<BlockList>(kPoolBlocks);
  for (std::uint32_t block = 1; block < kPoolBlocks; ++block) {
    list->push_back(block);
  }
  return {{"list_allocate", "list_free"}, "unlocked", 1, [list, seconds] {
            std::array<std::uint32_t, kBatch> blocks{};
            PhaseClock allocate;
            PhaseClock free;
            const double batches = repeat_for(seconds, [&] {
              allocate([&] {
                for (std::uint32_t& block : blocks) {
                  block = list->pop_front();
                }
              });
              free([&] {
                for (const std::uint32_t block : blocks) {
                  list->push_back(block);
                }
              });
            });
            return std::vector<Sample>{ns_sample(allocate.ns_per(batches * kBatch)),
                                       ns_sample(free.ns_per(batches * kBatch))};
          }};
}

/// A pool whose blocks all carry content; `held` keeps the first kWorkingSet of them referenced.
struct WarmPool {
  explicit WarmPool(bool hold) : adapter(kPoolBlocks, false, 1) {
    std::array<BlockId, kBatch> blocks{};
    std::array<BlockHash, kBatch> batch{};
    while (hashes.size() + kBatch < kPoolBlocks) {
      if (!adapter.allocate(blocks)) {
        break;
      }
      for (BlockHash& hash : batch) {
        hash = numbered_hash(++next_hash);
        hashes.push_back(hash);
      }
      adapter.publish(blocks, batch);
      if (!hold || hashes.size() > kWorkingSet) {
        adapter.release(blocks);
      }
    }
  }

  KvpoolAdapter adapter;
  std::vector<BlockHash> hashes;
  std::uint64_t next_hash = std::uint64_t{1} << 60U;
  std::size_t position = 0;
};

/// Pin a batch of known blocks and release it. `hold`: others hold them, too; else they come from the LRU order.
Contender pin_and_release(double seconds, bool hold) {
  auto warm = std::make_shared<WarmPool>(hold);
  return {{hold ? "pin_release_shared" : "pin_release_lru"}, "kvpool", 1, [warm, seconds] {
            std::array<BlockHandle, kBatch> handles{};
            std::array<BlockId, kBatch> blocks{};
            PhaseClock clock;
            BlockPool& pool = warm->adapter.pool();
            double pinned = 0;
            repeat_for(seconds, [&] {
              const auto chain = std::span(warm->hashes).subspan(warm->position, kBatch);
              warm->position = (warm->position + kBatch) % kWorkingSet;
              const std::size_t found = pool.find_prefix({chain, 1}, GroupId{0}, handles);
              clock([&] {
                auto reservation = pool.try_reserve(static_cast<std::uint32_t>(found));
                std::size_t count = 0;
                if (reservation) {
                  count = pool.pin_prefix(std::span(handles).first(found), {chain, 1}, GroupId{0}, *reservation);
                  reservation->give_back(reservation->remaining());
                }
                for (std::size_t i = 0; i < count; ++i) {
                  blocks[i] = handles[i].id;
                }
                pool.free_blocks(std::span(blocks).first(count));
                pinned += static_cast<double>(count);
              });
            });
            return std::vector<Sample>{ns_sample(pinned > 0 ? clock.ns_per(pinned) : 0)};
          }};
}

/// Take the least recently used content, give the blocks new content, release them.
Contender recycle_content(double seconds) {
  auto warm = std::make_shared<WarmPool>(false);
  return {{"allocate_evicting", "publish", "release_cached"}, "kvpool", 1, [warm, seconds] {
            std::array<BlockId, kBatch> blocks{};
            std::array<BlockHash, kBatch> hashes{};
            PhaseClock allocate;
            PhaseClock publish;
            PhaseClock release;
            const double batches = repeat_for(seconds, [&] {
              for (BlockHash& hash : hashes) {
                hash = numbered_hash(++warm->next_hash);
              }
              bool allocated = false;
              allocate([&] { allocated = warm->adapter.allocate(blocks); });
              if (allocated) {
                publish([&] { warm->adapter.publish(blocks, hashes); });
                release([&] { warm->adapter.release(blocks); });
              }
            });
            const double count = batches * kBatch;
            return std::vector<Sample>{ns_sample(allocate.ns_per(count)), ns_sample(publish.ns_per(count)),
                                       ns_sample(release.ns_per(count))};
          }};
}

Contender blank_blocks(double seconds) {
  auto adapter = std::make_shared<KvpoolAdapter>(kPoolBlocks, false, 1);
  return {{"allocate_release_blank"}, "kvpool", 1, [adapter, seconds] {
            std::array<BlockId, kBatch> blocks{};
            PhaseClock clock;
            const double batches = repeat_for(seconds, [&] {
              clock([&] {
                if (adapter->allocate(blocks)) {
                  adapter->release(blocks);
                }
              });
            });
            return std::vector<Sample>{ns_sample(clock.ns_per(batches * kBatch))};
          }};
}

}  // namespace

void bench_single_thread(const BenchPlan& plan) {
  std::vector<Contender> contenders{locked_addition(plan.seconds), unlocked_list(plan.seconds)};
  const std::size_t yardsticks = contenders.size();
  const auto add = [&](std::initializer_list<const char*> names, auto&& make) {
    for (const char* name : names) {
      if (plan.wants(name)) {
        contenders.push_back(make());
        return;
      }
    }
  };
  add({"pin_release_shared"}, [&] { return pin_and_release(plan.seconds, true); });
  add({"pin_release_lru"}, [&] { return pin_and_release(plan.seconds, false); });
  add({"allocate_evicting", "publish", "release_cached"}, [&] { return recycle_content(plan.seconds); });
  add({"allocate_release_blank"}, [&] { return blank_blocks(plan.seconds); });
  if (contenders.size() == yardsticks && !plan.wants("xadd") && !plan.wants("list_allocate") &&
      !plan.wants("list_free")) {
    return;
  }
  std::vector<BenchRow> rows = interleave(plan, contenders);
  const BenchRow* xadd = find_row(rows, "xadd", "hardware");
  const double unit = xadd != nullptr ? xadd->ns_per_block.value_or(0) : 0;
  for (BenchRow& row : rows) {
    if (row.pool == "kvpool" && unit > 0) {
      row.more["xadd"] = row.ns_per_block.value_or(0) / unit;
    }
    plan.report->add(std::move(row));
  }
}

}  // namespace kvpool::tools
