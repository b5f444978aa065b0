// One thread, one shard: the pool must do exactly what the oracle does, operation by operation.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "kvpool/pool/locked_block_pool.hpp"
#include "tests/differential/oracle_pool.hpp"

namespace kvpool {
namespace {

void ignore_violation(const ContractViolation&) {}

struct Scale {
  static std::size_t operations(std::size_t small, std::size_t large) {
    const char* scale = std::getenv("KVPOOL_TEST_SCALE");
    return scale != nullptr && std::string(scale) == "long" ? large : small;
  }
};

struct Case {
  BlockPoolOptions options;
  bool fences = false;
  std::uint64_t seed = 0;
};

template <class Pool>
class Duel {
 public:
  explicit Duel(const Case& setup)
      : setup_(setup), pool_(setup.options), oracle_(setup.options), random_(setup.seed * 7919 + 17) {}

  void run(std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      step();
      if (::testing::Test::HasFailure()) {
        FAIL() << "operation " << i << " of seed " << setup_.seed << ", " << setup_.options.num_blocks << " blocks";
      }
    }
    compare_everything();
  }

 private:
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(random_() % bound); }

  BlockKey some_key() {
    BlockKey key;
    const std::uint32_t number = below(3 * setup_.options.num_blocks);
    std::array<std::uint8_t, 32> digest{};
    digest[0] = static_cast<std::uint8_t>(number);
    digest[31] = static_cast<std::uint8_t>(number % 3);
    key.hash = BlockHash::from_digest(std::span(digest).first(number % 2 == 0 ? 32 : 16));
    key.group = GroupId{below(8) == 0 ? 1U : 0U};
    return key;
  }
  BlockId some_block() { return BlockId{below(setup_.options.num_blocks)}; }
  /// A block that some request holds, else any.
  BlockId held_block() {
    if (held_.empty()) return some_block();
    const auto& request = held_[below(static_cast<std::uint32_t>(held_.size()))];
    return request.empty() ? some_block() : request[below(static_cast<std::uint32_t>(request.size()))];
  }

  void step() {
    switch (below(16)) {
      case 0:
      case 1: allocate(); break;
      case 2:
      case 3: release_request(); break;
      case 4:
      case 5:
      case 6: publish(); break;
      case 7:
      case 8: pin(); break;
      case 9: touch(); break;
      case 10: evict(); break;
      case 11: move_hashes(); break;
      case 12: reserve(); break;
      case 13: misuse(); break;
      case 14: look_up(); break;
      default: rare(); break;
    }
    ASSERT_EQ(pool_.num_free_blocks(), oracle_.num_free());
    ASSERT_EQ(pool_.free_order(), oracle_.free_order());
    compare_block(some_block());
  }

  void allocate() {
    const std::uint32_t count = below(std::min(setup_.options.num_blocks, 6U) + 1);
    std::vector<BlockId> mine(count), theirs(count);
    const bool done = pool_.get_new_blocks(mine);
    ASSERT_EQ(done, oracle_.reserve(count, 0));
    if (!done) return;
    oracle_.allocate(theirs);
    ASSERT_EQ(mine, theirs);
    held_.push_back(mine);
  }

  void free_both(std::span<const BlockId> blocks) {
    const auto nothing = [](BlockId, OraclePool::Fault) {};
    if (setup_.fences && below(2) == 0) {
      const std::uint64_t fence = step_ + below(4);
      const bool good = pool_.free_blocks(blocks, fence);
      ASSERT_EQ(good, oracle_.release(blocks, fence, nothing));
    } else {
      const bool good = pool_.free_blocks(blocks);
      ASSERT_EQ(good, oracle_.release(blocks, 0, nothing));
    }
  }

  void release_request() {
    if (held_.empty()) return;
    const std::uint32_t at = below(static_cast<std::uint32_t>(held_.size()));
    std::vector<BlockId> blocks = held_[at];
    held_[at] = held_.back();
    held_.pop_back();
    if (below(4) != 0) std::reverse(blocks.begin(), blocks.end());
    free_both(blocks);
  }

  void publish() {
    const BlockId block = held_block();
    const BlockKey key = some_key();
    const std::int64_t covered = below(1000);
    ASSERT_EQ(pool_.publish(block, key, covered), oracle_.publish(block, key, covered));
  }

  void pin() {
    const BlockKey key = some_key();
    const auto mine = pool_.find(key);
    const auto theirs = oracle_.find(key);
    ASSERT_EQ(mine.has_value(), theirs.has_value());
    if (!mine) return;
    ASSERT_EQ(mine->id, theirs->first);
    ASSERT_EQ(mine->generation, theirs->second);
    const std::uint32_t units = below(2);
    auto reservation = pool_.try_reserve(units);
    ASSERT_EQ(reservation.has_value(), oracle_.reserve(units, 0));
    if (!reservation) return;
    const bool pinned = pool_.pin(*mine, key, *reservation);
    const auto outcome = oracle_.pin(theirs->first, theirs->second, key, units > 0);
    ASSERT_EQ(pinned, outcome != OraclePool::Pin::refused);
    const std::uint32_t left = units - (outcome == OraclePool::Pin::from_free ? 1 : 0);
    ASSERT_EQ(reservation->remaining(), left);
    oracle_.give_back(left);
    if (pinned) held_.push_back({mine->id});
  }

