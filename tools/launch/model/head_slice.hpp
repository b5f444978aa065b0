// Which attention heads a rank owns.
#pragma once

#include <cstdint>

#include "kvpool/foundation/error.hpp"

namespace kvpool::launch {

struct HeadSlice {
  std::int64_t first_query_head = 0;
  std::int64_t num_query_heads = 0;
  std::int64_t first_kv_head = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t kv_replicas = 1;  ///< ranks that hold the same KV head
};

/// Query heads are split evenly. KV heads are split evenly too, or, when there are more ranks than KV heads,
/// each is replicated on ranks / KV heads neighbours. Errors: invalid_config with the numbers (query heads not
/// divisible by the ranks, KV heads and ranks that divide in neither direction).
[[nodiscard]] Result<HeadSlice> head_slice_of(std::int64_t query_heads, std::int64_t kv_heads, int rank,
                                              int world_size);

/// True when the head tree of a sum over all heads contains every rank's local sum as a subtree, so that the
/// sum over ranks is bitwise the sum of one rank: query heads per rank are a power of two.
[[nodiscard]] bool sums_are_rank_independent(std::int64_t query_heads, int world_size) noexcept;

}  // namespace kvpool::launch
