#include "prefix/prefix_index.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace kvpool {
namespace {

using Index = PrefixIndex<std::atomic>;

std::multiset<std::uint32_t> matches(const Index& index, std::uint64_t hash) {
  std::multiset<std::uint32_t> values;
  index.for_each_match(hash, [&](std::uint32_t value) {
    values.insert(value);
    return false;
  });
  return values;
}

TEST(PrefixIndex, FindsWhatWasInsertedUntilItIsErased) {
  Index index(4);
  const std::uint32_t at = index.insert(0x1234'5678'9abc'def0ULL, 7);
  ASSERT_NE(at, Index::kNoPosition);
  EXPECT_EQ(matches(index, 0x1234'5678'9abc'def0ULL), (std::multiset<std::uint32_t>{7}));
  EXPECT_TRUE(matches(index, 0x1234'5678'9abc'def1ULL).empty());
  EXPECT_EQ(index.at(at)->value, 7U);
  index.erase(0x1234'5678'9abc'def0ULL, at);
  EXPECT_TRUE(matches(index, 0x1234'5678'9abc'def0ULL).empty());
  EXPECT_EQ(index.num_entries(), 0U);
}

TEST(PrefixIndex, EqualKeysStandBesideEachOther) {
  Index index(2);
  const std::uint32_t first = index.insert(42, 1);
  ASSERT_NE(first, Index::kNoPosition);
  ASSERT_NE(index.insert(42, 1), Index::kNoPosition);
  ASSERT_NE(index.insert(42, 2), Index::kNoPosition);
  EXPECT_EQ(matches(index, 42), (std::multiset<std::uint32_t>{1, 1, 2}));
  index.erase(42, first);
  EXPECT_EQ(matches(index, 42), (std::multiset<std::uint32_t>{1, 2}));
}

TEST(PrefixIndex, AnEmptySlotMatchesNoHash) {
  Index index(4);
  for (const std::uint64_t hash : {std::uint64_t{0}, std::uint64_t{3} << 62U, std::uint64_t{1} << 40U}) {
    EXPECT_TRUE(matches(index, hash).empty());
    EXPECT_NE(Index::fingerprint_of(hash), 0U);
  }
  ASSERT_NE(index.insert(0, 9), Index::kNoPosition);
  EXPECT_EQ(matches(index, 0), (std::multiset<std::uint32_t>{9}));
}

/// Whatever slots the matches stand in, each is visited once, and none after the visitor has said enough.
TEST(PrefixIndex, VisitsEachMatchOfABucketOnce) {
  for (std::uint32_t mask = 0; mask < 1U << Index::kSlotsPerBucket; ++mask) {
    Index index(4);
    std::multiset<std::uint32_t> expected;
    for (std::uint32_t i = 0; i < Index::kSlotsPerBucket; ++i) {
      const bool match = (mask >> i & 1U) != 0;
      const std::uint32_t value = i / 2;  // pairs of equal entries
      if (match) expected.insert(value);
      ASSERT_EQ(index.insert(match ? 42 : 100 + i, value), i);
    }
    EXPECT_EQ(matches(index, 42), expected);
    for (std::size_t enough = 1; enough <= expected.size(); ++enough) {
      std::size_t visited = 0;
      index.for_each_match(42, [&](std::uint32_t) { return ++visited == enough; });
      EXPECT_EQ(visited, enough);
    }
  }
}

TEST(PrefixIndex, CrowdedBucketOverflowsAndForgetsTheDistanceAgain) {
  Index index(3);
  std::vector<std::uint32_t> positions;
  for (std::uint32_t value = 0; value < 21; ++value) {
    const std::uint32_t at = index.insert(value, value);  // all at home in bucket 0
    ASSERT_NE(at, Index::kNoPosition);
    positions.push_back(at);
  }
  EXPECT_EQ(index.insert(99, 99), Index::kNoPosition);  // no slot is left, nothing has changed
  EXPECT_EQ(index.num_overflowed(), 14U);
  EXPECT_EQ(index.probe_length(0), 3U);
  for (std::uint32_t value = 0; value < 21; ++value) {
    EXPECT_EQ(matches(index, value), (std::multiset<std::uint32_t>{value}));
  }
  for (std::uint32_t value = 0; value < 21; ++value) index.erase(value, positions[value]);
  EXPECT_EQ(index.num_overflowed(), 0U);
  EXPECT_EQ(index.probe_length(0), 1U);
}

TEST(PrefixIndex, AsksForTheHashOfAnErasedEntryOnlyWhereABucketHasToKnow) {
  Index index(3);
  std::vector<std::uint32_t> positions;
  for (std::uint32_t value = 0; value < 2 * Index::kSlotsPerBucket; ++value) {
    positions.push_back(index.insert(value, value));  // all at home in bucket 0
    EXPECT_EQ(index.distance_of(value, positions.back()), value < Index::kSlotsPerBucket ? 0U : 1U);
    EXPECT_EQ(index.at(positions.back())->value, value);
  }
  for (std::uint32_t value = 0; value < positions.size(); ++value) {
    int asked = 0;
    index.erase_at(positions[value], [&] {
      ++asked;
      return std::uint64_t{value};
    });
    EXPECT_EQ(asked, value < Index::kSlotsPerBucket ? 0 : 1) << value;
    EXPECT_TRUE(matches(index, value).empty());
  }
  EXPECT_EQ(index.num_entries(), 0U);
  EXPECT_EQ(index.num_overflowed(), 0U);
}

TEST(PrefixIndex, ASurveyNamesAnEmptySlotAndWhetherSomethingMayMatch) {
  Index index(3);
  EXPECT_LT(index.survey(5).empty_slot, Index::kSlotsPerBucket);
  EXPECT_FALSE(index.survey(5).may_match);
  std::vector<std::uint32_t> positions;
  for (std::uint32_t value = 0; value < Index::kSlotsPerBucket; ++value) {
    positions.push_back(index.insert(5, value, index.survey(5).empty_slot));
    ASSERT_NE(positions.back(), Index::kNoPosition);
    EXPECT_TRUE(index.survey(5).may_match);
    EXPECT_FALSE(index.survey(6).may_match);
  }
  EXPECT_EQ(index.survey(6).empty_slot, Index::kSlotsPerBucket);
  ASSERT_NE(index.insert(6, 8, index.survey(6).empty_slot), Index::kNoPosition);  // stands in the next bucket
  EXPECT_TRUE(index.survey(6).may_match);
  index.erase(5, positions[3]);
  EXPECT_EQ(index.survey(5).empty_slot, positions[3]);
  const std::uint32_t outdated = (positions[3] + 1) % Index::kSlotsPerBucket;  // taken by another thread since
  EXPECT_EQ(index.insert(5, 11, outdated), positions[3]);
  EXPECT_NE(index.insert(5, 12, outdated), Index::kNoPosition);
  EXPECT_EQ(index.num_entries(), 9U);
}

TEST(PrefixIndex, DistancesGoAroundTheEnd) {
  Index index(3);
  const std::uint64_t last = std::uint64_t{0xffff'ffff} << 32U;  // at home in the last bucket
  for (std::uint32_t value = 0; value < 3 * Index::kSlotsPerBucket; ++value) {
    const std::uint32_t at = index.insert(last + value, value);
    EXPECT_EQ(index.distance_of(last + value, at), value / Index::kSlotsPerBucket);
    EXPECT_EQ(matches(index, last + value), (std::multiset<std::uint32_t>{value}));
  }
  EXPECT_EQ(index.probe_length(last), 3U);
}

TEST(PrefixIndex, ProbesStayShortAfterManyReplacements) {
  constexpr std::uint32_t kEntries = 1024;
  Index index(kEntries / 2);
  std::mt19937_64 random(1);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> entries;
  for (std::uint32_t value = 0; value < kEntries; ++value) {
    const std::uint64_t hash = random();
    entries.emplace_back(hash, index.insert(hash, value));
  }
  for (int i = 0; i < 200'000; ++i) {
    auto& [hash, position] = entries[random() % kEntries];
    index.erase(hash, position);
    hash = random();
    position = index.insert(hash, 5);
    ASSERT_NE(position, Index::kNoPosition);
  }
  EXPECT_EQ(index.num_entries(), kEntries);
  std::size_t probes = 0;
  for (int i = 0; i < 10'000; ++i) probes += index.probe_length(random());
  EXPECT_LT(probes, 10'400U);  // two entries per bucket of seven: hardly any overflows
}

TEST(PrefixIndex, ConcurrentInsertionsAndErasuresKeepEveryEntry) {
  Index index(8);  // crowded: up to 45 of 56 slots
  std::array<std::thread, 3> threads;
  std::array<int, 3> missing{};
  for (std::uint32_t t = 0; t < threads.size(); ++t) {
    threads[t] = std::thread([&, t] {
      std::mt19937_64 random(t);
      std::map<std::uint32_t, std::pair<std::uint64_t, std::uint32_t>> mine;
      for (int i = 0; i < 20'000; ++i) {
        const std::uint32_t value = t * 100 + static_cast<std::uint32_t>(random() % 15);
        const auto held = mine.find(value);
        if (held != mine.end()) {
          missing[t] += matches(index, held->second.first).count(value) == 1 ? 0 : 1;
          index.erase(held->second.first, held->second.second);
          mine.erase(held);
        } else {
          const std::uint64_t hash = random() >> 2U;  // a few home buckets only
          const std::uint32_t at = index.insert(hash, value);
          missing[t] += at != Index::kNoPosition ? 0 : 1;
          if (at != Index::kNoPosition) mine[value] = {hash, at};
        }
      }
      for (const auto& [value, entry] : mine) index.erase(entry.first, entry.second);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(missing, (std::array<int, 3>{}));
  EXPECT_EQ(index.num_entries(), 0U);
  EXPECT_EQ(index.num_overflowed(), 0U);
}

}  // namespace
}  // namespace kvpool
