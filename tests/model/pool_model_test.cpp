// Every pair of pool operations under every schedule with a few preemptions; three threads and longer scripts at
// random; every thread frozen at every step. The code is the shipped template over the scheduler's atomic.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "tests/model/explore.hpp"
#include "tests/model/pool_world.hpp"

namespace kvpool::model {
namespace {

bool long_scale() {
  const char* scale = std::getenv("KVPOOL_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "long";
}

using Script = std::function<void(World&)>;
struct NamedScript {
  const char* name;
  Script run;
};

/// What one thread does; it gives everything back, since a release is an operation like the others.
const std::vector<NamedScript>& scripts() {
  static const std::vector<NamedScript> all = {
      {"allocate one",
       [](World& world) {
         World::Holding mine;
         if (world.allocate(1, mine)) world.release(mine);
       }},
      {"allocate three",
       [](World& world) {
         World::Holding mine;
         if (world.allocate(3, mine)) world.release(mine);
       }},
      {"pin a free block",
       [](World& world) {
         World::Holding mine;
         if (world.pin(1, mine)) world.release(mine);
       }},
      {"publish and free",
       [](World& world) {
         World::Holding mine;
         if (!world.allocate(1, mine)) return;
         world.publish(mine[0], 3);
         world.release(mine);
       }},
      {"publish a duplicate",
       [](World& world) {
         World::Holding mine;
         if (!world.allocate(1, mine)) return;
         world.publish(mine[0], 1);
         world.release(mine);
       }},
      {"evict", [](World& world) { world.evict(1); }},
      {"pin and evict",
       [](World& world) {
         World::Holding mine;
         world.pin(2, mine);
         world.evict(2);
         world.release(mine);
       }},
      {"free under a fence",
       [](World& world) {
         World::Holding mine;
         if (world.allocate(2, mine)) world.release(mine, 5);
       }},
      {"advance the fence", [](World& world) { world.advance_fence(6); }},
  };
  return all;
}

BlockPoolOptions tiny_options(std::uint32_t shards) {
  BlockPoolOptions options;
  options.num_blocks = 5;
  options.num_shards = shards;
  options.ring_slots = 8;
  options.index_buckets = 2;
  return options;
}

/// Keys 1 and 2 are cached and free, two blocks are blank.
std::shared_ptr<World> prepared(std::uint32_t shards) {
  auto world = std::make_shared<World>(tiny_options(shards));
  World::Holding holding;
  require(world->allocate(2, holding), "set-up");
  world->publish(holding[0], 1);
  world->publish(holding[1], 2);
  world->release(holding);
  world->uses_fences = true;
  return world;
}

Case run_scripts(const std::vector<const NamedScript*>& chosen, std::uint32_t shards) {
  auto world = prepared(shards);
  Case test;
  for (const NamedScript* script : chosen) test.threads.push_back([world, script] { script->run(*world); });
  test.after_each_step = [world] { world->check_step(); };
  test.at_end = [world] { world->check_end(); };
  return test;
}

struct Total {
  std::uint64_t schedules = 0;
  std::uint64_t longest = 0;
  void add(const Exploration& exploration) {
    schedules += exploration.schedules;
    longest = std::max(longest, exploration.longest_run);
  }
  void print(const char* what) const {
    std::cout << what << ": " << schedules << " schedules, longest run " << longest << " steps\n";
    EXPECT_GT(schedules, 0U);
  }
};

TEST(PoolModel, EveryPairOfOperationsUnderEverySchedule) {
  const int preemptions = long_scale() ? 3 : 2;
  const std::uint64_t cap = long_scale() ? 5'000'000 : 20'000;
  Total total;
  for (std::size_t a = 0; a < scripts().size(); ++a) {
    for (std::size_t b = a; b < scripts().size(); ++b) {
      const Exploration found = explore_exhaustively(
          [a, b] {
            return run_scripts({&scripts()[a], &scripts()[b]}, 1);
          },
          preemptions, cap);
      ASSERT_TRUE(found.ok) << scripts()[a].name << " | " << scripts()[b].name << ": " << found.failure;
      total.add(found);
    }
  }
  total.print("pairs");
}

TEST(PoolModel, EveryPairWithOneThreadFrozenAtEveryStep) {
  Total total;
  for (const NamedScript& first : scripts()) {
    for (const NamedScript& second : scripts()) {
      const Exploration found = freeze_everywhere([&] { return run_scripts({&first, &second}, 2); }, 2);
      ASSERT_TRUE(found.ok) << first.name << " | " << second.name << ": " << found.failure;
      total.add(found);
    }
  }
  total.print("frozen pairs");
}

TEST(PoolModel, TriplesUnderAFewPreemptions) {
  const int preemptions = long_scale() ? 2 : 1;
  const std::uint64_t cap = long_scale() ? 1'000'000 : 3'000;
  Total total;
  for (std::size_t a = 0; a < scripts().size(); ++a) {
    for (std::size_t b = a; b < scripts().size(); ++b) {
      for (std::size_t c = b; c < scripts().size(); ++c) {
        const Exploration found = explore_exhaustively(
            [a, b, c] {
              return run_scripts({&scripts()[a], &scripts()[b], &scripts()[c]}, 2);
            },
            preemptions, cap);
        ASSERT_TRUE(found.ok) << scripts()[a].name << " | " << scripts()[b].name << " | " << scripts()[c].name << ": "
                              << found.failure;
        total.add(found);
      }
    }
  }
  total.print("triples");
}

TEST(PoolModel, LongScriptsAtRandom) {
  const std::uint64_t schedules = long_scale() ? 10'000'000 : 10'000;
  for (const std::uint32_t shards : {1U, 2U}) {
    std::uint64_t number = 0;
    const auto factory = [&number, shards] {
      auto world = prepared(shards);
      std::mt19937_64 random(number++);
      Case test;
      for (int thread = 0; thread < 3; ++thread) {
        std::vector<const NamedScript*> steps;
        for (int i = 0; i < 6; ++i) steps.push_back(&scripts()[random() % scripts().size()]);
        test.threads.push_back([world, steps] {
          for (const NamedScript* step : steps) step->run(*world);
        });
      }
      test.after_each_step = [world] { world->check_step(); };
      test.at_end = [world] { world->check_end(); };
      return test;
    };
    const Exploration found = explore_randomly(factory, schedules, 1);
    ASSERT_TRUE(found.ok) << "script " << number - 1 << ", " << shards << " shards: " << found.failure;
    Total total;
    total.add(found);
    total.print("random scripts");
  }
}

}  // namespace
}  // namespace kvpool::model
