// What decode is measured against: reading the same pages and doing nothing, and attention in plain loops.
#pragma once

#include "tools/bench/attention_cache.hpp"

namespace kvpool::tools {

/// Reads every byte of K and V once, in the order of the page table, with the widest loads and the prefetches that the
/// processor has: head by head where a head's tokens lie together, else page by page. Answers a number that depends on
/// all of them.
std::uint64_t read_pages(const AttentionCache& cache, std::int64_t layers, unsigned threads);

/// Decode of a bf16 cache as one would write it first: two passes over the keys of each query head, one thread, no
/// prefetch. Results go where decode() puts them.
void plain_decode(AttentionCache& cache, std::int64_t layers);

}  // namespace kvpool::tools
