// The event log under every schedule of a few threads: a node has one owner at a time, and batches fit together.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pool/event_log.hpp"
#include "tests/model/atomic.hpp"
#include "tests/model/explore.hpp"

namespace kvpool::model {
namespace {

struct NodesWorld {
  EventNodes<Atomic> nodes{1};
  std::map<std::uint32_t, bool> held;

  EventNode* take() {
    EventNode& node = nodes.take(EventNode::Kind::removed, 0);
    require(!std::exchange(held[node.number], true), "node " + std::to_string(node.number) + " has two owners");
    node.next = nullptr;
    return &node;
  }
  void give_back(EventNode* node) {
    held[node->number] = false;
    nodes.give_back(node);
  }
};

/// One thread is in the middle of taking a node while the other one takes that and the next one, gives the first one
/// back and keeps the second.
Case nodes_go_around() {
  auto world = std::make_shared<NodesWorld>();
  EventNode* const first = world->take();
  EventNode* const second = world->take();
  world->give_back(first);
  world->give_back(second);
  const auto once = [world] {
    world->take();
    world->take();
  };
  const auto back_and_forth = [world] {
    EventNode* const node = world->take();
    world->take();
    world->give_back(node);
  };
  return {{once, back_and_forth}, {}, [] {}};
}

struct LogWorld {
  EventLog<Atomic> log{2};
  std::map<std::uint32_t, std::vector<std::int64_t>> batches;

  void announce(std::int64_t number, std::uint32_t lane) {
    EventDraft draft = log.draft(lane);
    draft->block_size = number;
    log.append(std::move(draft));
  }
  void take() {
    EventBatch batch = log.take_batch();
    if (batch.size() == 0) return;
    const std::uint32_t number = batch.number();
    std::vector<std::int64_t> read;
    for (EventView view; batch.next(view);) read.push_back(view.stored->block_size);
    require(batches.emplace(number, std::move(read)).second, "two batches have the number " + std::to_string(number));
  }
  /// Numbers are the producer's times ten plus 1, 2, ... in his order.
  void check() {
    take();
    std::array<std::int64_t, 3> last{};
    std::uint32_t expected = 0;
    std::size_t seen = 0;
    for (const auto& [number, read] : batches) {
      require(number == expected++, "a number is missing");
      for (const std::int64_t announced : read) {
        std::int64_t& former = last[static_cast<std::size_t>(announced / 10)];
        require(announced % 10 == former + 1, "an announcement is lost, doubled or out of its order");
        former = announced % 10;
        ++seen;
      }
    }
    require(seen == 3, "an announcement is lost");
  }
};

Case two_consumers() {
  auto world = std::make_shared<LogWorld>();
  world->announce(11, 0);
  const auto produce = [world] {
    world->announce(12, 0);
    world->announce(13, 0);
  };
  const auto consume = [world] { world->take(); };
  return {{produce, consume, consume}, {}, [world] { world->check(); }};
}

Case two_producers() {
  auto world = std::make_shared<LogWorld>();
  const auto two = [world] {
    world->announce(11, 0);
    world->announce(12, 0);
  };
  const auto one = [world] { world->announce(21, 1); };
  const auto consume = [world] {
    world->take();
    world->take();
  };
  return {{two, one, consume}, {}, [world] { world->check(); }};
}

TEST(EventModel, NodesHaveOneOwnerAndBatchesFitTogether) {
  for (const auto& [factory, preemptions] :
       {std::pair{&nodes_go_around, 4}, std::pair{&two_consumers, 3}, std::pair{&two_producers, 3}}) {
    const Exploration all = explore_exhaustively(factory, preemptions, 100'000);
    EXPECT_TRUE(all.ok) << all.failure;
    std::printf("%llu schedules, longest run %llu steps\n", static_cast<unsigned long long>(all.schedules),
                static_cast<unsigned long long>(all.longest_run));
  }
}

}  // namespace
}  // namespace kvpool::model
