// What must not grow: the cost of an operation with the number of cached blocks, of announcements with the length of
// their chain, and of blocks without content with the option to cache.
#include <array>
#include <memory>

#include "tools/bench/families.hpp"
#include "tools/bench/phase_clock.hpp"
#include "tools/bench/prefix_workload.hpp"
#include "tools/bench/request_bench.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::uint32_t kSmallPool = 1'000;  // usable blocks
constexpr std::int64_t kShortChain = 512;    // blocks
constexpr std::int64_t kLongChain = 2'048;
constexpr std::size_t kBlankRequest = 16;  // blocks

BlockPoolOptions one_shard(std::uint32_t usable) {
  BlockPoolOptions options;
  options.num_blocks = usable + 1;
  options.num_shards = 1;
  return options;
}

/// A pool whose blocks all carry content. One step evicts one block and gives it other content.
class FullCache {
 public:
  explicit FullCache(std::uint32_t usable) : pool_(one_shard(usable)) {
    for (std::uint32_t done = 0; done < usable; ++done) {
      recycle({numbered_hash(++next_hash_), GroupId{0}});
    }
  }

  Sample recycle_for(double seconds) {
    std::array<BlockKey, kBatch> keys{};
    PhaseClock clock;
    const double batches = repeat_for(seconds, [&] {
      for (BlockKey& key : keys) {
        key = {numbered_hash(++next_hash_), GroupId{0}};
      }
      clock([&] {
        for (const BlockKey& key : keys) {
          recycle(key);
        }
      });
    });
    Sample sample = ns_sample(clock.ns_per(batches * kBatch));
    sample.more["cached"] = static_cast<double>(pool_.counts().cached);
    return sample;
  }

  Sample query_for(double seconds) {
    PhaseClock clock;
    double answers = 0;
    const double batches = repeat_for(seconds, [&] {
      clock([&] {
        for (std::size_t i = 0; i < 16 * kBatch; ++i) {
          answers += pool_.num_free_blocks();
        }
      });
    });
    Sample sample = ns_sample(clock.ns_per(batches * 16 * kBatch));
    sample.more["answer"] = answers / (batches * 16 * kBatch);
    return sample;
  }

 private:
  void recycle(const BlockKey& key) {
    std::array<BlockId, 1> block{};
    if (pool_.get_new_blocks(block)) {
      pool_.publish(block[0], key, 1);
      pool_.free_blocks(block);
    }
  }

  BlockPool pool_;
  std::uint64_t next_hash_ = 0;
};

Contender full_cache(const BenchPlan& plan, std::uint32_t usable) {
  auto cache = std::make_shared<FullCache>(usable);
  return {{"recycle_one", "count_free"}, std::to_string(usable), 1, [cache, seconds = plan.seconds] {
            return std::vector<Sample>{cache->recycle_for(seconds), cache->query_for(seconds)};
          }};
}

/// Allocates and frees blocks that never get content.
Contender blank_requests(const BenchPlan& plan, bool caching) {
  BlockPoolOptions options = one_shard(kSmallPool);
  options.enable_caching = caching;
  auto pool = std::make_shared<BlockPool>(options);
  return {{"blank_requests"}, caching ? "caching" : "no_caching", 1, [pool, seconds = plan.seconds] {
            std::array<BlockId, kBlankRequest> blocks{};
            PhaseClock clock;
            const double batches = repeat_for(seconds, [&] {
              clock([&] {
                for (std::size_t i = 0; i < kBatch; ++i) {
                  if (pool->get_new_blocks(blocks)) {
                    pool->free_blocks(blocks);
                  }
                }
              });
            });
            return std::vector<Sample>{ns_sample(clock.ns_per(batches * kBatch * kBlankRequest))};
          }};
}

/// A request that grows by one block a step, each hashed, published and announced by itself.
Contender announced_chain(const BenchPlan& plan, std::int64_t blocks) {
  auto bench = std::make_shared<RequestBench>(2 * kLongChain, kLongChain * kBlockTokens, BenchModel::full, true);
  auto requests = std::make_shared<std::uint64_t>(0);
  return {{"announced_chain"}, std::to_string(blocks), 1, [=, seconds = plan.seconds] {
            PhaseClock clock;
            double events = 0;
            const double chains = repeat_for(seconds, [&] {
              auto entry = bench->make(++*requests, kBlockTokens);
              const std::vector<TokenId> tokens(kBlockTokens, static_cast<TokenId>(*requests % 100'000));
              clock([&] {
                bench->prefill(entry);
                for (std::int64_t block = 1; block < blocks; ++block) {
                  entry.request.append_tokens(tokens);
                  bench->prefill(entry);
                }
              });
              bench->manager().free(entry.sequence);
              events += static_cast<double>(bench->manager().take_events().size());
              (void)bench->manager().take_new_block_ids();
            });
            Sample sample = ns_sample(clock.ns_per(chains * static_cast<double>(blocks)));
            sample.more["events_per_chain"] = events / chains;
            return std::vector<Sample>{sample};
          }};
}

/// Adds the rows; those of other pools than the first get `over_first`, their time divided by the first pool's,
/// `scale` times for rows that count less than they compare.
void report_over_first(const BenchPlan& plan, const std::vector<Contender>& contenders, double scale) {
  std::vector<BenchRow> rows = interleave(plan, contenders);
  for (BenchRow& row : rows) {
    const BenchRow* first = find_row(rows, row.name, contenders.front().pool);
    if (first != nullptr && first != &row && first->ns_per_block.value_or(0) > 0) {
      row.more["over_first"] = scale * row.ns_per_block.value_or(0) / *first->ns_per_block;
    }
  }
  for (BenchRow& row : rows) {
    plan.report->add(std::move(row));
  }
}

}  // namespace

void bench_growth(const BenchPlan& plan) {
  if (plan.wants("recycle_one") || plan.wants("count_free")) {
    std::vector<Contender> contenders{full_cache(plan, kSmallPool), full_cache(plan, 100 * kSmallPool)};
    if (!plan.smoke) {
      contenders.push_back(full_cache(plan, 1'000 * kSmallPool));
    }
    report_over_first(plan, contenders, 1);
  }
  if (plan.wants("blank_requests") && !interrupt_requested()) {
    report_over_first(plan, {blank_requests(plan, true), blank_requests(plan, false)}, 1);
  }
  if (plan.wants("announced_chain") && !interrupt_requested()) {
    // Of whole chains, though the rows show the time a block.
    constexpr double kLongerBy = static_cast<double>(kLongChain) / kShortChain;
    report_over_first(plan, {announced_chain(plan, kShortChain), announced_chain(plan, kLongChain)}, kLongerBy);
  }
}

}  // namespace kvpool::tools
