#include "stress/strict_checker.hpp"

#include <gtest/gtest.h>

namespace kvpool::stress {
namespace {

WholeCall allocate(std::vector<std::uint32_t> blocks, Moment invoked, Moment returned) {
  const auto count = static_cast<std::uint32_t>(blocks.size());
  return {CallKind::allocate, true, count, {}, 0, std::move(blocks), invoked, returned};
}
WholeCall refused(std::uint32_t count, Moment invoked, Moment returned) {
  return {CallKind::allocate, false, count, {}, 0, {}, invoked, returned};
}
WholeCall publish(std::uint32_t block, std::uint32_t key, Moment invoked, Moment returned) {
  return {CallKind::publish, true, 0, {key}, 0, {block}, invoked, returned};
}
WholeCall release(std::vector<std::uint32_t> blocks, Moment invoked, Moment returned, std::uint64_t fence = 0) {
  return {CallKind::release, true, 0, {}, fence, std::move(blocks), invoked, returned};
}
WholeCall pin(std::uint32_t block, std::uint32_t key, Moment invoked, Moment returned) {
  return {CallKind::pin, true, 0, {key}, 0, {block}, invoked, returned};
}
WholeCall miss(std::uint32_t key, Moment invoked, Moment returned) {
  return {CallKind::pin, false, 0, {key}, 0, {}, invoked, returned};
}
WholeCall advance(std::uint64_t fence, Moment invoked, Moment returned) {
  return {CallKind::advance_fence, true, 0, {}, fence, {}, invoked, returned};
}

WholeCall unpublished(std::uint32_t block, bool done, Moment invoked, Moment returned) {
  return {CallKind::unpublish, done, 0, {}, 0, {block}, invoked, returned};
}
WholeCall evict(std::vector<std::uint32_t> blocks, Moment invoked, Moment returned) {
  return {CallKind::evict, true, 0, {}, 0, std::move(blocks), invoked, returned};
}
WholeCall move(std::uint32_t source, std::uint32_t target, bool done, Moment invoked, Moment returned) {
  return {CallKind::move, done, 0, {}, 0, {source, target}, invoked, returned};
}

Strictness judge(std::vector<WholeCall> calls, std::uint32_t usable = 2) {
  History history;
  history.calls = std::move(calls);
  return check_strictly(history, usable);
}

TEST(StrictChecker, AcceptsALife) {
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), publish(1, 7, 3, 4), release({2, 1}, 5, 6), pin(1, 7, 7, 8), miss(8, 9, 10),
                   refused(2, 11, 12), release({1}, 13, 14), allocate({1}, 15, 16), miss(7, 17, 18)}),
            Strictness::linearizable);
}

TEST(StrictChecker, OverlappingCallsMayComeInEitherOrder) {
  EXPECT_EQ(judge({allocate({1}, 1, 2), release({1}, 3, 9), refused(2, 4, 5), allocate({1, 2}, 10, 11)}),
            Strictness::linearizable);
  EXPECT_EQ(judge({allocate({1}, 1, 2), publish(1, 7, 3, 9), miss(7, 4, 5), pin(1, 7, 6, 7)}),
            Strictness::linearizable);
  EXPECT_EQ(judge({allocate({1}, 1, 2), publish(1, 7, 3, 9), pin(1, 7, 4, 5), miss(7, 6, 7)}),
            Strictness::not_linearizable);
}

TEST(StrictChecker, RefusesWhatNoOrderExplains) {
  EXPECT_EQ(judge({allocate({1}, 1, 4), allocate({1}, 2, 3)}), Strictness::not_linearizable);
  EXPECT_EQ(judge({refused(1, 1, 2)}), Strictness::not_linearizable);
  EXPECT_EQ(judge({pin(1, 7, 1, 2)}), Strictness::not_linearizable);
  EXPECT_EQ(judge({release({1}, 1, 2)}), Strictness::not_linearizable);
  EXPECT_EQ(judge({allocate({1}, 1, 2), publish(1, 7, 3, 4), miss(7, 5, 6)}), Strictness::not_linearizable);
}

TEST(StrictChecker, ABatchIsItsPartsInOrder) {
  const WholeCall chain{CallKind::publish, true, 0, {7, 8}, 0, {1, 2}, 3, 4};
  const auto prefix = [](bool done, std::vector<std::uint32_t> blocks, Moment invoked) {
    return WholeCall{CallKind::pin_prefix, done, 0, {7, 8}, 0, std::move(blocks), invoked, invoked + 1};
  };
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), chain, prefix(true, {1, 2}, 5)}), Strictness::linearizable);
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), chain, prefix(true, {2, 1}, 5)}), Strictness::not_linearizable);
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), publish(1, 7, 3, 4), prefix(false, {1}, 5)}), Strictness::linearizable);
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), chain, prefix(false, {1}, 5)}), Strictness::not_linearizable);
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), publish(2, 8, 3, 4), chain}), Strictness::not_linearizable);
}

