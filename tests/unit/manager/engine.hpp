// A manager with requests, as small as a test needs it: one place that knows how to set them up.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/manager/kv_cache_manager.hpp"

namespace kvpool::test {

inline KVCacheGroup full(std::int64_t block_size, bool eagle = false) {
  FullAttentionSpec spec;
  spec.block_size = block_size;
  return {{}, spec, eagle};
}

inline KVCacheGroup window(std::int64_t block_size, std::int64_t size, bool eagle = false) {
  SlidingWindowSpec spec;
  spec.block_size = block_size;
  spec.sliding_window = size;
  return {{}, spec, eagle};
}

inline KVCacheGroup chunked(std::int64_t block_size, std::int64_t chunk) {
  ChunkedLocalAttentionSpec spec;
  spec.block_size = block_size;
  spec.attention_chunk_size = chunk;
  return {{}, spec, false};
}

inline KVCacheGroup mamba(std::int64_t block_size, MambaCacheMode mode, std::int64_t speculative = 0) {
  MambaSpec spec;
  spec.block_size = block_size;
  spec.cache_mode = mode;
  spec.num_speculative_blocks = speculative;
  return {{}, spec, false};
}

inline KVCacheGroup cross(std::int64_t block_size) {
  CrossAttentionSpec spec;
  spec.block_size = block_size;
  return {{}, spec, false};
}

/// count consecutive tokens from first on.
inline std::vector<TokenId> tokens(TokenId first, std::int64_t count) {
  std::vector<TokenId> list(static_cast<std::size_t>(count));
  std::iota(list.begin(), list.end(), first);
  return list;
}

inline std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

using Ids = std::vector<std::uint32_t>;

inline Ids values(std::span<const BlockId> blocks) {
  Ids list;
  for (const BlockId block : blocks) list.push_back(block.value());
  return list;
}

/// One request with its blocks.
struct Running {
  Request request;
  Sequence sequence;
};

struct EngineOptions {
  std::int64_t num_blocks = 0;  ///< null block included
  std::vector<KVCacheGroup> groups{};
  std::int64_t hash_block_size = 0;       ///< 0: of the first group
  std::int64_t scheduler_block_size = 0;  ///< 0: least common multiple of all groups
  std::optional<std::int64_t> retention_interval{};
  KVCacheManagerOptions manager{};
};

class Engine {
 public:
  explicit Engine(EngineOptions options) {
    std::int64_t common = 1;
    for (const KVCacheGroup& group : options.groups) {
      const bool state = std::holds_alternative<MambaSpec>(group.spec);
      common = std::lcm(common, block_size(group.spec) * (state ? 1 : options.manager.dcp_world_size));
    }
    KVCacheManagerOptions& manager_options = options.manager;
    manager_options.scheduler_block_size = options.scheduler_block_size != 0 ? options.scheduler_block_size : common;
    manager_options.hash_block_size = options.hash_block_size != 0
                                          ? options.hash_block_size
                                          : block_size(options.groups.front().spec) * manager_options.dcp_world_size;
    if (manager_options.max_model_len == 0) manager_options.max_model_len = 1 << 20;
    manager_options.num_shards = 1;
    KVCacheConfig config;
    config.num_blocks = options.num_blocks;
    config.groups = options.groups;
    config.prefix_cache_retention_interval = options.retention_interval;
    auto created = KVCacheManager::create(std::move(config), manager_options);
    if (!created) throw std::runtime_error(created.error().message);
    manager_ = std::move(*created);
    hashing_ = std::make_shared<const RequestHashing>(
        RequestHashing{BlockHasher(HashAlgorithm::xxhash_cbor, "test"), manager_options.hash_block_size});
  }

  KVCacheManager& operator*() { return *manager_; }
  KVCacheManager* operator->() { return manager_.get(); }
  BlockPool& pool() { return manager_->pool(); }
  std::uint32_t free_blocks() { return manager_->pool().num_free_blocks(); }

  Request request(std::vector<TokenId> prompt, RequestOptions options = {}) {
    if (options.id.empty()) options.id = "r" + std::to_string(next_id_++);
    options.prompt = std::move(prompt);
    return std::move(*Request::create(std::move(options), manager_->options().enable_caching ? hashing_ : nullptr));
  }

  Running start(std::vector<TokenId> prompt, RequestOptions options = {}) {
    return {request(std::move(prompt), std::move(options)), manager_->make_sequence()};
  }

  /// allocate_slots for `count` new tokens behind what is computed; then they are computed.
  AllocatedSlots step(Running& running, std::int64_t count, AllocateSlots arguments = {}) {
    arguments.num_new_tokens = count;
    auto slots = manager_->allocate_slots(running.request, running.sequence, arguments);
    EXPECT_TRUE(slots) << slots.error().message;
    if (!slots || slots->outcome != AllocateOutcome::allocated) return {};
    running.request.num_computed_tokens +=
        arguments.num_new_computed_tokens + arguments.num_external_computed_tokens + count;
    running.request.status = RequestStatus::running;
    return *slots;
  }

  /// Look-up, then everything that the hit does not cover in one step. Answers the hit in tokens, -1
  /// when it does not fit.
  std::int64_t prefill(Running& running, AllocateSlots arguments = {}) {
    PrefixHit hit = manager_->get_computed_blocks(running.request);
    running.request.shared_prefix_boundary = hit.shared_prefix_boundary;
    arguments.num_new_computed_tokens = hit.num_computed_tokens;
    arguments.new_computed_blocks = &hit.blocks;
    const std::int64_t rest =
        running.request.num_tokens() - running.request.num_computed_tokens - hit.num_computed_tokens;
    return step(running, rest, arguments).outcome == AllocateOutcome::allocated ? hit.num_computed_tokens : -1;
  }

  /// Appends a generated token and makes room for it.
  AllocatedSlots decode(Running& running, TokenId token, AllocateSlots arguments = {}) {
    running.request.append_tokens(std::span(&token, 1));
    return step(running, 1, arguments);
  }

  /// Computes the whole prompt, ends the request; its content stays in the cache.
  void warm(std::vector<TokenId> prompt, RequestOptions options = {}) {
    Running running = start(std::move(prompt), std::move(options));
    EXPECT_GE(prefill(running), 0);
    manager_->new_step_starts();
    manager_->free(running.sequence);
  }

  /// Tokens that a new request with this prompt would find.
  std::int64_t hit(std::vector<TokenId> prompt, RequestOptions options = {}) {
    return manager_->get_computed_blocks(request(std::move(prompt), std::move(options))).num_computed_tokens;
  }

  Ids table(const Running& running, std::uint32_t group = 0) {
    return values(manager_->block_table(running.sequence, GroupId{group}));
  }

  Ids free_order() { return values(manager_->pool().free_order()); }

  void expect_sound() {
    const Status status = manager_->pool().check_invariants();
    EXPECT_TRUE(status) << status.error().message;
  }

 private:
  std::unique_ptr<KVCacheManager> manager_;
  std::shared_ptr<const RequestHashing> hashing_;
  int next_id_ = 0;
};

}  // namespace kvpool::test
