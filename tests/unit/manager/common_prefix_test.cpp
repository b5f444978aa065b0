// The prefix that all requests of a group share: remembered between steps, and always what a count from the front says.
#include <random>

#include "engine.hpp"

namespace kvpool::test {
namespace {

constexpr std::int64_t kBlock = 4;

EngineOptions plain(std::int64_t num_blocks) {
  EngineOptions options;
  options.num_blocks = num_blocks;
  options.groups = {full(kBlock)};
  return options;
}

/// Counted from the front every time.
std::int64_t counted(Engine& engine, const Running& running, std::uint32_t holders) {
  std::int64_t length = 0;
  for (const BlockId block : engine->block_table(running.sequence, GroupId{0})) {
    if (engine.pool().ref_count(block) != holders) break;
    ++length;
  }
  return length;
}

std::int64_t asked(Engine& engine, const Running& running) {
  return engine->get_num_common_prefix_blocks(running.sequence).front();
}

TEST(CommonPrefix, IsWhatACountFromTheFrontSaysAfterEveryStep) {
  std::mt19937 random(7);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  Engine engine(plain(400));
  std::vector<Running> running;
  std::vector<BlockId> touched;  // references that no request knows of
  for (int step = 0; step < 4'000; ++step) {
    const std::int64_t kind = below(10);
    if (kind < 2 && running.size() < 6) {
      Running next =
          engine.start(tokens(0, 4 + below(60)) + tokens(static_cast<TokenId>(1'000 * below(3)), 1 + below(20)));
      if (engine.prefill(next) >= 0) running.push_back(std::move(next));
    } else if (kind == 2 && !running.empty()) {
      const auto place = running.begin() + below(static_cast<std::int64_t>(running.size()));
      engine->free(place->sequence);
      running.erase(place);
    } else if (kind == 3 && !running.empty()) {
      const Ids table = engine.table(running.front());
      const BlockId block{table[static_cast<std::size_t>(below(static_cast<std::int64_t>(table.size())))]};
      ASSERT_TRUE(engine.pool().touch(std::span(&block, 1)));
      touched.push_back(block);
    } else if (kind == 4 && !touched.empty()) {
      ASSERT_TRUE(engine.pool().free_blocks(std::span(&touched.back(), 1)));
      touched.pop_back();
    } else if (!running.empty()) {
      Running& chosen = running[static_cast<std::size_t>(below(static_cast<std::int64_t>(running.size())))];
      engine.decode(chosen, static_cast<TokenId>(below(3)));
    }
    for (const Running& each : running) {
      ASSERT_EQ(asked(engine, each), counted(engine, each, static_cast<std::uint32_t>(running.size()))) << step;
    }
  }
}

TEST(CommonPrefix, DuplicatesInTheMiddleEndIt) {
  Engine engine(plain(60));
  Running first = engine.start(tokens(0, 9));
  Running twin = engine.start(tokens(0, 13));  // computes the same blocks at the same time
  engine.step(first, 9);
  engine.step(twin, 13);
  Running reader = engine.start(tokens(0, 14));
  EXPECT_EQ(engine.prefill(reader), 12) << "blocks 0 and 1 of the first request, block 2 of its twin";
  engine->free(first.sequence);
  EXPECT_EQ(asked(engine, twin), 0) << "its own copy of block 0 is nobody else's";
  EXPECT_EQ(asked(engine, reader), 0);
}

TEST(CommonPrefix, BlocksThatLeaveAWindowAreForgotten) {
  RswaSpec spec;
  spec.block_size = kBlock;
  spec.rswa_window = 4;
  EngineOptions options;
  options.num_blocks = 60;
  options.groups = {{{}, spec, false}};
  Engine engine(options);
  Running running = engine.start(tokens(0, 8));
  engine.prefill(running);
  for (TokenId token = 0; token < 20; ++token) {
    engine.decode(running, token);
    ASSERT_EQ(asked(engine, running), counted(engine, running, 1));
  }
}

}  // namespace
}  // namespace kvpool::test
