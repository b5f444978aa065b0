#include "tools/launch/model/head_slice.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace kvpool::launch {
namespace {

TEST(HeadSlice, EveryHeadHasOneOwnerAndQueryHeadsSitWithTheirKvHead) {
  for (const std::int64_t query_heads : {8, 12, 16}) {
    for (const std::int64_t kv_heads : {1, 2, 4}) {
      for (const int ranks : {1, 2, 4}) {
        std::vector<int> owners(static_cast<std::size_t>(query_heads), 0);
        std::vector<std::int64_t> holders(static_cast<std::size_t>(kv_heads), 0);
        for (int rank = 0; rank < ranks; ++rank) {
          const auto slice = head_slice_of(query_heads, kv_heads, rank, ranks);
          ASSERT_TRUE(slice.ok()) << slice.error().message;
          for (std::int64_t h = 0; h < slice->num_query_heads; ++h) {
            const std::int64_t query_head = slice->first_query_head + h;
            ++owners[static_cast<std::size_t>(query_head)];
            const std::int64_t kv_head = query_head / (query_heads / kv_heads);
            EXPECT_GE(kv_head, slice->first_kv_head);
            EXPECT_LT(kv_head, slice->first_kv_head + slice->num_kv_heads);
            // The kernel maps local query heads to local KV heads by the same rule.
            const std::int64_t local = h / (slice->num_query_heads / slice->num_kv_heads);
            EXPECT_EQ(kv_head, slice->first_kv_head + local);
          }
          for (std::int64_t h = 0; h < slice->num_kv_heads; ++h) {
            ++holders[static_cast<std::size_t>(slice->first_kv_head + h)];
          }
        }
        for (const int count : owners) EXPECT_EQ(count, 1);
        for (const std::int64_t count : holders) EXPECT_EQ(count, std::max<std::int64_t>(1, ranks / kv_heads));
      }
    }
  }
}

TEST(HeadSlice, RefusesWithTheNumbers) {
  const auto too_many = head_slice_of(8, 2, 0, 16);
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.error().code, ErrorCode::invalid_config);
  EXPECT_NE(too_many.error().message.find("16 ranks for 8 query heads"), std::string::npos);

  const auto uneven = head_slice_of(8, 2, 0, 3);
  ASSERT_FALSE(uneven.ok());
  EXPECT_NE(uneven.error().message.find("8 query heads do not divide by 3 ranks"), std::string::npos);

  const auto kv = head_slice_of(12, 4, 0, 6);
  ASSERT_FALSE(kv.ok());
  EXPECT_NE(kv.error().message.find("4 KV heads and 6 ranks"), std::string::npos);

  EXPECT_FALSE(head_slice_of(8, 3, 0, 1).ok());
  EXPECT_FALSE(head_slice_of(8, 2, 2, 2).ok());
}

TEST(HeadSlice, KnowsWhenSumsDoNotDependOnTheRanks) {
  EXPECT_TRUE(sums_are_rank_independent(8, 1));
  EXPECT_TRUE(sums_are_rank_independent(8, 4));
  EXPECT_TRUE(sums_are_rank_independent(12, 3));
  EXPECT_FALSE(sums_are_rank_independent(12, 4));
  EXPECT_FALSE(sums_are_rank_independent(8, 3));
}

}  // namespace
}  // namespace kvpool::launch
