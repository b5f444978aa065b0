#include "kvpool/foundation/strong_id.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

#include "kvpool/block/block_id.hpp"

namespace kvpool {
namespace {

static_assert(!std::is_convertible_v<BlockId, GroupId>);
static_assert(!std::is_convertible_v<int, BlockId>);
static_assert(sizeof(BlockId) == 4 && sizeof(BlockHandle) == 8);

TEST(StrongId, ComparesAndHashesByValue) {
  EXPECT_LT(BlockId{1}, BlockId{2});
  std::unordered_set<BlockId> ids{BlockId{3}, BlockId{3}, BlockId{4}};
  EXPECT_EQ(ids.size(), 2U);
}

TEST(BlockHandle, NullBlockIsBlockZero) {
  EXPECT_TRUE(BlockHandle{}.is_null());
  EXPECT_FALSE((BlockHandle{BlockId{1}, 0, 0}).is_null());
}

}  // namespace
}  // namespace kvpool
