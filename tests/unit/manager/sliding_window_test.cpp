// Rules of sliding windows: what is found, kept, published and released.
#include <set>

#include "manager/sliding_window_manager.hpp"
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

/// A window group on a bare pool: blocks with content where `cached` says so.
class WindowRules {
 public:
  WindowRules(std::int64_t block_size, std::int64_t size, std::int64_t extra_retained = 0)
      : pool_(BlockPoolOptions{.num_blocks = 256, .num_shards = 1}) {
    context_.pool = &pool_;
    context_.block_size = block_size;
    context_.hash_block_size = block_size;
    context_.scheduler_block_size = block_size;
    manager_ = std::make_unique<SlidingWindowManager>(context_, size, extra_retained);
  }

  std::int64_t find(const std::vector<bool>& cached, bool drop_last = false, std::int64_t alignment = 0) {
    std::vector<BlockHash> hashes;
    for (std::size_t i = 0; i < cached.size(); ++i) {
      BlockHash hash;
      hash.size = 16;
      hash.bytes[0] = static_cast<std::uint8_t>(i + 1);
      hash.bytes[1] = static_cast<std::uint8_t>(round_);
      hashes.push_back(hash);
      if (!cached[i]) continue;
      BlockId block{};
      EXPECT_TRUE(pool_.get_new_blocks(std::span(&block, 1)));
      pool_.publish(block, {hash, GroupId{0}}, 1);
    }
    ++round_;
    const GroupId group{0};
    const std::int64_t size = context_.block_size;
    hits_ = manager_->find_longest_cache_hit({hashes, static_cast<std::int64_t>(cached.size()) * size,
                                              std::span(&group, 1), drop_last, alignment == 0 ? size : alignment});
    EXPECT_EQ(static_cast<std::int64_t>(hits_.lists[0].size()) * size, hits_.length);
    return hits_.length / size;
  }

  [[nodiscard]] const std::vector<BlockHandle>& found() const { return hits_.lists[0]; }
  SlidingWindowManager& manager() { return *manager_; }
  BlockPool& pool() { return pool_; }

 private:
  BlockPool pool_;
  GroupContext context_;
  std::unique_ptr<SlidingWindowManager> manager_;
  GroupHits hits_;
  int round_ = 0;
};

constexpr bool T = true;
constexpr bool F = false;

TEST(SlidingWindow, FindsTheLastRunThatFillsAWindow) {
  WindowRules rules(2, 4);
  EXPECT_EQ(rules.find({T, T, F, T, F, F, T, T, F, T, T, T}), 12);
  EXPECT_EQ(rules.find({T, T, F, T, F, F, T, T, F, F, F}), 8);
  EXPECT_TRUE(rules.found()[3].is_null()) << "blocks in front of the run need no storage";
  EXPECT_FALSE(rules.found()[6].is_null());
  EXPECT_EQ(rules.find({T, T, F}), 2);
  EXPECT_EQ(rules.find({T}), 1) << "a run from token 0 may be short";
  EXPECT_EQ(rules.find(std::vector<bool>(10, false)), 0);
  EXPECT_EQ(rules.find({F, T}), 0);
}

TEST(SlidingWindow, DraftDropNeedsOneBlockMore) {
  WindowRules rules(2, 4);
  EXPECT_EQ(rules.find({T, T, F, T, T, T}, true), 5);
  EXPECT_EQ(rules.find({T, T, F, T, T, F}, true), 1) << "two blocks are no window and one to drop";
}

TEST(SlidingWindow, HitEndsAtTheAlignment) {
  WindowRules rules(2, 3);
  EXPECT_EQ(rules.find({F, F, T, T, T}, false, 4), 4) << "block 4 ends at token 10, no multiple of 4";
  EXPECT_TRUE(rules.found().size() == 4);
  EXPECT_EQ(rules.find({T, F, F}, false, 4), 0);
  EXPECT_EQ(rules.find({T, T, T, T, T}, true, 4), 4);
}

TEST(SlidingWindow, LastTokenThatNobodyReads) {
  WindowRules rules(2, 4);
  const std::vector<std::int64_t> expected{0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
  for (std::int64_t n = 0; n < 12; ++n) {
    EXPECT_EQ(rules.manager().skipped_tokens(n), expected[static_cast<std::size_t>(n)]) << n;
  }
  EXPECT_EQ(WindowRules(2, 4, 3).manager().skipped_tokens(11), 5);
}

TEST(SlidingWindow, AnnouncedNeedCountsFreeHitsOnly) {
  WindowRules rules(2, 4);
  rules.find(std::vector<bool>(10, true));
  std::vector<BlockHandle> hits(10);
  for (std::uint32_t i = 0; i < 10; ++i) hits[i] = rules.pool().handle(BlockId{100 + i});
  const GroupState fresh;
  SlotDemand demand{.tokens = 40};
  EXPECT_EQ(rules.manager().blocks_to_allocate(fresh, demand, hits).total(), 20);
  for (std::size_t i = 0; i < 5; ++i) hits[i] = BlockHandle{};
  EXPECT_EQ(rules.manager().blocks_to_allocate(fresh, demand, hits).total(), 15);
}

std::set<std::int64_t> published(Engine& engine, const Running& running, std::uint32_t group) {
  std::set<std::int64_t> kept;
  const Ids table = engine.table(running, group);
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (engine.pool().primary_key(BlockId{table[i]})) kept.insert(static_cast<std::int64_t>(i));
  }
  return kept;
}

