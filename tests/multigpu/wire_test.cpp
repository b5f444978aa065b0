// What travels between ranks: no damaged message is taken for a sound one, and equal knowledge gives one verdict.
#include <gtest/gtest.h>

#include <random>

#include "multigpu/byte_order.hpp"
#include "multigpu/fault_set.hpp"
#include "multigpu/frame.hpp"
#include "thread_ranks.hpp"

namespace kvpool::multigpu {
namespace {

using kvpool::testing::to_bytes;
using kvpool::testing::to_text;

Bytes sample_frame() { return encode_frame({FrameKind::broadcast, 1, 42}, 2, 4, to_bytes("some payload")); }

TEST(Frame, ComesBackAsItWasSent) {
  const auto frame = decode_frame(sample_frame(), 2, 4);
  ASSERT_TRUE(frame.header.has_value());
  EXPECT_EQ(frame.defect, "");
  EXPECT_EQ(frame.header->kind, FrameKind::broadcast);
  EXPECT_EQ(frame.header->phase, 1);
  EXPECT_EQ(frame.header->sequence, 42U);
  EXPECT_EQ(to_text(frame.payload), "some payload");
  EXPECT_EQ(decode_frame(encode_frame({FrameKind::barrier, 0, 1}, 0, 1, {}), 0, 1).defect, "");
}

TEST(Frame, EveryFlippedBitAndEveryCutIsNoticed) {
  const Bytes good = sample_frame();
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      Bytes bad = good;
      bad[i] ^= static_cast<std::byte>(1U << bit);
      EXPECT_NE(decode_frame(bad, 2, 4).defect, "") << "byte " << i << " bit " << bit;
    }
    EXPECT_NE(decode_frame(std::span(good).first(i), 2, 4).defect, "") << "cut to " << i;
  }
  Bytes longer = good;
  longer.push_back(std::byte{0});
  EXPECT_NE(decode_frame(longer, 2, 4).defect, "");
}

TEST(Frame, OfAnotherSenderOrWorldIsRefused) {
  EXPECT_NE(decode_frame(sample_frame(), 1, 4).defect.find("says it comes from rank 2"), std::string::npos);
  EXPECT_NE(decode_frame(sample_frame(), 2, 8).defect.find("a world of 4 ranks"), std::string::npos);
}

TEST(Frame, NoiseIsRefusedWithoutHarm) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    Bytes noise(random() % 200);
    for (auto& byte : noise) byte = static_cast<std::byte>(random());
    EXPECT_NE(decode_frame(noise, 0, 2).defect, "");
    (void)FaultSet::decode(noise, 2);
  }
}

FaultSet sample_faults() {
  FaultSet set;
  set.add({FaultKind::silent, 2, 0, "step 'hello' within 100 ms"});
  set.add({FaultKind::silent, 2, 1, "step 'hello' within 100 ms"});
  set.add({FaultKind::silent, 1, 3, "step 'hello' within 100 ms"});
  return set;
}

TEST(Faults, ComeBackAsTheyWereSentAndNoPrefixDoes) {
  Bytes bytes;
  sample_faults().encode(bytes);
  const auto back = FaultSet::decode(bytes, 4);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->faults(), sample_faults().faults());
  EXPECT_FALSE(FaultSet::decode(bytes, 2).has_value()) << "ranks outside the world";
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(FaultSet::decode(std::span(bytes).first(length), 4).has_value()) << length;
  }
  Bytes huge;
  put(huge, std::uint32_t{0xffff'ffff});
  EXPECT_FALSE(FaultSet::decode(huge, 4).has_value());
}

TEST(Faults, TheRankThatMostComplainAboutIsAtFault) {
  const Error error = sample_faults().verdict();
  EXPECT_EQ(error.code, ErrorCode::deadline_exceeded);
  EXPECT_EQ(error.rank, 2);
  EXPECT_EQ(error.message, "rank 2 did not answer in step 'hello' within 100 ms (seen by ranks 0-1)");
}

TEST(Faults, WeighMoreWhenTheySayMore) {
  FaultSet set = sample_faults();
  set.add({FaultKind::absent, 3, 0, "barrier within 5 ms"});
  EXPECT_EQ(set.verdict().rank, 3) << "absent from the search for the verdict: dead";
  set.add({FaultKind::garbage, 1, 0, "rubbish"});
  EXPECT_EQ(set.verdict().code, ErrorCode::bad_input);
  set.add({FaultKind::aborted, 0, 0, "out_of_memory: full"});
  EXPECT_EQ(set.verdict().code, ErrorCode::rank_failed);
  EXPECT_EQ(set.verdict().message, "rank 0 gave up: out_of_memory: full");
}

TEST(Faults, MergeInAnyOrderToTheSameSet) {
  FaultSet a = sample_faults();
  FaultSet b;
  b.add({FaultKind::garbage, 0, 1, "x"});
  FaultSet ab = a;
  ab.merge(b);
  ab.merge(b);
  FaultSet ba = b;
  ba.merge(a);
  EXPECT_EQ(ab.faults(), ba.faults());
}

TEST(Faults, RanksAreListedShortly) {
  EXPECT_EQ(format_ranks({3}), "rank 3");
  EXPECT_EQ(format_ranks({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
}

}  // namespace
}  // namespace kvpool::multigpu
