#include "pool/event_log.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "foundation/array_memory.hpp"
#include "kvpool/foundation/contract.hpp"

namespace kvpool {
namespace {

BlockKey numbered_key(std::uint8_t number) {
  BlockKey key;
  key.hash.size = 32;
  key.hash.bytes[5] = number;
  key.group = GroupId{number};
  return key;
}

template <class Log>
void append_removals(Log& log, const std::vector<BlockKey>& keys) {
  RemovedKeys removed(log.nodes(), 0);
  for (const BlockKey& key : keys) removed.push_back(KeyWords(key));
  log.append_removals(std::move(removed));
}

BlockStoredEvent stored(std::int64_t number) {
  BlockStoredEvent event;
  event.block_size = number;
  return event;
}

TEST(EventLog, TakesInTheOrderOfAppending) {
  EventLog<std::atomic> log;
  log.append(stored(1));
  const BlockKey key = numbered_key(3);
  append_removals(log, {key, key});
  append_removals(log, {});
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
  const std::vector<BlockKey> keys{numbered_key(0), numbered_key(1), numbered_key(2)};
  log.append(stored(7));
  append_removals(log, keys);
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
    EXPECT_EQ(*view.removed, keys[i]);
  }
  EventBatch rest = std::move(batch);  // goes on where the other was
  EXPECT_EQ(batch.size(), 0U);         // NOLINT(bugprone-use-after-move): promised empty
  EXPECT_FALSE(batch.next(view));
  ASSERT_EQ(rest.size(), 2U);
  const std::vector<KVEvent> events = std::move(rest).build();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(std::get<BlockRemovedEvent>(events[0]).block_hashes, std::vector<BlockHash>{keys[2].hash});
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

TEST(EventLog, ShowsARemovalThatWasAppendedAsItIs) {
  EventLog<std::atomic> log;
  BlockRemovedEvent removed;
  removed.block_hashes = {numbered_key(1).hash, numbered_key(2).hash};
  removed.medium = "CPU";
  log.append(removed);
  log.append(removed);
  EventBatch batch = log.take_batch();
  ASSERT_EQ(batch.size(), 2U);
  EventView view;
  ASSERT_TRUE(batch.next(view));
  ASSERT_TRUE(view.announced != nullptr && view.stored == nullptr && view.removed == nullptr && !view.cleared);
  EXPECT_EQ(*view.announced, removed);
  EXPECT_EQ(std::move(batch).build(), std::vector<KVEvent>{removed});
}

TEST(EventLog, ADraftIsBlankAndKeepsTheMemoryOfTheEventBefore) {
  EventLog<std::atomic> log;
  const BlockHash* hashes = nullptr;
  const std::int64_t* tokens = nullptr;
  {
    EventDraft draft = log.draft();
    draft->block_hashes.assign(40, numbered_key(1).hash);
    draft->token_ids.assign(640, 7);
    hashes = draft->block_hashes.data();
    tokens = draft->token_ids.data();
    draft->parent_block_hash = numbered_key(2).hash;
    draft->block_size = 16;
    draft->lora_id = 5;
    draft->medium = "CPU";
    draft->lora_name = "adapter";
    draft->extra_keys.emplace().emplace_back();
    draft->group_idx = 2;
    draft->kv_cache_spec_kind = "mamba";
    draft->kv_cache_spec_sliding_window = 8;
    draft->session_id = "session";
    log.append(std::move(draft));
  }
  EventBatch batch = log.take_batch();
  EventView view;
  ASSERT_TRUE(batch.next(view));
  EXPECT_EQ(view.stored->token_ids.size(), 640U);
  EXPECT_FALSE(batch.next(view));
  batch = {};
  EventDraft next = log.draft();
  EXPECT_EQ(*next, BlockStoredEvent{});
  next->block_hashes.resize(40);
  next->token_ids.resize(640);
  EXPECT_EQ(next->block_hashes.data(), hashes);
  EXPECT_EQ(next->token_ids.data(), tokens);
}

TEST(EventLog, ADraftThatIsDroppedAnnouncesNothing) {
  EventLog<std::atomic> log;
  {
    EventDraft draft = log.draft();
    draft->block_size = 3;
    const EventDraft moved = std::move(draft);
    EXPECT_EQ(moved->block_size, 3);
  }
  EXPECT_TRUE(log.take().empty());
}

int foreign_drafts = 0;

TEST(EventLog, ADraftOfAnotherLogIsReportedAndStaysWhereItWas) {
  EventLog<std::atomic> log;
  EventLog<std::atomic> other;
  log.append(stored(1));
  const ContractHandler former = set_contract_handler([](const ContractViolation& violation) {
    foreign_drafts += violation.breach == ContractBreach::foreign_handle ? 1 : 0;
  });
  {
    EventDraft draft = other.draft();
    draft->block_size = 2;
    log.append(std::move(draft));
    EXPECT_EQ(draft->block_size, 2);  // NOLINT(bugprone-use-after-move): refused
  }
  set_contract_handler(former);
  EXPECT_EQ(foreign_drafts, 1);
  EXPECT_EQ(log.take(), std::vector<KVEvent>{stored(1)});
  EXPECT_TRUE(other.take().empty());
}

TEST(EventLog, ABatchOutlivesItsLog) {
  std::optional<EventLog<std::atomic>> log;
  log.emplace(2U).append(stored(4), 1);
  EventBatch batch = log->take_batch();
  log.reset();
  EventView view;
  ASSERT_TRUE(batch.next(view));
  EXPECT_EQ(view.stored->block_size, 4);
}

TEST(EventLog, NumbersTheBatchesThatHoldSomething) {
  EventLog<std::atomic> log;
  EXPECT_EQ(log.take_batch().number(), 0U);
  log.append(stored(1));
  EXPECT_EQ(log.take_batch().number(), 0U);
  EXPECT_EQ(log.take_batch().number(), 1U);
  log.append(stored(2));
  EXPECT_EQ(log.take_batch().number(), 1U);
}

TEST(EventLog, WhatHasBeenReadOfALongBatchIsUsedWhileTheRestIsRead) {
  constexpr std::size_t kRead = 260;
  constexpr std::size_t kKept = 64 + 1;  // read and not given back, and the one that is shown
  EventLog<std::atomic> log;
  for (std::size_t i = 0; i < 440; ++i) log.append(stored(1));  // nearly what the storage holds that there is
  EventBatch batch = log.take_batch();
  EventView view;
  for (std::size_t i = 0; i < kRead; ++i) ASSERT_TRUE(batch.next(view));
  const std::size_t bytes = array_bytes_in_use();
  for (std::size_t i = 0; i < kRead - kKept; ++i) log.append(stored(2));
  EXPECT_EQ(array_bytes_in_use(), bytes);
}

TEST(EventLog, AnAssignedBatchGivesBackWhatItHeld) {
  EventLog<std::atomic> log;
  for (std::size_t i = 0; i < 64; ++i) log.append(stored(1));  // what the first storage holds
  EventBatch batch = log.take_batch();
  batch = {};
  const std::size_t bytes = array_bytes_in_use();
  for (std::size_t i = 0; i < 64; ++i) log.append(stored(2));
  EXPECT_EQ(array_bytes_in_use(), bytes);
}

TEST(EventLog, ANodeForgetsTheOtherEventItHeld) {
  EventLog<std::atomic> log;
  log.append(AllBlocksClearedEvent{});
  EXPECT_EQ(log.take().size(), 1U);
  append_removals(log, {numbered_key(1), numbered_key(2)});
  const auto events = log.take();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<BlockRemovedEvent>(events[1]));
}

TEST(EventNodes, ThoseOfStoresAreNotUsedForRemovals) {
  EventNodes<std::atomic> nodes(2);
  EventNode& store = nodes.take(EventNode::Kind::stored, 0);
  store.next = nullptr;
  nodes.give_back(&store);
  EXPECT_NE(&nodes.take(EventNode::Kind::removed, 0), &store);
  EXPECT_EQ(&nodes.take(EventNode::Kind::stored, 1), &store);
}

TEST(EventNodes, NoMoreThanWereInUseAtOnce) {
  EventNodes<std::atomic> nodes(3);
  std::set<std::uint32_t> numbers;
  for (std::uint32_t round = 0; round < 30; ++round) {
    EventNode* list = nullptr;
    for (std::uint32_t i = 0; i < 20; ++i) {  // from every lane, and given back to another one than it came from
      EventNode& node = nodes.take(EventNode::Kind::removed, (round + i) % 3);
      EXPECT_TRUE(node.removed.empty());
      node.removed.emplace_back();
      numbers.insert(node.number);
      node.next = std::exchange(list, &node);
    }
    nodes.give_back(list);
  }
  EXPECT_EQ(numbers.size(), 20U);
}

TEST(EventNodes, WhatABurstHasMadeKeepsNoContainers) {
  EventNodes<std::atomic> nodes(1);
  EventNode* list = nullptr;
  for (std::uint32_t i = 0; i <= EventNodes<std::atomic>::kWarmNodes; ++i) {
    EventNode& node = nodes.take(EventNode::Kind::removed, 0);
    node.removed.emplace_back();
    node.next = std::exchange(list, &node);
  }
  EXPECT_GE(list->number, EventNodes<std::atomic>::kWarmNodes);
  EventNode* const warm = list->next;
  const EventNode* const last = list;
  nodes.give_back(list);
  EXPECT_GT(warm->removed.capacity(), 0U);
  EXPECT_EQ(last->removed.capacity(), 0U);
}

TEST(EventNodes, WhatALargeAnnouncementNeededIsNotKept) {
  using Nodes = EventNodes<std::atomic>;
  Nodes nodes(1);
  EventNode& removal = nodes.take(EventNode::Kind::removed, 0);
  removal.removed.reserve(Nodes::kWarmKeys + 1);
  EventNode& store = nodes.take(EventNode::Kind::stored, 0);
  store.stored->token_ids.reserve(Nodes::kWarmTokens + 1);
  EventNode& usual = nodes.take(EventNode::Kind::stored, 0);
  usual.stored->token_ids.reserve(Nodes::kWarmTokens);
  usual.stored->block_hashes.reserve(Nodes::kWarmKeys);
  removal.next = &store;
  store.next = &usual;
  nodes.give_back(&removal);
  EXPECT_EQ(removal.removed.capacity(), 0U);
  EXPECT_EQ(store.stored, nullptr);
  EXPECT_NE(usual.stored, nullptr);
  EXPECT_EQ(*nodes.take(EventNode::Kind::stored, 0).stored, BlockStoredEvent{});
  EXPECT_EQ(*nodes.take(EventNode::Kind::stored, 0).stored, BlockStoredEvent{});
}

/// Threads that append, each with numbers of its own that grow.
class Producers {
 public:
  static constexpr std::int64_t kEach = 3'000;
  static constexpr std::size_t kThreads = 3;