  void touch() {
    std::vector<BlockId> blocks(below(3) + 1);
    for (BlockId& block : blocks) block = below(2) == 0 ? held_block() : some_block();
    OraclePool::Fault fault = OraclePool::Fault::none;
    const bool done = pool_.touch(blocks);
    ASSERT_EQ(done, oracle_.touch(blocks, fault));
    if (done) held_.push_back(blocks);
  }

  void evict() {
    std::vector<BlockId> blocks(below(3) + 1);
    for (BlockId& block : blocks) block = some_block();
    if (blocks.size() == 1) {
      ASSERT_EQ(pool_.unpublish(blocks[0]), oracle_.unpublish(blocks[0]));
      return;
    }
    ASSERT_TRUE(pool_.evict_blocks(blocks));
    for (const BlockId block : blocks) oracle_.unpublish(block);
  }

  void move_hashes() {
    const BlockId source = held_block();
    const BlockId target = held_block();
    if (source == target || oracle_.block(source).refs == 0 || oracle_.block(target).refs == 0) return;
    if (!oracle_.block(target).keys.empty() || target == kNullBlock) return;
    pool_.move_block_hashes(source, target);
    oracle_.move_keys(source, target);
    compare_block(source);
    compare_block(target);
  }

  void reserve() {
    const std::uint32_t count = below(setup_.options.num_blocks + 2);
    const std::uint32_t keep = below(3);
    auto reservation = pool_.try_reserve(count, keep);
    ASSERT_EQ(reservation.has_value(), oracle_.reserve(count, keep));
    if (!reservation) return;
    ASSERT_EQ(pool_.num_free_blocks(), oracle_.num_free());
    const std::uint32_t taken = below(count + 1);
    std::vector<BlockId> mine(taken), theirs(taken);
    pool_.allocate(*reservation, mine);
    oracle_.allocate(theirs);
    ASSERT_EQ(mine, theirs);
    const std::uint32_t back = below(count - taken + 1);
    reservation->give_back(back);
    oracle_.give_back(back);
    typename Pool::ReservationType moved = std::move(*reservation);
    ASSERT_EQ(moved.remaining(), count - taken - back);
    oracle_.give_back(moved.remaining());
    held_.push_back(mine);
  }

  void misuse() {
    const BlockId block = below(4) == 0 ? BlockId{setup_.options.num_blocks + below(3)} : some_block();
    if (block.value() < setup_.options.num_blocks && oracle_.block(block).refs > 0) return;
    const std::array<BlockId, 2> blocks{block, kNullBlock};
    free_both(blocks);
  }

  void look_up() {
    std::vector<BlockHash> hashes;
    for (std::uint32_t i = below(24); i > 0; --i) hashes.push_back(some_key().hash);
    std::vector<BlockHandle> out(hashes.size());
    const HashChain chain{hashes, below(2) + 1};
    const std::size_t length = pool_.find_prefix(chain, GroupId{0}, out);
    for (std::size_t i = 0; i <= length && i < chain.size(); ++i) {
      const auto expected = oracle_.find({chain[i], GroupId{0}});
      ASSERT_EQ(expected.has_value(), i < length);
      if (expected) {
        ASSERT_EQ(out[i].id, expected->first);
      }
    }
  }

  void rare() {
    switch (below(8)) {
      case 0: ASSERT_EQ(pool_.reset_prefix_cache(), oracle_.reset()); break;
      case 1: compare_everything(); break;
      case 2: {
        for (const auto& request : held_) free_both(request);
        held_.clear();
        break;
      }
      default:
        if (!setup_.fences) break;
        step_ += below(3);
        pool_.advance_fence(step_);
        oracle_.advance_fence(step_);
    }
    ASSERT_EQ(pool_.take_events(), oracle_.take_events());
  }

  void compare_block(BlockId id) {
    const auto expected = oracle_.block(id);
    const BlockSnapshot shot = pool_.snapshot(id);
    ASSERT_EQ(shot.ref_count, expected.refs) << id.value();
    ASSERT_EQ(shot.generation, expected.generation);
    ASSERT_EQ(shot.free, expected.queued);
    ASSERT_EQ(shot.fenced, expected.fenced);
    ASSERT_EQ(shot.covered_tokens, expected.covered);
    ASSERT_EQ(shot.primary_key.has_value(), !expected.keys.empty());
    if (shot.primary_key) {
      ASSERT_EQ(*shot.primary_key, expected.keys.front());
    }
    for (const BlockKey& key : expected.keys) ASSERT_TRUE(pool_.has_key(id, key));
    ASSERT_EQ(pool_.is_block_writable(id), id != kNullBlock && expected.refs == 1 && expected.keys.empty());
  }

