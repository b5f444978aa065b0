#include "kvpool/config/layout_text.hpp"

#include <gtest/gtest.h>

namespace kvpool {
namespace {

KVCacheConfig two_groups() {
  KVCacheConfig config;
  SlidingWindowSpec window;
  window.sliding_window = 4096;
  config.groups = {{{"layers.0"}, FullAttentionSpec{}}, {{"layers.1"}, window}};
  return config;
}

LayoutContext context() {
  LayoutContext result;
  result.max_model_len = 8192;
  return result;
}

TEST(LayoutText, NamesEveryFactOfAGroup) {
  const std::string text = layout_text(canonical_layout(two_groups(), context()));
  for (const char* line :
       {"layout_version 1\n", "max_model_len 8192\n", "block_order NHD\n", "groups 2\n",
        "group 0 kind full_attention\n", "group 0 dtype bfloat16\n", "group 1 kind sliding_window\n",
        "group 1 sliding_window 4096\n", "group 1 block_size 16\n", "group 1 layer 0 name layers.1\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line;
  }
}

TEST(LayoutText, DifferenceNamesFieldAndBothValues) {
  const KVCacheConfig mine = two_groups();
  KVCacheConfig other = mine;
  std::get<SlidingWindowSpec>(other.groups[1].spec).sliding_window = 1024;
  const auto difference = first_difference(canonical_layout(mine, context()), canonical_layout(other, context()));
  ASSERT_TRUE(difference.has_value());
  EXPECT_EQ(difference->field, "group 1 sliding_window");
  EXPECT_EQ(difference->left, "4096");
  EXPECT_EQ(difference->right, "1024");
}

TEST(LayoutText, MissingFactsAreFoundOnEitherSide) {
  const KVCacheConfig both = two_groups();
  KVCacheConfig one = both;
  one.groups.pop_back();
  const auto left = canonical_layout(both, context());
  const auto right = canonical_layout(one, context());
  EXPECT_EQ(first_difference(left, right)->field, "groups");
  const std::vector<LayoutLine> shorter(left.begin(), left.end() - 1);
  EXPECT_EQ(first_difference(shorter, left)->left, "");
  EXPECT_EQ(first_difference(left, shorter)->right, "");
  EXPECT_FALSE(first_difference(left, left).has_value());
}

TEST(LayoutText, NumberOfBlocksAndTensorsAreNoPartOfTheMeaning) {
  KVCacheConfig more = two_groups();
  more.num_blocks = 500;
  more.tensors = {{1024, {"layers.0", "layers.1"}}};
  EXPECT_EQ(canonical_layout(more, context()), canonical_layout(two_groups(), context()));
}

TEST(LayoutText, SurvivesTheWire) {
  KVCacheConfig odd = two_groups();
  odd.groups[0].layer_names = {"name with space\nand line", "", "100%"};
  const auto lines = canonical_layout(odd, context());
  const auto read = parse_layout_text(layout_text(lines));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(*read, lines);
}

TEST(LayoutText, GarbageIsRefused) {
  EXPECT_FALSE(parse_layout_text("no end of line").has_value());
  EXPECT_FALSE(parse_layout_text("valueless\n").has_value());
  EXPECT_FALSE(parse_layout_text("field \n").has_value());
  EXPECT_FALSE(parse_layout_text(" value\n").has_value());
  EXPECT_FALSE(parse_layout_text("\n").has_value());
  EXPECT_TRUE(parse_layout_text("")->empty());
}

TEST(LayoutText, MixedGroupsListEveryLayer) {
  KVCacheConfig config;
  MambaSpec state;
  state.states = {{{3, 1024}, DType::bfloat16}};
  FullAttentionSpec wide;
  wide.shape.head_size = 128;
  config.groups = {{{"a", "b"}, UniformTypeSpec{{{"a", FullAttentionSpec{}}, {"b", wide}}}}, {{"m"}, state}};
  const std::string text = layout_text(canonical_layout(config, context()));
  EXPECT_NE(text.find("group 0 layer 1 name b\n"), std::string::npos);
  EXPECT_NE(text.find("group 0 layer 1 head_size 128\n"), std::string::npos);
  EXPECT_NE(text.find("group 1 state_0 bfloat16x3x1024\n"), std::string::npos);
}

TEST(LayoutText, EverySpecTypeIsTextAndDistinct) {
  const std::vector<KVCacheSpec> specs = {FullAttentionSpec{},
                                          MlaAttentionSpec{},
                                          SlidingWindowSpec{},
                                          SlidingWindowMlaSpec{},
                                          ChunkedLocalAttentionSpec{},
                                          MambaSpec{},
                                          CrossAttentionSpec{},
                                          SinkFullAttentionSpec{},
                                          RswaSpec{},
                                          EncoderOnlyAttentionSpec{},
                                          HiddenStateSpec{}};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    for (std::size_t j = 0; j < specs.size(); ++j) {
      KVCacheConfig left, right;
      left.groups = {{{"a"}, specs[i]}};
      right.groups = {{{"a"}, specs[j]}};
      EXPECT_EQ(canonical_layout(left, context()) == canonical_layout(right, context()), i == j) << i << ' ' << j;
    }
  }
}

}  // namespace
}  // namespace kvpool
