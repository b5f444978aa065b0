#include "kvpool/block/block_hash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace kvpool {
namespace {

const std::string kHex = "fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798";

TEST(BlockHash, HexRoundTrip) {
  const auto hash = BlockHash::from_hex(kHex);
  ASSERT_TRUE(hash.has_value());
  EXPECT_EQ(hash->size, 32);
  EXPECT_EQ(hash->to_hex(), kHex);
}

TEST(BlockHash, EventIdIsTheLastEightBytesBigEndian) {
  EXPECT_EQ(BlockHash::from_hex(kHex)->event_id(), 3262291359910021016ULL);
}

TEST(BlockHash, BadHexIsRefused) {
  EXPECT_FALSE(BlockHash::from_hex("").has_value());
  EXPECT_FALSE(BlockHash::from_hex("abc").has_value());
  EXPECT_FALSE(BlockHash::from_hex("zz").has_value());
  EXPECT_FALSE(BlockHash::from_hex(std::string(66, 'a')).has_value());
}

TEST(BlockHash, ShortAndLongDigestsWithEqualBytesDiffer) {
  const auto shorter = BlockHash::from_hex("0a0b");
  const auto longer = BlockHash::from_hex("0a0b00");
  EXPECT_NE(*shorter, *longer);
}

TEST(BlockKey, HexEndsWithTheGroupBigEndian) {
  const BlockKey key{*BlockHash::from_hex("0a0b"), GroupId{258}};
  EXPECT_EQ(key.to_hex(), "0a0b00000102");
}

}  // namespace
}  // namespace kvpool