struct MaskCase {
  const char* name;
  std::int64_t block_size;
  std::int64_t window;
  std::int64_t full_block_size;  ///< of the full group; 0: no full group
  std::int64_t prompt;
  std::optional<std::int64_t> interval;
  bool eagle;
  std::set<std::int64_t> kept;
};

class SlidingWindowMask : public testing::TestWithParam<MaskCase> {};

TEST_P(SlidingWindowMask, KeepsWhatALaterHitCanReach) {
  const MaskCase& c = GetParam();
  EngineOptions options{.num_blocks = 200, .groups = {}, .hash_block_size = c.block_size};
  if (c.full_block_size != 0) options.groups.push_back(full(c.full_block_size));
  options.groups.push_back(window(c.block_size, c.window, c.eagle));
  options.retention_interval = c.interval;
  options.manager.use_eagle = c.eagle;
  Engine engine(options);
  Running running = engine.start(tokens(0, c.prompt));
  // The window must not release anything before the mask is looked at.
  running.request.num_in_flight_tokens = c.prompt;
  engine.step(running, c.prompt);
  EXPECT_EQ(published(engine, running, c.full_block_size != 0 ? 1 : 0), c.kept);
}

INSTANTIATE_TEST_SUITE_P(Rules, SlidingWindowMask,
                         testing::Values(MaskCase{"dense", 8, 8, 32, 64, std::nullopt, false, {3, 7}},
                                         MaskCase{"interval", 8, 8, 32, 128, 64, false, {7, 11, 15}},
                                         MaskCase{"boundary", 8, 8, 32, 128, 0, false, {11}},
                                         MaskCase{"boundary_with_draft_block", 8, 8, 32, 127, 0, true, {11, 12}},
                                         MaskCase{"only_windows_dense",
                                                  16,
                                                  16,
                                                  0,
                                                  256,
                                                  std::nullopt,
                                                  false,
                                                  {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}},
                                         MaskCase{
                                             "only_windows_interval", 16, 16, 0, 256, 64, false, {3, 7, 11, 14, 15}},
                                         MaskCase{"only_windows_boundary", 16, 16, 0, 256, 0, false, {14}}),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(SlidingWindow, DecodeKeepsTheTableAndNullsWhatLeaves) {
  Engine engine({.num_blocks = 30, .groups = {window(2, 4)}});
  Running running = engine.start(tokens(0, 4));
  engine.prefill(running);
  for (TokenId token = 4; token < 40; ++token) {
    engine.decode(running, token);
    std::int64_t live = 0;
    for (const std::uint32_t id : engine.table(running)) live += id != 0 ? 1 : 0;
    EXPECT_LE(live, 3);
  }
  EXPECT_EQ(engine.table(running).size(), 20U);
  engine->free(running.sequence);
  EXPECT_EQ(engine.free_blocks(), 29U);
}

TEST(SlidingWindow, AdmissionCapLimitsTheGateOnly) {
  EngineOptions options{.num_blocks = 14, .groups = {window(4, 8)}};
  options.manager.max_in_flight_tokens = 16;
  options.manager.max_model_len = 400;
  Engine engine(options);
  Running running = engine.start(tokens(0, 200));
  AllocateSlots whole;
  whole.full_sequence_must_fit = true;
  // 7 + 16 tokens are 6 blocks, one more for the shift: 7 of 13 although 200 tokens are 50 blocks.
  EXPECT_EQ(engine.step(running, 16, whole).outcome, AllocateOutcome::allocated);
  options.num_blocks = 7;
  Engine small(options);
  Running refused = small.start(tokens(0, 200));
  EXPECT_EQ(small.step(refused, 16, whole).outcome, AllocateOutcome::no_capacity);
  EXPECT_EQ(small.step(refused, 16).outcome, AllocateOutcome::allocated);
}

TEST(SlidingWindow, HitsThatLeaveTheWindowAtOnceAreNotTaken) {
  Engine engine({.num_blocks = 40, .groups = {full(4), window(4, 8)}});
  engine.warm(tokens(0, 32));
  Running next = engine.start(tokens(0, 40));
  PrefixHit hit = engine->get_computed_blocks(next.request);
  EXPECT_EQ(hit.num_computed_tokens, 32);
  AllocateSlots arguments;
  arguments.num_new_computed_tokens = 32;
  arguments.new_computed_blocks = &hit.blocks;
  arguments.num_external_computed_tokens = 4;  // moves the window by one block
  engine.step(next, 4, arguments);
  const Ids table = engine.table(next, 1);
  EXPECT_EQ(table[6], 0U);
  EXPECT_EQ(table[7], hit.blocks.groups[1][7].id.value());
  EXPECT_EQ(engine.pool().ref_count(hit.blocks.groups[1][6].id), 0U);
}

}  // namespace
}  // namespace kvpool::test
