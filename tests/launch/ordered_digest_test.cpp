#include "tools/launch/driver/ordered_digest.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace kvpool::launch {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

TEST(OrderedDigest, IsTheSha256OfThePiecesInItemOrder) {
  OrderedDigest digest(3);
  digest.add(2, bytes_of("e"));
  digest.add(0, bytes_of("a"));
  digest.close(2);
  digest.add(1, bytes_of("c"));
  digest.add(0, bytes_of("b"));
  EXPECT_EQ(digest.buffered_bytes(), 2U);
  digest.close(0);
  EXPECT_EQ(digest.buffered_bytes(), 1U);  // item 1 is open, its bytes are in; item 2 waits
  digest.add(1, bytes_of("d"));
  digest.close(1);
  EXPECT_EQ(digest.buffered_bytes(), 0U);
  // sha256("abcde")
  EXPECT_EQ(digest.finish(), "36bbe50ed96841d10443bcb670d6554f0a34b761be67ec9c4a8ad2c0c44ca42c");
}

TEST(OrderedDigest, ClosesWhatIsLeft) {
  OrderedDigest digest(4);
  digest.add(3, bytes_of("c"));
  digest.add(1, bytes_of("ab"));
  // sha256("abc"): items without pieces add nothing
  EXPECT_EQ(digest.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(OrderedDigest, OfNothingIsTheEmptyDigest) {
  EXPECT_EQ(OrderedDigest(0).finish(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

}  // namespace
}  // namespace kvpool::launch