  void compare_everything() {
    ASSERT_EQ(pool_.take_events(), oracle_.take_events());
    ASSERT_EQ(pool_.num_cached_keys(), oracle_.num_keys());
    for (std::uint32_t id = 0; id < setup_.options.num_blocks; ++id) compare_block(BlockId{id});
    const Status sound = pool_.check_invariants();
    ASSERT_TRUE(sound.ok()) << sound.error().message;
    const PoolCounts mine = pool_.counts();
    const PoolCounts theirs = oracle_.counts();
    ASSERT_EQ(mine.free, theirs.free);
    ASSERT_EQ(mine.cached, theirs.cached);
    ASSERT_EQ(mine.referenced, theirs.referenced);
    ASSERT_EQ(mine.fenced, theirs.fenced);
    ASSERT_EQ(mine.reserved, theirs.reserved);
    const PoolStats stats = pool_.stats();
    const PoolStats expected = oracle_.stats();
    ASSERT_EQ(stats.allocated_blocks, expected.allocated_blocks);
    ASSERT_EQ(stats.evicted_blocks, expected.evicted_blocks);
    ASSERT_EQ(stats.released_blocks, expected.released_blocks);
    ASSERT_EQ(stats.published_keys, expected.published_keys);
    ASSERT_EQ(stats.duplicate_keys, expected.duplicate_keys);
    // One thread never meets the rare paths.
    ASSERT_EQ(stats.ring_full + stats.dead_slots + stats.index_full + stats.rescans + stats.stolen_blocks, 0U);
  }

  Case setup_;
  Pool pool_;
  OraclePool oracle_;
  std::mt19937_64 random_;
  std::vector<std::vector<BlockId>> held_;
  std::uint64_t step_ = 0;
};

class PoolDifferential : public ::testing::Test {
 protected:
  void SetUp() override { set_contract_handler(&ignore_violation); }
  void TearDown() override { set_contract_handler(nullptr); }

  template <class Pool = BlockPool>
  static void run_all(bool caching, FreeOrder order, bool fences, std::size_t small = 1'500) {
    std::uint64_t seed = 0;
    for (const std::uint32_t blocks : {1U, 2U, 3U, 5U, 9U, 17U, 40U}) {
      for (const DuplicatePolicy duplicates : {DuplicatePolicy::keep, DuplicatePolicy::skip}) {
        for (const RemovalEvents removals : {RemovalEvents::each_copy, RemovalEvents::last_copy}) {
          Case setup;
          setup.options.num_blocks = blocks;
          setup.options.enable_caching = caching;
          setup.options.free_order = order;
          setup.options.duplicates = duplicates;
          setup.options.num_shards = 1;
          setup.options.index_buckets = 8 * blocks;  // the oracle's index is never full
          setup.options.enable_events = true;
          setup.options.removal_events = removals;
          setup.fences = fences;
          setup.seed = ++seed;
          Duel<Pool>(setup).run(Scale::operations(small, 60'000));
          if (HasFailure()) return;
        }
      }
    }
  }
};

TEST_F(PoolDifferential, SplitOrderWithCaching) { run_all(true, FreeOrder::split, false); }
TEST_F(PoolDifferential, SplitOrderWithoutCaching) { run_all(false, FreeOrder::split, false); }
TEST_F(PoolDifferential, AppendOrderWithCaching) { run_all(true, FreeOrder::append, false); }
TEST_F(PoolDifferential, AppendOrderWithoutCaching) { run_all(false, FreeOrder::append, false); }
TEST_F(PoolDifferential, SplitOrderWithFences) { run_all(true, FreeOrder::split, true); }
TEST_F(PoolDifferential, AppendOrderWithFences) { run_all(true, FreeOrder::append, true); }
TEST_F(PoolDifferential, LockedPoolSplitOrder) { run_all<LockedBlockPool>(true, FreeOrder::split, true, 400); }
TEST_F(PoolDifferential, LockedPoolAppendOrder) { run_all<LockedBlockPool>(true, FreeOrder::append, true, 400); }
TEST_F(PoolDifferential, LockedPoolWithoutCaching) { run_all<LockedBlockPool>(false, FreeOrder::split, false, 400); }

// Long-lived and cold blocks beside hot ones: entries travel through all three rings.
TEST_F(PoolDifferential, OrderSurvivesManyRotations) {
  Case setup;
  setup.options.num_blocks = 300;
  setup.options.num_shards = 1;
  setup.options.index_buckets = 600;
  setup.options.enable_events = true;
  setup.seed = 99;
  Duel<BlockPool>(setup).run(Scale::operations(15'000, 400'000));
}

}  // namespace
}  // namespace kvpool
