// Reports about needless hashing: every call of BlockHasher::hash_unit is counted, by way of the linker.
#include "tests/unit/manager/engine.hpp"

namespace {

std::uint64_t hashed_units = 0;

}  // namespace

// The two names that `--wrap` makes: what callers get, and what they would have got.
kvpool::BlockHash wrapped_hash_unit(const kvpool::BlockHasher* hasher, const kvpool::BlockHash& parent,
                                    std::span<const kvpool::TokenId> tokens,
                                    std::span<const kvpool::ExtraKey> extra) __asm__("__wrap_" KVPOOL_HASH_UNIT);
kvpool::BlockHash real_hash_unit(const kvpool::BlockHasher* hasher, const kvpool::BlockHash& parent,
                                 std::span<const kvpool::TokenId> tokens,
                                 std::span<const kvpool::ExtraKey> extra) __asm__("__real_" KVPOOL_HASH_UNIT);

kvpool::BlockHash wrapped_hash_unit(const kvpool::BlockHasher* hasher, const kvpool::BlockHash& parent,
                                    std::span<const kvpool::TokenId> tokens, std::span<const kvpool::ExtraKey> extra) {
  ++hashed_units;
  return real_hash_unit(hasher, parent, tokens, extra);
}

namespace kvpool::test {
namespace {

/// A request that grows by one block a step; answers how many units were hashed.
std::uint64_t units_hashed_for_chain(Engine& engine, std::int64_t blocks) {
  hashed_units = 0;
  Running running = engine.start(tokens(0, 4));
  engine.step(running, 4);
  for (std::int64_t block = 1; block < blocks; ++block) {
    running.request.append_tokens(tokens(4 * block, 4));
    engine.step(running, 4);
  }
  engine->free(running.sequence);
  return hashed_units;
}

TEST(ManagerField, F094_CachingOffHashesNothing) {
  EngineOptions options{.num_blocks = 600, .groups = {full(4)}};
  Engine with(options);
  EXPECT_EQ(units_hashed_for_chain(with, 512), 512U);
  options.manager.enable_caching = false;
  Engine without(options);
  EXPECT_EQ(units_hashed_for_chain(without, 512), 0U);
  EXPECT_EQ(without.pool().stats().published_keys, 0U);
}

TEST(ManagerField, F095_EachBlockOfAnAnnouncedChainIsHashedOnce) {
  for (const std::int64_t blocks : {512, 2'048}) {
    EngineOptions options{.num_blocks = blocks + 1, .groups = {full(4)}};
    options.manager.enable_kv_cache_events = true;
    Engine engine(options);
    EXPECT_EQ(units_hashed_for_chain(engine, blocks), static_cast<std::uint64_t>(blocks));
    EXPECT_EQ(engine->take_events().size(), static_cast<std::size_t>(blocks));
    EXPECT_EQ(hashed_units, static_cast<std::uint64_t>(blocks));  // nor for the announcements
  }
}

}  // namespace
}  // namespace kvpool::test
