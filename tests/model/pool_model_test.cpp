// Every pair of pool operations under every schedule with a few preemptions; three threads and longer scripts at
// random; every thread frozen at every step. The code is the shipped template over the scheduler's atomic.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "stress/strict_checker.hpp"
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
  bool rewrites = false;  ///< gives a block that others may hold a new key
};

constexpr std::size_t kPlainScripts = 7;  ///< the first ones: without fences, touches and further keys

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
      {"free under a late fence",
       [](World& world) {
         World::Holding mine;
         if (world.allocate(1, mine)) world.release(mine, 9);
       }},
      {"touch a cached block",
       [](World& world) {
         World::Holding mine;
         if (world.touch(1, mine)) world.release(mine);
       }},
      {"touch a blank block",
       [](World& world) {
         World::Holding mine;
         if (world.touch(4, mine)) world.release(mine);
       }},
      {"publish two keys",
       [](World& world) {
         World::Holding mine;
         if (!world.allocate(1, mine)) return;
         world.publish(mine[0], 3);
         world.publish_further(mine[0], 30);
         world.release(mine);
       }},
      {"share and rewrite",
       [](World& world) {
         World::Holding mine;
         if (!world.pin(1, mine)) return;
         world.rewrite(mine[0], 5);
         world.publish_further(mine[0], 31);
         world.release(mine);
       },
       true},
      {"evict what has two keys", [](World& world) { world.evict(3); }},
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
std::shared_ptr<World> prepared(std::uint32_t shards, bool records_calls = false) {
  auto world = std::make_shared<World>(tiny_options(shards));
  world->records_calls = records_calls;
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
  for (const NamedScript* script : chosen) world->rewrites |= script->rewrites;
  for (const NamedScript* script : chosen) test.threads.push_back([world, script] { script->run(*world); });
  test.after_each_step = [world] { world->check_step(); };
  test.at_end = [world] { world->check_end(); };
  return test;
}

/// How many histories are linearizable call by call, which is more than the pool promises.
struct StrictShare {
  std::uint64_t histories = 0;
  std::uint64_t strict = 0;
  void add(const World& world) {
    ++histories;
    const auto usable = world.pool.num_blocks() - 1;
    strict += stress::check_strictly(world.history, usable) == stress::Strictness::linearizable ? 1U : 0U;
  }
};

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

TEST(PoolModel, ABlockWhoseFenceHasPassedIsFoundBehindALaterOne) {
  // Two holders free under fences while a third thread lets the first fence pass and kills places under way. Whatever
  // places the blocks end up in, an allocation that needs the one with the passed fence gets it.
  const auto factory = [] {
    auto world = std::make_shared<World>(tiny_options(1));
    auto early = std::make_shared<World::Holding>();
    auto late = std::make_shared<World::Holding>();
    require(world->allocate(1, *early) && world->allocate(1, *late), "set-up");
    world->uses_fences = true;
    Case test;
    test.threads.push_back([world, early] { world->release(*early, 5); });
    test.threads.push_back([world, late] { world->release(*late, 9); });
    test.threads.push_back([world] { world->advance_fence(6); });
    test.at_end = [world] {
      std::vector<BlockId> all_but_one(world->pool.num_blocks() - 2);
      require(world->pool.get_new_blocks(all_but_one), "a block whose fence has passed was not found");
      require(world->pool.free_blocks(all_but_one), "a release was refused");
      world->check_end();
    };
    return test;
  };
  const Exploration found = explore_exhaustively(factory, 3, long_scale() ? 5'000'000 : 50'000);
  ASSERT_TRUE(found.ok) << found.failure;
  Total total;
  total.add(found);
  total.print("passed fences");
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

TEST(PoolModel, TriplesUnderAFewPreemptions) {
  const int preemptions = long_scale() ? 2 : 1;
  const std::uint64_t cap = long_scale() ? 1'000'000 : 1'000;
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

/// Three threads with six scripts each out of the first `choice`, another draw for every schedule.
CaseFactory random_scripts(std::uint64_t& number, std::uint32_t shards, std::size_t choice, StrictShare* share) {
  return [&number, shards, choice, share] {
    auto world = prepared(shards, share != nullptr);
    std::mt19937_64 random(number++);
    Case test;
    for (int thread = 0; thread < 3; ++thread) {
      std::vector<const NamedScript*> steps;
      for (int i = 0; i < 6; ++i) {
        steps.push_back(&scripts()[random() % choice]);
        world->rewrites |= steps.back()->rewrites;
      }
      test.threads.push_back([world, steps] {
        for (const NamedScript* step : steps) step->run(*world);
      });
    }
    test.after_each_step = [world] { world->check_step(); };
    test.at_end = [world, share] {
      world->check_end();
      if (share != nullptr) share->add(*world);
    };
    return test;
  };
}

TEST(PoolModel, LongScriptsAtRandom) {
  for (const std::uint32_t shards : {1U, 2U}) {
    std::uint64_t number = 0;
    const auto factory = random_scripts(number, shards, scripts().size(), nullptr);
    const Exploration found = explore_randomly(factory, long_scale() ? 10'000'000 : 10'000, 1);
    ASSERT_TRUE(found.ok) << "script " << number - 1 << ", " << shards << " shards: " << found.failure;
    Total total;
    total.add(found);
    total.print("random scripts");
  }
}

TEST(PoolModel, MostHistoriesAreEvenStrictlyLinearizable) {
  // Allocation, pin, publish, release, eviction; fewer blocks than threads want, a switch possible at every access.
  StrictShare share;
  for (const std::uint32_t shards : {1U, 2U}) {
    std::uint64_t number = 0;
    const auto factory = random_scripts(number, shards, kPlainScripts, &share);
    const Exploration found = explore_randomly(factory, long_scale() ? 500'000 : 3'000, 1);
    ASSERT_TRUE(found.ok) << "script " << number - 1 << ", " << shards << " shards: " << found.failure;
  }
  std::cout << "histories: " << share.histories << ", all as promised; strictly linearizable "
            << 100.0 * static_cast<double>(share.strict) / static_cast<double>(share.histories) << " %\n";
  EXPECT_GE(share.strict * 100, share.histories * 85);
}

}  // namespace
}  // namespace kvpool::model
