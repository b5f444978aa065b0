// Requests and a manager for the request-level rows.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "kvpool/manager/kv_cache_manager.hpp"

namespace kvpool::tools {

inline constexpr std::int64_t kBlockTokens = 16;

/// What layers the model of a row has; blocks of 16 tokens everywhere.
enum class BenchModel {
  full,
  window,       ///< 512 tokens, so that blocks leave it in every row
  chunked,      ///< chunks of 512 tokens
  full_window,  ///< two groups
  full_state,   ///< full attention beside states in mode "align"
};

/// Caching on, one shard as a single scheduler uses it.
class RequestBench {
 public:
  struct Entry {
    explicit Entry(Request made, Sequence sequence_of_it)
        : request(std::move(made)), sequence(std::move(sequence_of_it)) {}
    Request request;
    Sequence sequence;
  };

  RequestBench(std::int64_t num_blocks, std::int64_t max_model_len, BenchModel model = BenchModel::full,
               bool events = false);

  [[nodiscard]] KVCacheManager& manager() noexcept { return *manager_; }

  /// A request of `tokens` tokens; equal numbers have equal tokens.
  [[nodiscard]] Entry make(std::uint64_t number, std::int64_t tokens);

  /// Slots for all tokens that are not computed yet, which then count as computed. False: no room.
  bool prefill(Entry& entry);

 private:
  std::shared_ptr<const RequestHashing> hashing_;
  std::unique_ptr<KVCacheManager> manager_;
};

}  // namespace kvpool::tools
