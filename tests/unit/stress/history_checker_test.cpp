#include "stress/history_checker.hpp"

#include <gtest/gtest.h>

namespace kvpool::stress {
namespace {

BlockAction call(Action action, Moment invoked, Moment returned, std::uint32_t key = 0, std::uint32_t block = 1) {
  return {action, block, key, 0, invoked, returned};
}

TEST(HistoryChecker, AcceptsASequentialLife) {
  const History history{{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7), call(Action::release, 5, 6),
                         call(Action::pin, 7, 8, 7), call(Action::release, 9, 10), call(Action::claim, 11, 12)},
                        {},
                        {}};
  const HistoryVerdict verdict = check_history(history, 4);
  EXPECT_TRUE(verdict.allowed) << verdict.reason;
  EXPECT_EQ(verdict.actions, 6U);
}

TEST(HistoryChecker, FindsABlockThatTwoThreadsGot) {
  const History history{{call(Action::claim, 1, 5), call(Action::claim, 2, 4)}, {}, {}};
  EXPECT_FALSE(check_history(history, 4).allowed);
}

TEST(HistoryChecker, FindsAPinOfARecycledBlock) {
  const History history{{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7), call(Action::release, 5, 6),
                         call(Action::claim, 7, 8), call(Action::pin, 9, 10, 7)},
                        {},
                        {}};
  const HistoryVerdict verdict = check_history(history, 4);
  EXPECT_FALSE(verdict.allowed);
  EXPECT_NE(verdict.reason.find("pin block 1 key 7"), std::string::npos);
}

TEST(HistoryChecker, OverlappingCallsMayHaveHappenedInEitherOrder) {
  const History history{{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7), call(Action::release, 5, 9),
                         call(Action::pin, 6, 8, 7), call(Action::claim, 7, 20), call(Action::release, 10, 11)},
                        {},
                        {}};
  EXPECT_TRUE(check_history(history, 4).allowed);
}

TEST(HistoryChecker, FindsAReferenceGivenBackTwice) {
  const History history{{call(Action::claim, 1, 2), call(Action::release, 3, 4), call(Action::release, 5, 6)}, {}, {}};
  EXPECT_FALSE(check_history(history, 4).allowed);
}

TEST(HistoryChecker, ARefusalWithoutPressureIsAViolation) {
  const History refused{{}, {}, {{3, false, 0, 1, 2}}};
  EXPECT_FALSE(check_history(refused, 4).allowed);
  EXPECT_TRUE(check_history(refused, 2).allowed);
}

TEST(HistoryChecker, ARefusalWhileAnotherCallIsInProgressIsExcused) {
  const History history{{}, {}, {{3, false, 0, 1, 4}, {2, false, 1, 2, 3}}};
  EXPECT_TRUE(check_history(history, 4).allowed);
}

TEST(HistoryChecker, APinInProgressExcusesOneBlockMoreOnlyWhereSharedBlocksAreRewritten) {
  // Of four blocks one is held, the pin may need one, and two are asked for.
  const std::vector<Allocation> refused{{2, false, 1, 6, 7}};
  std::vector<BlockAction> actions{call(Action::claim, 1, 2, 0, 2), call(Action::publish, 3, 4, 7, 2),
                                   call(Action::pin, 5, 8, 7, 2)};
  EXPECT_FALSE(check_history({actions, {}, refused}, 4).allowed);
  actions.insert(actions.begin() + 2, {call(Action::claim, 1, 2, 0, 3), call(Action::publish, 3, 3, 9, 3),
                                       call(Action::unpublish, 4, 4, 1, 3), call(Action::release, 4, 4, 0, 3)});
  EXPECT_TRUE(check_history({actions, {}, refused}, 4).allowed);
}

TEST(HistoryChecker, AMissWhileABlockCarriedTheKeyIsAViolation) {
  const History history{{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7)}, {{7, 1, 5, 6}}, {}};
  EXPECT_FALSE(check_history(history, 4).allowed);
  const History overlapping{{call(Action::claim, 1, 2), call(Action::publish, 3, 6, 7)}, {{7, 1, 5, 8}}, {}};
  EXPECT_TRUE(check_history(overlapping, 4).allowed);
}

TEST(HistoryChecker, AFurtherKeyOfABlockThatHasLostItsOwnIsTheOnlyOne) {
  // Content can be taken once for each key that was the only one: twice here, and not three times.
  std::vector<BlockAction> calls = {call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7),
                                    call(Action::unpublish, 5, 6, 1), call(Action::publish_further, 7, 12, 8),
                                    call(Action::unpublish, 8, 20, 1)};
  EXPECT_TRUE(check_history({calls, {}, {}}, 4).allowed);
  calls.push_back(call(Action::unpublish, 21, 22, 1));
  EXPECT_FALSE(check_history({calls, {}, {}}, 4).allowed);
  // Beside another key it changes nothing.
  EXPECT_FALSE(
      check_history({{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7), call(Action::publish_further, 5, 6, 8),
                      call(Action::unpublish, 7, 8, 1), call(Action::unpublish, 9, 10, 1)},
                     {},
                     {}},
                    4)
          .allowed);
}

