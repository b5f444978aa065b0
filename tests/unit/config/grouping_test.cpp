// Which layers share a block table, rule by rule.
#include <gtest/gtest.h>

#include "config/tuple_packing.hpp"
#include "kvpool/config/kv_cache_groups.hpp"
#include "layer_builders.hpp"

namespace kvpool {
namespace {

using namespace test;
using Names = std::vector<std::vector<std::string>>;

std::vector<KVCacheGroup> grouped(const std::vector<NamedLayer>& layers, const GroupingOptions& options = {}) {
  auto groups = get_kv_cache_groups(layers, options);
  EXPECT_TRUE(groups.ok()) << (groups.ok() ? "" : groups.error().message);
  return groups ? *groups : std::vector<KVCacheGroup>{};
}

std::string refusal(const std::vector<NamedLayer>& layers, const GroupingOptions& options = {}) {
  const auto groups = get_kv_cache_groups(layers, options);
  return groups ? "" : groups.error().message;
}

const GroupingOptions kOneTable{.disable_hybrid_kv_cache_manager = true, .use_eagle = false, .draft_layers = {}};

TEST(Grouping, NoLayersNoGroups) { EXPECT_TRUE(grouped({}).empty()); }

TEST(Grouping, EqualLayersAreOneGroup) {
  const auto groups = grouped(full_and_window("fff"));
  EXPECT_EQ(names(groups), (Names{{"1", "2", "3"}}));
  EXPECT_EQ(groups[0].spec, KVCacheSpec{full()});
}

TEST(Grouping, MarkersOfFullAttentionMerge) {
  FullAttentionSpec marked = full();
  marked.sliding_window = 512;
  const auto groups = grouped({{"1", full()}, {"2", marked}});
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(std::get<FullAttentionSpec>(groups[0].spec).sliding_window, 512);
}

TEST(Grouping, ContradictingMarkersAreRefused) {
  FullAttentionSpec narrow = full();
  narrow.sliding_window = 512;
  FullAttentionSpec wide = full();
  wide.sliding_window = 1024;
  EXPECT_EQ(refusal({{"1", narrow}, {"2", wide}}),
            "full attention layers of one group have different sliding_window values 512 and 1024");
  FullAttentionSpec chunk = full();
  chunk.attention_chunk_size = 64;
  EXPECT_NE(refusal({{"1", narrow}, {"2", chunk}}).find("both sliding_window 512 and attention_chunk_size 64"),
            std::string::npos);
}

TEST(Grouping, OneTypeWithDifferentPagesIsOneMixedGroup) {
  const auto groups = grouped({{"1", full(64)}, {"2", full(128)}});
  EXPECT_EQ(names(groups), (Names{{"1", "2"}}));
  EXPECT_EQ(page_size_bytes(groups[0].spec), 3 * kPage);
  ASSERT_TRUE(std::holds_alternative<UniformTypeSpec>(groups[0].spec));
}

TEST(Grouping, MixedGroupNeedsOneWindowOneChunkOneSpeculation) {
  EXPECT_EQ(grouped({{"1", window(1024, 64)}, {"2", window(1024, 128)}}).size(), 1U);
  EXPECT_EQ(grouped({{"1", window(1024, 64)}, {"2", window(512, 128)}}).size(), 2U);
  MambaSpec speculative = state(4096);
  speculative.num_speculative_blocks = 2;
  EXPECT_EQ(grouped({{"1", state(4096)}, {"2", state(2048)}}).size(), 1U);
  EXPECT_EQ(grouped({{"1", state(4096)}, {"2", speculative}}).size(), 2U);
  EXPECT_EQ(grouped({{"1", chunked(64)}, {"2", chunked(32)}}).size(), 2U);
}

TEST(Grouping, FullFamilySharesATable) {
  const auto groups = grouped({{"1", full()}, {"2", latent(576)}, {"3", hidden(64)}});
  EXPECT_EQ(groups.size(), 1U);
  EXPECT_EQ(event_kind(groups[0].spec), "full_attention");
  EXPECT_EQ(event_kind(grouped({{"1", full()}, {"2", latent(576)}})[0].spec), "full_attention");
}

TEST(Grouping, DifferentBlockSizesDoNotShareATable) {
  EXPECT_EQ(names(grouped({{"1", full(64, 32)}, {"2", full(32, 64)}})), (Names{{"1"}, {"2"}}));
}

// --- promotion -----------------------------------------------------------------------------------------

TEST(Promotion, WindowAndChunkedBecomeFullAndKeepTheirPattern) {
  const auto groups = grouped(full_and_window("fsf"), kOneTable);
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(std::get<FullAttentionSpec>(groups[0].spec).sliding_window, 1024);
  const auto local = grouped({{"1", full()}, {"2", chunked()}}, kOneTable);
  ASSERT_EQ(local.size(), 1U);
  EXPECT_EQ(std::get<FullAttentionSpec>(local[0].spec).attention_chunk_size, 8192);
}

TEST(Promotion, LatentWindowsBecomeLatentAttention) {
  const auto groups = grouped({{"1", latent(576)}, {"2", latent_window(128, 512)}}, kOneTable);
  ASSERT_EQ(groups.size(), 1U);
  const auto& uniform = std::get<UniformTypeSpec>(groups[0].spec);
  EXPECT_TRUE(std::holds_alternative<MlaAttentionSpec>(uniform.layers[1].spec));
}

TEST(Promotion, TakesTheBlockSizeOfFullAttentionAndScalesPadding) {
  SlidingWindowSpec padded = window(1024, 64, 16);
  padded.shape.page_size_padded = 20'000;
  const auto groups = grouped({{"1", full(64, 32)}, {"2", padded}}, kOneTable);
  ASSERT_EQ(groups.size(), 1U);
  const auto& uniform = std::get<UniformTypeSpec>(groups[0].spec);
  const auto& promoted = std::get<FullAttentionSpec>(uniform.layers[1].spec);
  EXPECT_EQ(promoted.block_size, 32);
  EXPECT_EQ(promoted.shape.page_size_padded, 2 * kPage);

  padded.shape.page_size_padded = 40'000;
  const auto larger = grouped({{"1", full(64, 32)}, {"2", padded}}, kOneTable);
  EXPECT_EQ(page_size_bytes(larger[0].spec), 2 * kPage + 40'000);
}

TEST(Promotion, WithoutFullAttentionNothingIsPromoted) {
  EXPECT_EQ(grouped(full_and_window("ss"), kOneTable)[0].spec, KVCacheSpec{window()});
  EXPECT_NE(refusal({{"1", window()}, {"2", chunked()}}, kOneTable).find("hybrid manager is disabled"),
            std::string::npos);
}

TEST(Promotion, StatesCannotBePromoted) {
  EXPECT_NE(refusal({{"1", full()}, {"2", state(4096)}, {"3", window()}}, kOneTable).find("hybrid manager is disabled"),
            std::string::npos);
}

TEST(Promotion, DifferentWindowsContradictEachOther) {
  EXPECT_NE(refusal({{"1", full()}, {"2", window(512)}, {"3", window(1024)}}, kOneTable).find("512 and 1024"),
            std::string::npos);
}

// --- page sizes ----------------------------------------------------------------------------------------

TEST(PageUnification, SmallerPagesGetLongerBlocks) {
  const auto groups = grouped({{"1", full(128)}, {"2", window(1024, 64)}});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(block_size(groups[0].spec), 16);
  EXPECT_EQ(block_size(groups[1].spec), 32);
  EXPECT_EQ(page_size_bytes(groups[1].spec), 2 * kPage);
}

TEST(PageUnification, PagesThatDoNotDivideArePadded) {
  const auto groups = grouped({{"1", full(64)}, {"2", window(1024, 96)}});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(std::get<FullAttentionSpec>(groups[0].spec).shape.page_size_padded, 24'576);
  EXPECT_EQ(block_size(groups[0].spec), 16);
}

TEST(PageUnification, BackendsWithoutStridesCannotBePadded) {
  FullAttentionSpec rigid = full(64);
  rigid.shape.blocks_by_stride = false;
  EXPECT_EQ(refusal({{"1", rigid}, {"2", window(1024, 96)}}),
            "layer '1': its page of 16384 bytes neither divides the largest page of 24576 bytes nor can it be padded");
}

TEST(PageUnification, StatesArePaddedEvenIfTheyDivide) {
  const auto groups = grouped({{"1", full()}, {"2", state(1024)}});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_EQ(std::get<MambaSpec>(groups[1].spec).page_size_padded, kPage);
  EXPECT_EQ(block_size(groups[1].spec), 16);
}

TEST(PageUnification, PaddedPagesGrowWithTheirBlocks) {
  FullAttentionSpec padded = full(32);
  padded.shape.page_size_padded = kPage;
  const auto groups = grouped({{"1", padded}, {"2", window(1024, 128)}});
  EXPECT_EQ(block_size(groups[0].spec), 32);
  EXPECT_EQ(page_size_bytes(groups[0].spec), 2 * kPage);
}

TEST(PageUnification, LatentAttentionBesideWindowsFallsBackToOneFullTable) {
  const auto groups = grouped({{"1", latent(96)}, {"2", window(1024, 64)}});
  ASSERT_EQ(groups.size(), 1U);
  const auto& uniform = std::get<UniformTypeSpec>(groups[0].spec);
  EXPECT_EQ(std::get<FullAttentionSpec>(uniform.layers[1].spec).sliding_window, 1024);
}

TEST(PageUnification, LatentAttentionBesideStatesIsRefused) {
  EXPECT_NE(refusal({{"1", latent(96)}, {"2", state(10'000)}}).find("nor can it be padded"), std::string::npos);
}

// --- groups of one page size ----------------------------------------------------------------------------

TEST(UniformPages, SmallestBucketSetsTheGroupSize) {
  EXPECT_EQ(names(grouped(full_and_window("ffssss"))), (Names{{"1", "2"}, {"3", "5"}, {"4", "6"}}));
}

TEST(UniformPages, LayersAreDealtOutInTurns) {
  EXPECT_EQ(names(grouped(full_and_window("fffsssssss"))),
            (Names{{"1", "2", "3"}, {"4", "7", "10"}, {"5", "8"}, {"6", "9"}}));
}

TEST(UniformPages, NearlyEqualBucketsAreNotCutUp) {
  EXPECT_EQ(grouped(full_and_window("ffffffffsssss")).size(), 3U);  // 8 full against 5 windows
  EXPECT_EQ(names(grouped(full_and_window("ffffffsssss"))),
            (Names{{"1", "2", "3", "4", "5", "6"}, {"7", "8", "9", "10", "11"}}));
}

TEST(UniformPages, ExactlyOneAndAHalfIsCutUp) { EXPECT_EQ(grouped(full_and_window("ffsss")).size(), 3U); }

TEST(UniformPages, MarkedAndPlainFullAttentionShareABucket) {
  FullAttentionSpec marked = full();
  marked.sliding_window = 77;
  const auto groups = grouped({{"1", full()}, {"2", marked}, {"3", window()}, {"4", window()}});
  EXPECT_EQ(names(groups), (Names{{"1", "2"}, {"3", "4"}}));
  EXPECT_EQ(std::get<FullAttentionSpec>(groups[0].spec).sliding_window, 77);
}

// --- hidden states -------------------------------------------------------------------------------------

TEST(HiddenStates, GetTheLongestBlockThatFitsThePageAndDividesTheOthers) {
  // 544 tokens of 2 heads x 64 floats; 4 tokens of KV have the bytes of one hidden vector of 1024 floats.
  MambaSpec aligned = state(100'000, 544);
  aligned.cache_mode = MambaCacheMode::align;
  const auto groups = grouped({{"1", full(64, 544)}, {"2", aligned}, {"3", hidden(1024, 544)}});
  EXPECT_EQ(names(groups), (Names{{"1"}, {"2"}, {"3"}}));
  EXPECT_EQ(block_size(groups[2].spec), 136);
  EXPECT_EQ(page_size_bytes(groups[2].spec), page_size_bytes(groups[0].spec));
}

TEST(HiddenStates, EachLayerIsAGroupOfItsOwn) {
  const auto groups = grouped({{"1", full()}, {"2", hidden(300)}, {"3", hidden(300)}, {"4", window()}});
  EXPECT_EQ(names(groups), (Names{{"1"}, {"4"}, {"2"}, {"3"}}));
  EXPECT_EQ(block_size(groups[2].spec), 8);
  EXPECT_EQ(page_size_bytes(groups[2].spec), kPage);
}

TEST(HiddenStates, AVectorLargerThanThePageIsRefused) {
  EXPECT_NE(refusal({{"1", full()}, {"2", window()}, {"3", hidden(5000)}}).find("is larger than the common page"),
            std::string::npos);
}

// --- tuples --------------------------------------------------------------------------------------------

TEST(TuplePacking, ChoosesTheCountWithLeastPadding) {
  const auto best = [](std::vector<std::int64_t> counts) { return config::best_tuple_count(counts, counts.front()); };
  EXPECT_EQ(best({31, 61, 30, 31}), 31);
  EXPECT_EQ(best({4, 8}), 4);
  EXPECT_EQ(best({2, 5}), 2);     // padding 0 + 1; 3 would pad 1 + 1, 5 would pad 3 + 0
  EXPECT_EQ(best({3, 5, 5}), 5);  // padding of 3, 4 and 5: 2, 7 and 2; the larger of equals
}

TEST(TuplePacking, LatentLayersFirstThenWindowsInParts) {
  // 2 latent layers of one size, 5 windows of one size: tuples 2 -> 3 groups taking every third layer.
  std::vector<NamedLayer> layers = {{"m1", latent(64)}, {"m2", latent(64)}};
  for (int i = 1; i <= 5; ++i) layers.push_back({"w" + std::to_string(i), latent_window(128, 32)});
  const auto groups = grouped(layers);
  EXPECT_EQ(names(groups), (Names{{"m1", "m2"}, {"w1", "w4"}, {"w2", "w5"}, {"w3"}}));
  for (const KVCacheGroup& group : groups) EXPECT_TRUE(std::holds_alternative<UniformTypeSpec>(group.spec));
}

TEST(TuplePacking, BucketsByBlockSizeAndWindow) {
  const auto groups = grouped({{"m", latent(64)},
                               {"a", latent_window(128, 32)},
                               {"b", latent_window(128, 48)},
                               {"c", latent_window(64, 32)},
                               {"d", latent_window(128, 32, 8)}});
  EXPECT_EQ(names(groups), (Names{{"m"}, {"a", "b"}, {"c"}, {"d"}}));
}

TEST(TuplePacking, TheLastLayersGroupIsTheEagleGroup) {
  GroupingOptions eagle;
  eagle.use_eagle = true;
  const std::vector<NamedLayer> layers = {
      {"m", latent(64)}, {"a", latent_window(128, 32)}, {"b", latent_window(64, 32)}};
  const auto groups = grouped(layers, eagle);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_FALSE(groups[0].is_eagle_group);
  EXPECT_FALSE(groups[1].is_eagle_group);
  EXPECT_TRUE(groups[2].is_eagle_group);
  EXPECT_FALSE(grouped(layers)[2].is_eagle_group);
}

TEST(TuplePacking, OnePageSizeNeedsNoTuples) {
  const auto groups = grouped({{"m", latent(64)}, {"a", latent_window(128, 64)}});
  ASSERT_EQ(groups.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<MlaAttentionSpec>(groups[0].spec));
}

// --- the rest ------------------------------------------------------------------------------------------

TEST(Grouping, DraftLayersMakeEagleGroups) {
  GroupingOptions options;
  options.draft_layers = {"3"};
  const auto groups = grouped(full_and_window("sff"), options);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_FALSE(groups[0].is_eagle_group);
  EXPECT_FALSE(groups[1].is_eagle_group);
  EXPECT_TRUE(groups[2].is_eagle_group);
}

TEST(Grouping, NamesMustBeUnique) { EXPECT_EQ(refusal({{"a", full()}, {"a", full()}}), "layer 'a' appears twice"); }

TEST(Grouping, BrokenSpecsAreNamedWithTheirLayer) {
  EXPECT_EQ(refusal({{"a", full(64, 0)}}), "layer 'a': full_attention: block_size 0 must be at least 1");
}

TEST(Projection, KeepsEveryGroupAndOnlyOwnLayers) {
  const auto groups = grouped(full_and_window("ffssss"));
  const auto part = project_groups(groups, std::vector<NamedLayer>{{"3", window()}, {"4", window()}});
  EXPECT_EQ(names(part), (Names{{}, {"3"}, {"4"}}));
}

TEST(Projection, MixedGroupsAreFilteredOrRepresented) {
  const std::vector<NamedLayer> layers = {{"1", full(64)}, {"2", full(128)}};
  const auto groups = grouped(layers);
  const auto second = project_groups(groups, std::span(layers).subspan(1));
  EXPECT_EQ(page_size_bytes(second[0].spec), 2 * kPage);
  const auto none = project_groups(groups, {});
  EXPECT_EQ(none[0].spec, KVCacheSpec{full(64)});
  EXPECT_TRUE(none[0].layer_names.empty());
}

TEST(Projection, EagleStaysWhereTheLayersAre) {
  GroupingOptions options;
  options.draft_layers = {"2"};
  const auto groups = grouped(full_and_window("ff"), options);
  EXPECT_TRUE(project_groups(groups, std::vector<NamedLayer>{{"1", full()}})[0].is_eagle_group);
  EXPECT_FALSE(project_groups(groups, {})[0].is_eagle_group);
}

}  // namespace
}  // namespace kvpool
