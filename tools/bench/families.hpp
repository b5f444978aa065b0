// The families of rows; each measures what the plan's filter wants and adds it to the report.
#pragma once

#include "tools/bench/interleave.hpp"

namespace kvpool::tools {

/// Operations of one thread in batches of 64, in units of a locked addition and beside an unlocked list.
void bench_single_thread(const BenchPlan& plan);

/// Throughput of the workload `prefix` against the rivals, thread count by thread count; hit rates.
void bench_prefix_throughput(const BenchPlan& plan);

/// Latencies of single calls in the workload `prefix`.
void bench_prefix_latency(const BenchPlan& plan);

/// Latencies in special situations: releases beside much cold content, allocations beside long look-ups.
void bench_situations(const BenchPlan& plan);

/// kvpool's index against oneTBB's map, fresh and after long use.
void bench_index(const BenchPlan& plan);

/// Costs that must not grow with the cache, with a chain, or with the option to cache.
void bench_growth(const BenchPlan& plan);

/// Requests through KVCacheManager.
void bench_requests(const BenchPlan& plan);

/// Hashes of 16-token units.
void bench_hashing(const BenchPlan& plan);

/// Decode on the CPU against a read of the same pages, plain loops, and itself.
void bench_attention(const BenchPlan& plan);

/// Appends and page copies on the CPU against memcpy, and the time of a plan.
void bench_attention_copies(const BenchPlan& plan);

/// Agreement of ranks, and what watching their block tables costs.
void bench_ranks(const BenchPlan& plan);

}  // namespace kvpool::tools
