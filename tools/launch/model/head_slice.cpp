#include "tools/launch/model/head_slice.hpp"

#include <fmt/format.h>

namespace kvpool::launch {

Result<HeadSlice> head_slice_of(std::int64_t query_heads, std::int64_t kv_heads, int rank, int world_size) {
  const std::int64_t ranks = world_size;
  if (rank < 0 || rank >= world_size) {
    return {ErrorCode::invalid_argument, fmt::format("rank {} is outside a world of {}", rank, world_size)};
  }
  if (query_heads <= 0 || kv_heads <= 0 || query_heads % kv_heads != 0) {
    return {ErrorCode::invalid_config,
            fmt::format("{} query heads are no multiple of {} KV heads", query_heads, kv_heads)};
  }
  if (ranks > query_heads) {
    return {ErrorCode::invalid_config,
            fmt::format("{} ranks for {} query heads: every rank needs at least one", ranks, query_heads)};
  }
  if (query_heads % ranks != 0) {
    return {ErrorCode::invalid_config, fmt::format("{} query heads do not divide by {} ranks", query_heads, ranks)};
  }
  HeadSlice slice;
  slice.num_query_heads = query_heads / ranks;
  slice.first_query_head = rank * slice.num_query_heads;
  if (kv_heads % ranks == 0) {
    slice.num_kv_heads = kv_heads / ranks;
    slice.first_kv_head = rank * slice.num_kv_heads;
  } else if (ranks % kv_heads == 0) {
    slice.num_kv_heads = 1;
    slice.kv_replicas = ranks / kv_heads;
    slice.first_kv_head = rank / slice.kv_replicas;
  } else {
    return {ErrorCode::invalid_config,
            fmt::format("{} KV heads and {} ranks: neither divides the other", kv_heads, ranks)};
  }
  return slice;
}

bool sums_are_rank_independent(std::int64_t query_heads, int world_size) noexcept {
  const std::int64_t local = query_heads / world_size;
  return local > 0 && query_heads % world_size == 0 && (local & (local - 1)) == 0;
}

}  // namespace kvpool::launch