TEST(StrictChecker, ACallOnManyBlocksIsOneMoment) {
  // One block of a release is taken by another thread before the call returns, the other is refused to it: block by
  // block that is allowed, at one moment it is not.
  EXPECT_EQ(judge({allocate({1, 2}, 1, 2), release({1, 2}, 3, 9), allocate({1}, 4, 5), refused(1, 6, 7)}),
            Strictness::not_linearizable);
}

TEST(StrictChecker, BlocksBehindAFenceAreFoundAndNotHandedOut) {
  EXPECT_EQ(
      judge({allocate({1, 2}, 1, 2), publish(1, 7, 3, 4), release({1, 2}, 5, 6, 3), refused(1, 7, 8), pin(1, 7, 9, 10),
             release({1}, 11, 12), refused(1, 13, 14), advance(3, 15, 16), allocate({1, 2}, 17, 18)}),
      Strictness::linearizable);
  EXPECT_EQ(judge({allocate({1}, 1, 2), release({1}, 3, 4, 3), advance(2, 5, 6), allocate({1}, 7, 8)}),
            Strictness::not_linearizable);
}

TEST(StrictChecker, EvictionOfSeveralBlocksIsOneMoment) {
  const std::vector<WholeCall> before{allocate({1, 2}, 1, 2), publish(1, 7, 3, 4), publish(2, 8, 5, 6)};
  const auto then = [&before](std::vector<WholeCall> after) {
    after.insert(after.begin(), before.begin(), before.end());
    return judge(std::move(after));
  };
  EXPECT_EQ(then({evict({1, 2}, 7, 8), miss(7, 9, 10), miss(8, 11, 12), unpublished(1, false, 13, 14)}),
            Strictness::linearizable);
  EXPECT_EQ(then({evict({1, 2}, 7, 8), pin(2, 8, 9, 10)}), Strictness::not_linearizable);
  EXPECT_EQ(then({evict({1, 2}, 7, 20), miss(7, 9, 10), pin(2, 8, 11, 12)}), Strictness::not_linearizable);
}

TEST(StrictChecker, AMoveTakesContentFromOneBlockToAnother) {
  const std::vector<WholeCall> before{allocate({1, 2}, 1, 2), publish(1, 7, 3, 4)};
  const auto then = [&before](std::vector<WholeCall> after) {
    after.insert(after.begin(), before.begin(), before.end());
    return judge(std::move(after));
  };
  EXPECT_EQ(then({move(1, 2, true, 5, 6), pin(2, 7, 7, 8), unpublished(1, false, 9, 10)}), Strictness::linearizable);
  EXPECT_EQ(then({move(1, 2, true, 5, 6), pin(1, 7, 7, 8)}), Strictness::not_linearizable);
  EXPECT_EQ(then({move(1, 2, true, 5, 9), miss(7, 6, 7)}), Strictness::not_linearizable);
  EXPECT_EQ(then({move(1, 2, false, 5, 6)}), Strictness::not_linearizable);
  EXPECT_EQ(then({move(2, 1, false, 5, 6), pin(1, 7, 7, 8)}), Strictness::linearizable);  // nothing to be moved
  EXPECT_EQ(then({publish(2, 8, 5, 6), move(1, 2, false, 7, 8)}), Strictness::linearizable);
  EXPECT_EQ(then({move(1, 2, false, 5, 10), unpublished(1, true, 6, 7)}), Strictness::linearizable);
}

TEST(StrictChecker, WhereDuplicatesAreSkippedOneBlockAnswers) {
  const auto judged = [](bool skips, bool second_done) {
    History history;
    history.skips_duplicates = skips;
    history.calls = {allocate({1, 2}, 1, 2), publish(1, 7, 3, 4), publish(2, 7, 5, 6)};
    history.calls.back().done = second_done;
    return check_strictly(history, 2);
  };
  EXPECT_EQ(judged(true, false), Strictness::linearizable);
  EXPECT_EQ(judged(true, true), Strictness::not_linearizable);
  EXPECT_EQ(judged(false, true), Strictness::linearizable);
  EXPECT_EQ(judged(false, false), Strictness::not_linearizable);
}

TEST(StrictChecker, SaysSoWhenTooManyCallsOverlap) {
  std::vector<WholeCall> calls;
  for (Moment i = 0; i < 65; ++i) calls.push_back(miss(1, i, 1000 + i));
  EXPECT_EQ(judge(std::move(calls)), Strictness::undecided);
}

}  // namespace
}  // namespace kvpool::stress