TEST(HistoryChecker, DroppedContentExplainsThatNothingIsThere) {
  History history{{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7), call(Action::release, 5, 6),
                   call(Action::unpublish, 7, 8, 0)},
                  {{7, 1, 9, 10, true}},
                  {}};
  EXPECT_FALSE(check_history(history, 4).allowed);
  history.dropped = 1;
  EXPECT_TRUE(check_history(history, 4).allowed);
  history.actions.push_back(call(Action::pin, 11, 12, 7));
  EXPECT_FALSE(check_history(history, 4).allowed);
}

TEST(HistoryChecker, LackOfCapacityDoesNotExcuseALookUpThatPinsNothing) {
  History history{{call(Action::claim, 1, 2), call(Action::publish, 3, 4, 7)}, {{7, 1, 5, 6, false}}, {}};
  EXPECT_TRUE(check_history(history, 1).allowed);
  history.misses[0].pins_nothing = true;
  EXPECT_FALSE(check_history(history, 1).allowed);
}

TEST(HistoryChecker, EvictionEndsContentAndSaysNothingAboutIt) {
  std::vector<BlockAction> calls = {call(Action::claim, 1, 2), call(Action::evict, 3, 4),
                                    call(Action::publish, 5, 6, 7), call(Action::evict, 7, 8)};
  EXPECT_TRUE(check_history({calls, {{7, 1, 9, 10}}, {}}, 4).allowed);
  calls.push_back(call(Action::pin, 9, 10, 7));
  EXPECT_FALSE(check_history({calls, {}, {}}, 4).allowed);
  calls.back() = call(Action::pin, 7, 10, 7);  // beside it
  EXPECT_TRUE(check_history({calls, {}, {}}, 4).allowed);
}

TEST(HistoryChecker, APublicationInVainIsSeenWithinItsCallOnly) {
  const auto pinned = [](Moment invoked, Moment returned) {
    return History{
        {call(Action::claim, 1, 2), call(Action::publish_in_vain, 3, 8, 7), {Action::pin, 1, 7, 1, invoked, returned}},
        {},
        {}};
  };
  EXPECT_TRUE(check_history(pinned(4, 5), 4).allowed);
  EXPECT_TRUE(check_history(pinned(7, 12), 4).allowed);
  EXPECT_FALSE(check_history(pinned(9, 12), 4).allowed);
  // Nobody has to see it, and content that another thread ends cannot be taken back once more.
  EXPECT_TRUE(
      check_history({{call(Action::claim, 1, 2), call(Action::publish_in_vain, 3, 8, 7)}, {{7, 1, 4, 5}}, {}}, 4)
          .allowed);
  const History replaced{{call(Action::claim, 1, 2),
                          call(Action::publish_in_vain, 3, 8, 7),
                          {Action::unpublish, 1, 1, 1, 4, 5},
                          {Action::publish, 1, 9, 1, 6, 7},
                          call(Action::pin, 9, 10, 9)},
                         {},
                         {}};
  EXPECT_TRUE(check_history(replaced, 4).allowed);
}

TEST(HistoryChecker, AMoveIsAPublicationAndAnEndOfContent) {
  const std::vector<BlockAction> moved = {call(Action::claim, 1, 2, 0, 1), call(Action::claim, 1, 2, 0, 2),
                                          call(Action::publish, 3, 4, 7, 1), call(Action::publish, 5, 6, 7, 2),
                                          call(Action::move_away, 5, 6, 7, 1)};
  const auto with_pin = [&moved](std::uint32_t block) {
    std::vector<BlockAction> calls = moved;
    calls.push_back(call(Action::pin, 7, 8, 7, block));
    return check_history({calls, {}, {}}, 4).allowed;
  };
  EXPECT_TRUE(with_pin(2));
  EXPECT_FALSE(with_pin(1));
  EXPECT_FALSE(check_history({moved, {{7, 1, 7, 8}}, {}}, 8).allowed);  // the target answers
  std::vector<BlockAction> other_key = moved;
  other_key.back().key = 9;
  EXPECT_FALSE(check_history({other_key, {}, {}}, 4).allowed);
}

TEST(HistoryChecker, WhatStandsBeforeAPinnedElementOfAChainIsPublished) {
  History history{{call(Action::claim, 1, 2, 0, 1), call(Action::claim, 1, 2, 0, 2), call(Action::publish, 3, 20, 7, 1),
                   call(Action::publish, 3, 20, 8, 2), call(Action::pin, 4, 5, 8, 2)},
                  {{7, 1, 6, 7}},
                  {}};
  EXPECT_TRUE(check_history(history, 8).allowed);
  history.chains.push_back({2, 2});
  EXPECT_FALSE(check_history(history, 8).allowed);
  History behind_others{{call(Action::claim, 1, 2, 0, 3)}, {}, {}};
  behind_others.append(history);
  EXPECT_EQ(behind_others.chains[0].first, 3U);
  EXPECT_FALSE(check_history(behind_others, 8).allowed);
}

}  // namespace
}  // namespace kvpool::stress
