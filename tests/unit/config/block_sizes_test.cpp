#include "kvpool/config/block_sizes.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace kvpool {
namespace {

KVCacheGroup full(std::int64_t block_size) {
  FullAttentionSpec spec;
  spec.block_size = block_size;
  return {{"f"}, spec};
}

KVCacheGroup state(std::int64_t block_size, MambaCacheMode mode) {
  MambaSpec spec;
  spec.block_size = block_size;
  spec.states = {{{64}, DType::float32}};
  spec.cache_mode = mode;
  return {{"m"}, spec};
}

KVCacheGroup hidden(std::int64_t block_size) {
  HiddenStateSpec spec;
  spec.block_size = block_size;
  return {{"h"}, spec};
}

BlockSizes resolve(const std::vector<KVCacheGroup>& groups, const BlockSizeOptions& options = {}) {
  const auto sizes = resolve_block_sizes(groups, options);
  return sizes ? *sizes : BlockSizes{};
}

TEST(BlockSizes, OneGroupUsesItsBlockForBoth) {
  EXPECT_EQ(resolve({full(16)}), (BlockSizes{16, 16}));
  BlockSizeOptions parallel;
  parallel.dcp_world_size = 4;
  EXPECT_EQ(resolve({full(16)}, parallel), (BlockSizes{64, 64}));
  EXPECT_EQ(resolve({}, parallel), (BlockSizes{64, 64}));
}

TEST(BlockSizes, SeveralGroupsUseCommonMultipleAndDivisor) {
  EXPECT_EQ(resolve({full(16), full(64), full(48)}), (BlockSizes{192, 16}));
}

TEST(BlockSizes, HiddenStatesMakeTheUnitFiner) {
  EXPECT_EQ(resolve({full(544), state(544, MambaCacheMode::align), hidden(136)}), (BlockSizes{544, 136}));
}

TEST(BlockSizes, StatesOutsideAlignModeHashWholeSteps) {
  EXPECT_EQ(resolve({full(16), state(64, MambaCacheMode::all)}), (BlockSizes{64, 64}));
  EXPECT_EQ(resolve({full(16), state(64, MambaCacheMode::none)}), (BlockSizes{64, 64}));
  EXPECT_EQ(resolve({full(16), state(64, MambaCacheMode::align)}), (BlockSizes{64, 16}));
}

TEST(BlockSizes, WithoutCachingNothingIsHashedFiner) {
  BlockSizeOptions off;
  off.enable_caching = false;
  EXPECT_EQ(resolve({full(16), full(64)}, off), (BlockSizes{64, 64}));
  off.has_connector = true;
  EXPECT_EQ(resolve({full(16), full(64)}, off), (BlockSizes{64, 16}));
}

TEST(BlockSizes, ContextParallelismScalesAttentionOnly) {
  BlockSizeOptions parallel;
  parallel.dcp_world_size = 2;
  EXPECT_EQ(resolve({full(16), state(64, MambaCacheMode::align)}, parallel), (BlockSizes{64, 32}));
}

TEST(BlockSizes, ConfiguredUnitMustDivideEverySize) {
  BlockSizeOptions options;
  options.prefix_match_unit = 8;
  EXPECT_EQ(resolve({full(16), full(64)}, options), (BlockSizes{64, 8}));
  options.prefix_match_unit = 32;
  const auto refused = resolve_block_sizes(std::vector<KVCacheGroup>{full(16), full(64)}, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "prefix_match_unit 32 does not divide block size 16");
  options.prefix_match_unit = 0;
  EXPECT_FALSE(resolve_block_sizes(std::vector<KVCacheGroup>{full(16), full(64)}, options).ok());
}

TEST(BlockSizes, ImpossibleSizesAreRefused) {
  EXPECT_FALSE(resolve_block_sizes(std::vector<KVCacheGroup>{full(0)}, {}).ok());
  EXPECT_FALSE(resolve_block_sizes(std::vector<KVCacheGroup>{full(16), full(0)}, {}).ok());
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_FALSE(resolve_block_sizes(std::vector<KVCacheGroup>{full(huge), full(huge - 1)}, {}).ok());
  BlockSizeOptions parallel;
  parallel.dcp_world_size = 0;
  EXPECT_FALSE(resolve_block_sizes(std::vector<KVCacheGroup>{full(16)}, parallel).ok());
}

// Field failure: slots, tokens and compressed tokens were mixed up.
TEST(BlockSizes, CompressedGroupsCountTokensNotSlots) {
  MlaAttentionSpec compressed;
  compressed.block_size = 64;
  compressed.compress_ratio = 4;
  const std::vector<KVCacheGroup> groups = {full(16), full(64), {{"c"}, compressed}};
  EXPECT_EQ(tokens_per_block(groups[2].spec, 1), 64);
  EXPECT_EQ(page_size_bytes(compressed) / (64 * 2), 16);
  EXPECT_EQ(resolve(groups), (BlockSizes{64, 16}));
}

}  // namespace
}  // namespace kvpool
