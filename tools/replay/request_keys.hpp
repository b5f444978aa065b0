// What a trace request asks of a pool: how many blocks, and the key of each full one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/prefix/block_hasher.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {

struct RequestKeys {
  std::int64_t blocks = 0;      ///< of prompt and output
  std::size_t readable = 0;     ///< most blocks that a look-up may find; the last prompt token is always computed
  std::vector<BlockHash> keys;  ///< one per full block, output included
};

/// Turns requests into keys. Equal keys mean equal tokens from the request's start to the block's end; a block of an
/// id trace whose content has no id gets a key that nothing else has. Not thread-safe: one per thread.
class KeyMaker {
 public:
  /// Throws std::invalid_argument when the trace's ids cannot name blocks of `block_size` tokens (an id trace and no
  /// divisor of its block size). `hash_output` false: outputs are left out, as if no token had been generated.
  KeyMaker(const Trace& trace, std::int64_t block_size, bool hash_output);

  /// Blocks of request `index`. O(1).
  [[nodiscard]] std::int64_t num_blocks(std::size_t index) const noexcept;

  /// Everything about request `index`. O(blocks), for token traces O(tokens).
  void make(std::size_t index, RequestKeys& out);

 private:
  void make_from_ids(std::size_t index, RequestKeys& out) const;
  void make_from_tokens(std::size_t index, RequestKeys& out);
  [[nodiscard]] std::int64_t num_tokens(std::size_t index) const noexcept;

  const Trace& trace_;
  std::int64_t block_size_;
  std::int64_t keys_per_id_;
  bool hash_output_;
  BlockHasher hasher_;
  std::vector<TokenId> tokens_;
};

}  // namespace kvpool::tools
