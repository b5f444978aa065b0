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
  const auto at = index.insert(0x1234'5678'9abc'def0ULL, 7);
  ASSERT_TRUE(at.has_value());
  EXPECT_EQ(matches(index, 0x1234'5678'9abc'def0ULL), (std::multiset<std::uint32_t>{7}));
  EXPECT_TRUE(matches(index, 0x1234'5678'9abc'def1ULL).empty());
  EXPECT_EQ(index.at(*at)->value, 7U);
  index.erase(0x1234'5678'9abc'def0ULL, *at);
  EXPECT_TRUE(matches(index, 0x1234'5678'9abc'def0ULL).empty());
  EXPECT_EQ(index.num_entries(), 0U);
}

TEST(PrefixIndex, EqualKeysStandBesideEachOther) {
  Index index(2);
  const auto first = index.insert(42, 1);
  ASSERT_TRUE(index.insert(42, 1) && index.insert(42, 2));
  EXPECT_EQ(matches(index, 42), (std::multiset<std::uint32_t>{1, 1, 2}));
  index.erase(42, *first);
  EXPECT_EQ(matches(index, 42), (std::multiset<std::uint32_t>{1, 2}));
}

TEST(PrefixIndex, CrowdedBucketOverflowsAndForgetsTheDistanceAgain) {
  Index index(3);
  std::vector<std::uint32_t> positions;
  for (std::uint32_t value = 0; value < 21; ++value) {
    const auto at = index.insert(value, value);  // all at home in bucket 0
    ASSERT_TRUE(at.has_value());
    positions.push_back(*at);
  }
  EXPECT_FALSE(index.insert(99, 99).has_value());  // no slot is left, nothing has changed
  EXPECT_EQ(index.num_overflowed(), 14U);
  EXPECT_EQ(index.probe_length(0), 3U);
  for (std::uint32_t value = 0; value < 21; ++value) {
    EXPECT_EQ(matches(index, value), (std::multiset<std::uint32_t>{value}));
  }
  for (std::uint32_t value = 0; value < 21; ++value) index.erase(value, positions[value]);
  EXPECT_EQ(index.num_overflowed(), 0U);
  EXPECT_EQ(index.probe_length(0), 1U);
}

TEST(PrefixIndex, ProbesStayShortAfterManyReplacements) {
  constexpr std::uint32_t kEntries = 1024;
  Index index(kEntries / 2);
  std::mt19937_64 random(1);
  std::vector<std::pair<std::uint64_t, std::uint32_t>> entries;
  for (std::uint32_t value = 0; value < kEntries; ++value) {
    const std::uint64_t hash = random();
    entries.emplace_back(hash, *index.insert(hash, value));
  }
  for (int i = 0; i < 200'000; ++i) {
    auto& [hash, position] = entries[random() % kEntries];
    index.erase(hash, position);
    hash = random();
    const auto at = index.insert(hash, 5);
    ASSERT_TRUE(at.has_value());
    position = *at;
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
          const auto at = index.insert(hash, value);
          missing[t] += at.has_value() ? 0 : 1;
          if (at) mine[value] = {hash, *at};
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
