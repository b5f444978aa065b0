// Reports from the field that concern the pool alone. BS 4 where a report counts tokens; a "request" here is a
// list of blocks that is published and freed tail first.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "tests/concurrency/pool_workload.hpp"

namespace kvpool::testing {

inline void keep_quiet(const ContractViolation&) {}

class PoolField : public ::testing::Test {
 protected:
  PoolField() { set_contract_handler(&keep_quiet); }
  ~PoolField() override { set_contract_handler(nullptr); }

  /// `usable` blocks besides the null block, one shard.
  static BlockPoolOptions pool_of(std::uint32_t usable) {
    BlockPoolOptions options;
    options.num_blocks = usable + 1;
    options.num_shards = 1;
    return options;
  }
  static std::vector<BlockId> allocate(BlockPool& pool, std::size_t count) {
    std::vector<BlockId> blocks(count);
    EXPECT_TRUE(pool.get_new_blocks(blocks));
    return blocks;
  }
  static void publish(BlockPool& pool, const std::vector<BlockId>& blocks, std::uint64_t first_key) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      pool.publish(blocks[i], make_key(first_key + i), static_cast<std::int64_t>(4 * (i + 1)));
    }
  }
  static void free_reversed(BlockPool& pool, const std::vector<BlockId>& blocks) {
    pool.free_blocks(std::vector<BlockId>(blocks.rbegin(), blocks.rend()));
  }
  static std::size_t hits(const BlockPool& pool, std::uint64_t first_key, std::size_t length) {
    std::size_t found = 0;
    while (found < length && pool.find(make_key(first_key + found)).has_value()) ++found;
    return found;
  }
};

}  // namespace kvpool::testing
