// Both kinds of pool have the same member functions, so that a program can take either: every signature is named here
// and held against both while this file is compiled; same_members.py sees that no member is missing from the list.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "block/key_words.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "kvpool/pool/locked_block_pool.hpp"

namespace kvpool {
namespace {

/// Whether a pointer to a member function has exactly this type; noexcept counts.
template <class Wanted, class Given>
constexpr bool is_exactly(Given /*member*/) {
  return std::is_same_v<Wanted, Given>;
}

template <class Pool>
struct Members {
  using Unit = typename Pool::ReservationType;
  using Blocks = std::span<const BlockId>;
  using Handles = std::span<const BlockHandle>;
  template <class R, class... A>
  using Call = R (Pool::*)(A...);
  template <class R, class... A>
  using NoThrow = R (Pool::*)(A...) noexcept;
  template <class R, class... A>
  using Query = R (Pool::*)(A...) const;
  template <class R, class... A>
  using NoThrowQuery = R (Pool::*)(A...) const noexcept;

  static constexpr bool build() {
    static_assert(std::is_constructible_v<Pool, const BlockPoolOptions&>);
    static_assert(!std::is_convertible_v<const BlockPoolOptions&, Pool>, "explicit");
    static_assert(!std::is_copy_constructible_v<Pool> && !std::is_copy_assignable_v<Pool>);
    static_assert(!std::is_move_constructible_v<Pool> && !std::is_move_assignable_v<Pool>);
    static_assert(is_exactly<NoThrowQuery<const BlockPoolOptions&>>(&Pool::options));
    static_assert(is_exactly<NoThrowQuery<std::uint32_t>>(&Pool::num_blocks));
    return true;
  }
  static constexpr bool reservation() {
    static_assert(std::is_nothrow_default_constructible_v<Unit>);
    static_assert(std::is_nothrow_move_constructible_v<Unit> && std::is_nothrow_move_assignable_v<Unit>);
    static_assert(!std::is_copy_constructible_v<Unit> && !std::is_copy_assignable_v<Unit>);
    static_assert(std::is_same_v<decltype(&Unit::remaining), std::uint32_t (Unit::*)() const noexcept>);
    static_assert(std::is_same_v<decltype(&Unit::give_back), void (Unit::*)(std::uint32_t) noexcept>);
    return true;
  }
  static constexpr bool capacity() {
    static_assert(is_exactly<NoThrowQuery<std::uint32_t>>(&Pool::num_free_blocks));
    static_assert(is_exactly<NoThrowQuery<double>>(&Pool::usage));
    static_assert(is_exactly<NoThrowQuery<PoolCounts>>(&Pool::counts));
    static_assert(is_exactly<NoThrowQuery<PoolStats>>(&Pool::stats));
    static_assert(is_exactly<Query<std::vector<PoolStats>>>(&Pool::shard_stats));
    static_assert(is_exactly<Call<std::optional<Unit>, std::uint32_t, std::uint32_t>>(&Pool::try_reserve));
    return true;
  }
  static constexpr bool references() {
    static_assert(is_exactly<Call<bool, Unit&, std::span<BlockId>>>(&Pool::allocate));
    static_assert(is_exactly<Call<bool, std::span<BlockId>>>(&Pool::get_new_blocks));
    static_assert(is_exactly<Call<bool, Blocks>>(&Pool::touch));
    static_assert(is_exactly<Call<bool, BlockHandle, const BlockKey&, Unit&>>(&Pool::pin));
    static_assert(is_exactly<Call<std::size_t, Handles, HashChain, GroupId, Unit&>>(&Pool::pin_prefix));
    static_assert(static_cast<Call<bool, Blocks>>(&Pool::free_blocks) != nullptr);
    static_assert(static_cast<Call<bool, Blocks, std::uint64_t>>(&Pool::free_blocks) != nullptr);
    static_assert(static_cast<Call<bool, Handles>>(&Pool::free_blocks) != nullptr);
    static_assert(is_exactly<Call<void, std::uint64_t>>(&Pool::advance_fence));
    return true;
  }
  static constexpr bool content() {
    static_assert(is_exactly<Query<std::optional<BlockHandle>, const BlockKey&>>(&Pool::find));
    static_assert(is_exactly<Query<std::size_t, HashChain, GroupId, std::span<BlockHandle>>>(&Pool::find_prefix));
    static_assert(is_exactly<NoThrowQuery<void, const BlockKey&>>(&Pool::prefetch));
    static_assert(is_exactly<Call<bool, BlockId, const BlockKey&, std::int64_t>>(&Pool::publish));
    static_assert(
        is_exactly<Call<std::size_t, Blocks, HashChain, GroupId, std::int64_t, std::int64_t>>(&Pool::publish_chain));
    static_assert(is_exactly<Call<bool, BlockId>>(&Pool::unpublish));
    static_assert(is_exactly<Call<bool, Blocks>>(&Pool::evict_blocks));
    static_assert(is_exactly<Call<bool, BlockId, BlockId>>(&Pool::move_block_hashes));
    static_assert(is_exactly<Call<bool, std::uint32_t>>(&Pool::reset_prefix_cache));
    static_assert(is_exactly<Query<std::optional<BlockKey>, BlockId>>(&Pool::primary_key));
    static_assert(is_exactly<Query<std::int64_t, BlockId>>(&Pool::covered_tokens));
    static_assert(is_exactly<Query<bool, BlockId, const BlockKey&>>(&Pool::has_key));
    static_assert(is_exactly<NoThrowQuery<bool, BlockId>>(&Pool::is_block_writable));
    static_assert(is_exactly<NoThrowQuery<std::uint32_t, BlockId>>(&Pool::ref_count));
    static_assert(is_exactly<NoThrowQuery<std::optional<std::uint64_t>>>(&Pool::sharing_changes));
    static_assert(is_exactly<NoThrowQuery<BlockHandle, BlockId>>(&Pool::handle));
    return true;
  }
  static constexpr bool events_and_inspection() {
    static_assert(static_cast<Call<void, KVEvent>>(&Pool::append_event) != nullptr);
    static_assert(static_cast<Call<void, EventDraft&&>>(&Pool::append_event) != nullptr);
    static_assert(is_exactly<Call<EventDraft>>(&Pool::draft_event));
    static_assert(is_exactly<Call<std::vector<KVEvent>>>(&Pool::take_events));
    static_assert(is_exactly<NoThrow<EventBatch>>(&Pool::take_event_batch));
    static_assert(is_exactly<Query<BlockSnapshot, BlockId>>(&Pool::snapshot));
    static_assert(is_exactly<Query<std::vector<BlockId>>>(&Pool::free_order));
    static_assert(is_exactly<Query<std::size_t>>(&Pool::num_cached_keys));
    static_assert(is_exactly<Query<Status>>(&Pool::check_invariants));
    return true;
  }
  static constexpr bool kAll =
      build() && reservation() && capacity() && references() && content() && events_and_inspection();
};
static_assert(Members<BlockPool>::kAll && Members<LockedBlockPool>::kAll);

BlockKey key_of(std::uint8_t number) {
  BlockKey key;
  key.hash.size = 16;
  key.hash.bytes[3] = number;
  return key;
}

template <class Pool>
class PoolMembers : public ::testing::Test {
 protected:
  static BlockPoolOptions options(std::uint32_t blocks) {
    BlockPoolOptions result;
    result.num_blocks = blocks;
    result.num_shards = 2;
    return result;
  }
};
using Pools = ::testing::Types<BlockPool, LockedBlockPool>;
TYPED_TEST_SUITE(PoolMembers, Pools);

TYPED_TEST(PoolMembers, SharingChangesWithEveryReferenceThatIsNotTheOnlyOne) {
  TypeParam pool(this->options(9));
  std::array<BlockId, 2> blocks;
  ASSERT_TRUE(pool.get_new_blocks(blocks));
  ASSERT_TRUE(pool.publish(blocks[0], key_of(1), 4));
  std::uint64_t last = *pool.sharing_changes();
  const auto changed = [&] { return std::exchange(last, *pool.sharing_changes()) != last; };
  ASSERT_TRUE(pool.touch(std::span(blocks).last(1)));
  EXPECT_TRUE(changed()) << "touched";
  typename TypeParam::ReservationType none = *pool.try_reserve(0);
  ASSERT_TRUE(pool.pin(pool.handle(blocks[0]), key_of(1), none));
  EXPECT_TRUE(changed()) << "pinned";
  EXPECT_TRUE(pool.free_blocks(blocks));
  EXPECT_TRUE(changed()) << "released, and still referenced";
  EXPECT_TRUE(pool.free_blocks(blocks));
  ASSERT_TRUE(pool.touch(std::span(blocks).first(1)));
  EXPECT_TRUE(pool.free_blocks(std::span<const BlockId>(blocks).first(1)));
  EXPECT_FALSE(changed()) << "nobody shared a block";
  EXPECT_EQ(pool.stats().pinned_blocks, 3U);
  EXPECT_EQ(pool.stats().released_references, 5U);
}

TYPED_TEST(PoolMembers, SharingIsUnknownWithoutStats) {
  BlockPoolOptions options = this->options(4);
  options.enable_stats = false;
  EXPECT_FALSE(TypeParam(options).sharing_changes().has_value());
}

TYPED_TEST(PoolMembers, APinThatCameTooLateIsCounted) {
  TypeParam pool(this->options(2));
  std::array<BlockId, 1> block;
  ASSERT_TRUE(pool.get_new_blocks(block));
  ASSERT_TRUE(pool.publish(block[0], key_of(1), -4));
  EXPECT_EQ(pool.covered_tokens(block[0]), 0);
  const std::optional<BlockHandle> seen = pool.find(key_of(1));
  ASSERT_TRUE(seen.has_value());
  EXPECT_TRUE(pool.free_blocks(block));
  ASSERT_TRUE(pool.get_new_blocks(block));  // recycles it
  typename TypeParam::ReservationType none = *pool.try_reserve(0);
  EXPECT_FALSE(pool.pin(*seen, key_of(1), none));
  EXPECT_EQ(pool.stats().lost_pins, 1U);
  EXPECT_TRUE(pool.free_blocks(block));
}

TYPED_TEST(PoolMembers, AGroupBeyondTheWidthGetsNoKey) {
  TypeParam pool(this->options(2));
  std::array<BlockId, 1> block;
  ASSERT_TRUE(pool.get_new_blocks(block));
  BlockKey key = key_of(1);
  key.group = GroupId{KeyWords::kMaxGroup + 1};
  EXPECT_FALSE(pool.publish(block[0], key, 4));
  EXPECT_EQ(pool.publish_chain(block, {.units = std::span(&key.hash, 1)}, key.group, 0, 4), 0U);
  key.group = GroupId{KeyWords::kMaxGroup};
  EXPECT_TRUE(pool.publish(block[0], key, 4));
  EXPECT_TRUE(pool.free_blocks(block));
}

TYPED_TEST(PoolMembers, AReservationMovesAndReturnsWhatWasNotUsed) {
  TypeParam pool(this->options(9));
  {
    typename TypeParam::ReservationType first = *pool.try_reserve(5);
    typename TypeParam::ReservationType second = *pool.try_reserve(3);
    EXPECT_EQ(pool.num_free_blocks(), 0U);
    second = std::move(first);
    EXPECT_EQ(pool.num_free_blocks(), 3U) << "what the target had went back";
    EXPECT_EQ(second.remaining(), 5U);
    second.give_back(1);
    std::array<BlockId, 2> blocks;
    pool.allocate(second, blocks);
    EXPECT_EQ(second.remaining(), 2U);
    EXPECT_EQ(pool.num_free_blocks(), 4U);
    EXPECT_TRUE(pool.free_blocks(blocks));
  }
  EXPECT_EQ(pool.num_free_blocks(), 8U);
  EXPECT_TRUE(pool.check_invariants().ok());
}

}  // namespace
}  // namespace kvpool
