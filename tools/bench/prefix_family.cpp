// Throughput and latency of the workload `prefix`, kvpool and its rivals by turns.
#include <algorithm>

#include "kvpool/pool/locked_block_pool.hpp"
#include "tools/bench/families.hpp"
#include "tools/bench/prefix_runner.hpp"
#include "tools/bench/rivals/card_pool.hpp"
#include "tools/bench/rivals/kvpool_adapter.hpp"
#include "tools/bench/rivals/lean_pool.hpp"
#include "tools/bench/rivals/spin_lock.hpp"
#include "tools/bench/rivals/std_pool.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

template <Timing timing>
std::vector<Contender> all_pools(const BenchPlan& plan, const PrefixTable& table, const std::string& row,
                                 unsigned threads) {
  std::vector<Contender> contenders;
  contenders.push_back(prefix_contender<KvpoolAdapter, timing>(plan, table, row, "kvpool", threads));
  contenders.push_back(prefix_contender<LeanPool<std::mutex>, timing>(plan, table, row, "lean", threads));
  contenders.push_back(prefix_contender<LeanPool<SpinLock>, timing>(plan, table, row, "spin", threads));
  contenders.push_back(prefix_contender<StdPool, timing>(plan, table, row, "std", threads));
  contenders.push_back(prefix_contender<PoolAdapter<LockedBlockPool>, timing>(plan, table, row, "locked", threads));
  contenders.push_back(prefix_contender<CardPool, timing>(plan, table, row, "card", threads));
  return contenders;
}

/// Thread count for latencies without preemptions: 8 as in the published figures, else the largest of the list.
unsigned latency_threads(const BenchPlan& plan) {
  const bool has_eight = std::find(plan.threads.begin(), plan.threads.end(), 8U) != plan.threads.end();
  return has_eight ? 8U : *std::max_element(plan.threads.begin(), plan.threads.end());
}

void bench_hit_rate(const BenchPlan& plan, const PrefixTable& table) {
  std::vector<Contender> contenders;
  contenders.push_back(prefix_contender<KvpoolAdapter>(plan, table, "prefix_hit_rate", "kvpool", 1));
  contenders.push_back(
      prefix_contender<KvpoolAdapter>(plan, table, "prefix_hit_rate", "one_shard", 1, false, std::uint32_t{1}));
  report_against_kvpool(plan, interleave(plan, contenders));
}

}  // namespace

void bench_prefix_throughput(const BenchPlan& plan) {
  const PrefixTable table;
  if (plan.wants("prefix")) {
    for (const unsigned threads : plan.threads) {
      if (!interrupt_requested()) {
        report_against_kvpool(plan, interleave(plan, all_pools<Timing::none>(plan, table, "prefix", threads)));
      }
    }
  }
  if (plan.wants("prefix_hit_rate") && !interrupt_requested()) {
    bench_hit_rate(plan, table);
  }
}

void bench_prefix_latency(const BenchPlan& plan) {
  const PrefixTable table;
  const unsigned threads = latency_threads(plan);
  if (plan.wants("prefix_latency")) {
    for (const unsigned count : plan.threads) {
      if (!interrupt_requested()) {
        report_against_kvpool(plan, interleave(plan, all_pools<Timing::wall>(plan, table, "prefix_latency", count)));
      }
    }
  }
  if (plan.wants("prefix_latency_undisturbed") && !interrupt_requested()) {
    report_against_kvpool(
        plan, interleave(plan, all_pools<Timing::undisturbed>(plan, table, "prefix_latency_undisturbed", threads)));
  }
}

}  // namespace kvpool::tools
