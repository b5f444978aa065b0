#include "pool/event_log.hpp"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace kvpool {
namespace {

BlockStoredEvent stored(std::int64_t number) {
  BlockStoredEvent event;
  event.block_size = number;
  return event;
}

TEST(EventLog, TakesInTheOrderOfAppending) {
  EventLog<std::atomic> log;
  log.append(stored(1));
  BlockKey key;
  key.hash.size = 16;
  key.group = GroupId{3};
  log.append_removals({KeyWords(key), KeyWords(key)});
  log.append_removals({});
  log.append(AllBlocksClearedEvent{});
  const auto events = log.take();
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(std::get<BlockStoredEvent>(events[0]).block_size, 1);
  const auto& removed = std::get<BlockRemovedEvent>(events[1]);
  EXPECT_EQ(removed.block_hashes, std::vector<BlockHash>{key.hash});
  EXPECT_EQ(removed.group_idx, 3U);
  EXPECT_EQ(removed.medium, "GPU");
  EXPECT_TRUE(std::holds_alternative<AllBlocksClearedEvent>(events[3]));
  EXPECT_TRUE(log.take().empty());
}

TEST(EventLog, ABatchShowsWhatTakeWouldAnswer) {
  EventLog<std::atomic> log;
  RemovedKeys keys;
  for (std::uint8_t i = 0; i < 3; ++i) {
    BlockKey key;
    key.hash.size = 32;
    key.hash.bytes[5] = i;
    key.group = GroupId{i};
    keys.emplace_back(key);
  }
  log.append(stored(7));
  log.append_removals(keys);
  log.append(AllBlocksClearedEvent{});
  EventBatch batch = log.take_batch();
  EXPECT_TRUE(log.take().empty());
  ASSERT_EQ(batch.size(), 5U);
  EventView view;
  ASSERT_TRUE(batch.next(view));
  ASSERT_TRUE(view.stored != nullptr && view.removed == nullptr && !view.cleared);
  EXPECT_EQ(view.stored->block_size, 7);
  for (std::size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(batch.next(view));
    ASSERT_TRUE(view.removed != nullptr && view.stored == nullptr && !view.cleared);
    EXPECT_EQ(*view.removed, keys[i].key());
  }
  EventBatch rest = std::move(batch);  // goes on where the other was
  EXPECT_EQ(batch.size(), 0U);         // NOLINT(bugprone-use-after-move): promised empty
  EXPECT_FALSE(batch.next(view));
  ASSERT_EQ(rest.size(), 2U);
  const std::vector<KVEvent> events = std::move(rest).build();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<BlockRemovedEvent>(events[0]).block_hashes, std::vector<BlockHash>{keys[2].key().hash});
  EXPECT_EQ(std::get<BlockRemovedEvent>(events[0]).group_idx, 2U);
  EXPECT_TRUE(std::holds_alternative<AllBlocksClearedEvent>(events[1]));
}

TEST(EventLog, ABatchShowsTheEndOnce) {
  EventLog<std::atomic> log;
  log.append(AllBlocksClearedEvent{});
  EventBatch batch = log.take_batch();
  EventView view;
  ASSERT_TRUE(batch.next(view));
  EXPECT_TRUE(view.cleared && view.stored == nullptr && view.removed == nullptr);
  EXPECT_FALSE(batch.next(view));
  EXPECT_FALSE(view.cleared);
  log.append(stored(1));
  log.append(stored(2));
  batch = log.take_batch();  // what the other one still had is forgotten
  ASSERT_TRUE(batch.next(view));
  EXPECT_EQ(view.stored->block_size, 1);
}

TEST(EventLog, EachThreadsEventsKeepTheirOrder) {
  EventLog<std::atomic> log;
  constexpr std::int64_t kEach = 3'000;
  std::array<std::thread, 3> threads;
  for (std::int64_t t = 0; t < 3; ++t) {
    threads[static_cast<std::size_t>(t)] = std::thread([&log, t] {
      for (std::int64_t i = 0; i < kEach; ++i) log.append(stored(t * kEach + i));
    });
  }
  std::array<std::int64_t, 3> next{0, kEach, 2 * kEach};
  std::int64_t seen = 0;
  while (seen < 3 * kEach) {
    for (const KVEvent& event : log.take()) {
      const std::int64_t number = std::get<BlockStoredEvent>(event).block_size;
      ASSERT_EQ(number, next[static_cast<std::size_t>(number / kEach)]++);
      ++seen;
    }
  }
  for (auto& thread : threads) thread.join();
}

TEST(EventLog, ForgetsNothingItHoldsOnDestruction) {
  EventLog<std::atomic> log;  // the leak checker watches this one
  log.append(stored(1));
  log.append(stored(2));
}

}  // namespace
}  // namespace kvpool
