#include "kvpool/foundation/error.hpp"

#include <gtest/gtest.h>

namespace kvpool {
namespace {

TEST(Status, IsSuccessUnlessGivenAnError) {
  EXPECT_TRUE(Status{}.ok());
  const Status failed(ErrorCode::deadline_exceeded, "rank 2 did not answer in 60 s", 2);
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().rank, 2);
  EXPECT_EQ(failed.error().code, ErrorCode::deadline_exceeded);
}

TEST(Result, HoldsEitherAValueOrAnError) {
  Result<int> good = 7;
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(*good, 7);
  EXPECT_TRUE(good.status().ok());
  const Result<int> bad(ErrorCode::invalid_argument, "num_blocks is 0");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().error().message, "num_blocks is 0");
}

TEST(ErrorCode, NamesAreThoseOfOpScripts) {
  EXPECT_EQ(to_string(ErrorCode::not_enough_blocks), "not_enough_blocks");
  EXPECT_EQ(to_string(ErrorCode::double_free), "double_free");
  EXPECT_EQ(to_string(ErrorCode::unknown_block), "unknown_block");
}

}  // namespace
}  // namespace kvpool
