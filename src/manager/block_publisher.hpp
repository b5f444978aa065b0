// Makes the blocks of a request findable and tells the event stream what they hold.
//
// The order within one call is: removals of keys that a promotion replaces, then the store, then the
// keys become visible. So a store always stands before any later removal of it, also by another thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/manager/request.hpp"
#include "manager/group_context.hpp"
#include "manager/retention_mask.hpp"

namespace kvpool {

class BlockPublisher {
 public:
  explicit BlockPublisher(const GroupContext& context) noexcept : context_(context) {}

  /// Publishes table[num_cached, num_full) as far as `mask` keeps it; null entries are passed over.
  void cache_full_blocks(const Request& request, std::span<const BlockId> table, std::int64_t num_cached,
                         std::int64_t num_full, const RetentionMask& mask) const;

  /// Makes `block` answer for the prefix of `num_tokens` tokens, which ends inside it. Answers the key;
  /// empty for the null block and when that prefix is not hashed yet.
  std::optional<BlockKey> cache_partial_block(const Request& request, BlockId block, std::int64_t num_tokens) const;

  /// Announces the request's first `num_blocks` blocks once more; changes nothing.
  void announce_hit(const Request& request, std::int64_t num_blocks) const;

 private:
  [[nodiscard]] BlockPool& pool() const noexcept { return *context_.pool; }
  [[nodiscard]] bool events() const noexcept { return context_.pool->options().enable_events; }
  /// Blocks that follow each other in a table, from position `first` on; null: nothing to publish.
  struct Run {
    std::span<const BlockId> blocks;
    HashChain chain;  ///< element i is of blocks[i]
    std::int64_t first = 0;
  };
  void publish_run(const Run& run) const;
  void announce_and_publish(const Request& request, const Run& run) const;
  /// False when the block needs no key under this hash.
  [[nodiscard]] bool make_room(BlockId block, const BlockKey& key, std::int64_t covered) const;
  /// After the announcement; takes it back when the pool does not keep the key.
  void publish(BlockId block, const BlockKey& key, std::int64_t covered) const;
  [[nodiscard]] EventDraft describe(const Request& request, std::int64_t start, std::int64_t end) const;

  const GroupContext& context_;
};

}  // namespace kvpool
