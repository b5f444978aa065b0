#include "tools/launch/step/table_mirror.hpp"

#include <gtest/gtest.h>

namespace kvpool::launch {
namespace {

StepSequence sequence_of(std::uint64_t request, std::uint32_t computed, std::size_t tokens,
                         const std::vector<std::uint32_t>& known, const std::vector<std::uint32_t>& table) {
  StepSequence sequence;
  sequence.request = request;
  sequence.num_computed = computed;
  sequence.tokens.assign(tokens, 1);
  sequence.tables = {table_changes(known, table)};
  sequence.slots.emplace_back();
  for (std::size_t i = 0; i < tokens; ++i) {
    const std::size_t position = computed + i;
    sequence.slots[0].push_back(static_cast<std::int64_t>(table[position / 4] * 4 + position % 4));
  }
  return sequence;
}

StepMessage step_of(std::vector<StepSequence> sequences, std::vector<std::uint64_t> removed = {}) {
  StepMessage message;
  message.sequences = std::move(sequences);
  message.removed = std::move(removed);
  return message;
}

TEST(TableChanges, SendOnlyWhatDiffers) {
  const std::vector<std::uint32_t> known = {5, 6, 7};
  const std::vector<std::uint32_t> current = {0, 6, 8, 9};
  const TableUpdate update = table_changes(known, current);
  EXPECT_EQ(update, (TableUpdate{4, {{0, {0}}, {2, {8, 9}}}}));
  EXPECT_EQ(table_changes(current, current), (TableUpdate{4, {}}));
  EXPECT_EQ(table_changes({}, current), (TableUpdate{4, {{0, {0, 6, 8, 9}}}}));
}

TEST(TableMirror, FollowsTheChanges) {
  TableMirror mirror({4}, 16);
  ASSERT_TRUE(mirror.apply(step_of({sequence_of(1, 0, 6, {}, {3, 5}), sequence_of(2, 0, 1, {}, {9})})).ok());
  ASSERT_TRUE(mirror.apply(step_of({sequence_of(1, 6, 3, {3, 5}, {3, 5, 7})})).ok());
  EXPECT_EQ(std::vector<std::uint32_t>(mirror.table(1, 0).begin(), mirror.table(1, 0).end()),
            (std::vector<std::uint32_t>{3, 5, 7}));
  EXPECT_EQ(mirror.num_requests(), 2U);
  // Removed and back in the same step: the old table is gone first.
  ASSERT_TRUE(mirror.apply(step_of({sequence_of(1, 0, 2, {}, {8})}, {1})).ok());
  EXPECT_EQ(mirror.table(1, 0).size(), 1U);
  EXPECT_TRUE(mirror.table(77, 0).empty());
}

TEST(TableMirror, RefusesWhatDoesNotFit) {
  const auto refused = [](const StepMessage& message) {
    TableMirror mirror({4}, 16);
    EXPECT_TRUE(mirror.apply(step_of({sequence_of(1, 0, 6, {}, {3, 5})})).ok());
    const Status status = mirror.apply(message);
    return status.ok() ? std::string("accepted") : status.error().message;
  };
  EXPECT_NE(refused(step_of({}, {4})).find("request 4 is removed, but unknown"), std::string::npos);
  EXPECT_NE(refused(step_of({sequence_of(2, 0, 1, {}, {16})})).find("index 0: block 16 of 16"), std::string::npos);
  // Entries that were never sent.
  EXPECT_NE(refused(step_of({sequence_of(2, 4, 1, {3}, {3, 6})})).find("from index 0 on were never sent"),
            std::string::npos);
  // A table that shrinks without being removed.
  EXPECT_NE(refused(step_of({sequence_of(1, 0, 1, {3, 5}, {3})})).find("table of 1 blocks after one of 2"),
            std::string::npos);
  StepMessage wrong_slot = step_of({sequence_of(1, 6, 2, {3, 5}, {3, 5})});
  wrong_slot.sequences[0].slots[0][1] += 4;
  EXPECT_NE(refused(wrong_slot).find("request 1, group 0, token 7: slot 27"), std::string::npos);
  // The null block has no slots.
  StepMessage null_slot = step_of({sequence_of(2, 0, 1, {}, {0})});
  EXPECT_NE(refused(null_slot).find("token 0"), std::string::npos);
  StepMessage groups = step_of({});
  groups.num_groups = 2;
  EXPECT_NE(refused(groups).find("2 groups, this rank has 1"), std::string::npos);
}

}  // namespace
}  // namespace kvpool::launch
