// What the threads of a model case do with the pool.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/model/pool_world.hpp"

namespace kvpool::model {

using Script = std::function<void(World&)>;
struct NamedScript {
  const char* name;
  Script run;
  bool rewrites = false;      ///< gives a block that others may hold a new key
  int preemptions_fewer = 0;  ///< of an exploration in which it takes part: what it leads to is too much for one more
};

/// How many preemptions threads with these scripts get.
inline int bound_for(const std::vector<const NamedScript*>& chosen, int preemptions) {
  int fewer = 0;
  for (const NamedScript* script : chosen) fewer = std::max(fewer, script->preemptions_fewer);
  return preemptions - fewer;
}

/// The first ones: allocation, pin, publication, release and eviction, block by block.
inline constexpr std::size_t kPlainScripts = 7;

/// What one thread does; it gives everything back, since a release is an operation like the others.
inline const std::vector<NamedScript>& scripts() {
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
         if (world.touch({1}, mine)) world.release(mine);
       }},
      {"touch a blank block",
       [](World& world) {
         World::Holding mine;
         if (world.touch({4}, mine)) world.release(mine);
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
      {"touch two blocks",
       [](World& world) {
         World::Holding mine;
         if (world.touch({2, 1}, mine)) world.release(mine);
       }},
      {"publish a chain",
       [](World& world) {
         World::Holding mine;
         if (!world.allocate(2, mine)) return;
         world.publish_chain(mine, {6, 7});
         world.release(mine);
       }},
      {"pin a prefix",
       [](World& world) {
         World::Holding mine;
         world.pin_prefix({1, 2, 6}, mine);
         world.release(mine);
       }},
      {"look a prefix up",
       [](World& world) {
         world.look_up({2, 1, 6});
       }},
      {"pin the end of a chain and look its beginning up",
       [](World& world) {
         World::Holding mine;
         world.pin(7, mine);
         world.look_up({6});
         world.pin_prefix({6, 7}, mine);
         world.release(mine);
       }},
      {"evict several and look one up",
       [](World& world) {
         World::Holding mine;
         world.evict_several({2, 8, 1});
         world.pin(1, mine);
         world.release(mine);
       }},
      {"publish, take back, publish anew",
       [](World& world) {
         World::Holding mine;
         if (!world.allocate(1, mine)) return;
         world.publish(mine[0], 8);
         world.take_back(mine[0]);
         world.publish(mine[0], 3);
         world.release(mine);
       }},
      {"move what others may hold",
       [](World& world) {
         World::Holding mine;
         if (world.pin(1, mine) && world.allocate(1, mine)) world.move_keys(mine[0], mine[1]);
         world.release(mine);
       },
       false, 1},
      {"move two keys",
       [](World& world) {
         World::Holding mine;
         if (!world.allocate(2, mine)) return;
         world.publish(mine[0], 8);
         world.publish_further(mine[0], 32);
         world.move_keys(mine[0], mine[1]);
         world.release(mine);
       },
       false, 1},
  };
  return all;
}

/// Those that tell something about duplicates.
inline std::vector<const NamedScript*> duplicate_scripts() {
  std::vector<const NamedScript*> chosen;
  for (const NamedScript& script : scripts()) {
    for (const char* name : {"allocate three", "pin a free block", "publish and free", "publish a duplicate",
                             "publish two keys", "evict what has two keys", "share and rewrite",
                             "publish, take back, publish anew", "move what others may hold"}) {
      if (script.name == std::string(name)) chosen.push_back(&script);
    }
  }
  return chosen;
}

inline BlockPoolOptions tiny_options(std::uint32_t shards, std::uint32_t usable_blocks = 4) {
  BlockPoolOptions options;
  options.num_blocks = usable_blocks + 1;
  options.num_shards = shards;
  options.ring_slots = std::bit_ceil(2 * usable_blocks);
  options.index_buckets = 2;
  return options;
}

/// Keys 1 and 2 are cached and free, all other blocks are blank.
inline std::shared_ptr<World> prepared(const BlockPoolOptions& options, bool records_calls = false) {
  auto world = std::make_shared<World>(options);
  world->records_calls = records_calls;
  World::Holding holding;
  require(world->allocate(2, holding), "set-up");
  world->publish(holding[0], 1);
  world->publish(holding[1], 2);
  world->release(holding);
  world->uses_fences = true;
  return world;
}

inline Case run_scripts(const std::vector<const NamedScript*>& chosen, const BlockPoolOptions& options) {
  auto world = prepared(options);
  Case test;
  for (const NamedScript* script : chosen) world->rewrites |= script->rewrites;
  for (const NamedScript* script : chosen) test.threads.push_back([world, script] { script->run(*world); });
  test.after_each_step = [world] { world->check_step(); };
  test.at_end = [world] { world->check_end(); };
  return test;
}
inline Case run_scripts(const std::vector<const NamedScript*>& chosen, std::uint32_t shards) {
  return run_scripts(chosen, tiny_options(shards));
}

}  // namespace kvpool::model