  explicit Producers(EventLog<std::atomic>& log) {
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads_[t] = std::thread([&log, t] {
        for (std::int64_t i = 0; i < kEach; ++i) {
          const std::int64_t number = (static_cast<std::int64_t>(t) * kEach) + i;
          EventDraft draft = log.draft(static_cast<std::uint32_t>(t));
          draft->block_size = number;
          draft->token_ids.assign(20, number);
          log.append(std::move(draft));
        }
      });
    }
  }
  void join() {
    for (auto& thread : threads_) thread.join();
  }

 private:
  std::array<std::thread, kThreads> threads_;
};

TEST(EventLog, EachThreadsEventsKeepTheirOrder) {
  EventLog<std::atomic> log(3);
  Producers producers(log);
  std::array<std::int64_t, 3> next{0, Producers::kEach, 2 * Producers::kEach};
  std::int64_t seen = 0;
  while (seen < 3 * Producers::kEach) {
    for (const KVEvent& event : log.take()) {
      const std::int64_t number = std::get<BlockStoredEvent>(event).block_size;
      ASSERT_EQ(number, next[static_cast<std::size_t>(number / Producers::kEach)]++);
      ++seen;
    }
  }
  producers.join();
}

// Consumers that read their batches at the same time, while what they have read is written again.
TEST(EventLog, BatchesOfSeveralConsumersFitTogetherByTheirNumbers) {
  EventLog<std::atomic> log(3);
  Producers producers(log);
  std::atomic<std::int64_t> seen{0};
  std::atomic<int> torn{0};
  std::array<std::map<std::uint32_t, std::vector<std::int64_t>>, 2> read;
  std::array<std::thread, 2> consumers;
  for (std::size_t c = 0; c < consumers.size(); ++c) {
    consumers[c] = std::thread([&, c] {
      while (seen.load(std::memory_order_relaxed) < 3 * Producers::kEach) {
        EventBatch batch = log.take_batch();
        if (batch.size() == 0) {
          std::this_thread::yield();
          continue;
        }
        std::vector<std::int64_t>& numbers = read[c][batch.number()];
        for (EventView view; batch.next(view);) {
          numbers.push_back(view.stored->block_size);
          if (view.stored->token_ids != std::vector<std::int64_t>(20, numbers.back())) ++torn;
        }
        seen.fetch_add(static_cast<std::int64_t>(numbers.size()), std::memory_order_relaxed);
      }
    });
  }
  for (auto& consumer : consumers) consumer.join();
  producers.join();
  EXPECT_EQ(torn.load(), 0);
  const std::size_t batches = read[0].size() + read[1].size();
  read[0].merge(read[1]);
  ASSERT_EQ(read[0].size(), batches);  // no number twice
  ASSERT_EQ(read[0].rbegin()->first, batches - 1);
  std::array<std::int64_t, 3> next{0, Producers::kEach, 2 * Producers::kEach};
  for (const auto& [batch, numbers] : read[0]) {
    for (const std::int64_t number : numbers) {
      ASSERT_EQ(number, next[static_cast<std::size_t>(number / Producers::kEach)]++);
    }
  }
}

TEST(EventLog, ForgetsNothingItHoldsOnDestruction) {
  EventLog<std::atomic> log;  // the leak checker watches this one
  log.append(stored(1));
  log.append(stored(2));
}

}  // namespace
}  // namespace kvpool
