// The ring by itself, under every schedule of a few threads: what one consumer took, no other one gets.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "queue/order_ring.hpp"
#include "tests/model/atomic.hpp"
#include "tests/model/explore.hpp"

namespace kvpool::model {
namespace {

constexpr std::uint32_t kSlots = 4;

struct RingWorld {
  OrderRing<Atomic> ring{kSlots};
  std::array<int, 8> taken{};     ///< how often each block came out
  std::array<bool, 8> written{};  ///< whose put has succeeded

  void put(std::uint32_t block) {
    for (;;) {
      const PutOutcome outcome = ring.put(ring.take_positions(1), block);
      if (outcome == PutOutcome::ok) written[block] = true;
      if (outcome != PutOutcome::killed) return;
    }
  }
  void take(std::size_t count) {
    std::array<RingEntry, kSlots> run;
    std::uint32_t killed = 0;
    const std::size_t found = ring.take(std::span(run).first(count), killed);
    for (std::size_t i = 0; i < found; ++i) {
      if (run[i].block != 0) ++taken[run[i].block];
    }
  }
  void check() {
    take(kSlots);
    take(kSlots);
    for (std::size_t block = 1; block < taken.size(); ++block) {
      require(taken[block] <= 1, "block " + std::to_string(block) + " was taken twice");
      require(taken[block] == (written[block] ? 1 : 0), "block " + std::to_string(block) + " was lost or made up");
    }
  }
};

Case two_consumers() {
  auto world = std::make_shared<RingWorld>();
  for (std::uint32_t block = 1; block <= 3; ++block) world->put(block);
  const auto consume = [world] {
    world->take(2);
    world->take(1);
  };
  return {{consume, consume}, {}, [world] { world->check(); }};
}

Case consumers_and_a_producer() {
  auto world = std::make_shared<RingWorld>();
  world->put(1);
  const auto consume = [world] { world->take(2); };
  const auto produce = [world] {
    world->put(2);
    world->put(3);
  };
  return {{consume, consume, produce}, {}, [world] { world->check(); }};
}

/// More entries than slots: the lap changes under a slow producer.
Case a_lap_goes_by() {
  auto world = std::make_shared<RingWorld>();
  for (std::uint32_t block = 1; block <= 3; ++block) world->put(block);
  const auto slow = [world] { world->put(4); };
  const auto fast = [world] {
    world->take(3);
    for (std::uint32_t block = 5; block <= 7; ++block) world->put(block);
    world->take(2);
  };
  return {{slow, fast}, {}, [world] { world->check(); }};
}

TEST(RingModel, WhatOneConsumerTookNoOtherGets) {
  for (const auto& [factory, preemptions] :
       {std::pair{&two_consumers, 5}, std::pair{&consumers_and_a_producer, 3}, std::pair{&a_lap_goes_by, 6}}) {
    const Exploration all = explore_exhaustively(factory, preemptions, 1'000'000);
    EXPECT_TRUE(all.ok) << all.failure;
    std::printf("%llu schedules, longest run %llu steps\n", static_cast<unsigned long long>(all.schedules),
                static_cast<unsigned long long>(all.longest_run));
  }
}

}  // namespace
}  // namespace kvpool::model
