#include "tools/launch/model/tiny_model.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "tools/launch/model/counter_random.hpp"

namespace kvpool::launch {
namespace {

ModelConfig small_model() {
  ModelConfig config;
  config.hidden_size = 96;
  config.num_query_heads = 8;
  config.num_kv_heads = 2;
  config.head_size = 16;
  return config;
}

std::vector<float> random_values(std::int64_t count) {
  std::vector<float> x(static_cast<std::size_t>(count));
  const CounterRandom random(11, 3);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.uniform(i);
  return x;
}

TinyModel slice_of(const ModelConfig& config, int rank, int ranks) {
  return TinyModel(config, *head_slice_of(config.num_query_heads, config.num_kv_heads, rank, ranks),
                   best_row_product_tier());
}

/// Adds rank sums as the communicator's fixed tree does.
std::vector<float> tree_sum(std::vector<std::vector<float>> parts) {
  while (parts.size() > 1) {
    std::vector<std::vector<float>> next;
    for (std::size_t i = 0; i < parts.size(); i += 2) {
      for (std::size_t k = 0; k < parts[i].size(); ++k) parts[i][k] += parts[i + 1][k];
      next.push_back(parts[i]);
    }
    parts = next;
  }
  return parts[0];
}

TEST(CounterRandom, IsUniformAndItsStreamsDiffer) {
  double sum = 0;
  double squares = 0;
  int equal = 0;
  constexpr std::uint64_t kCount = 20000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const float value = CounterRandom(1, 5).uniform(i);
    ASSERT_GE(value, -1.0F);
    ASSERT_LT(value, 1.0F);
    sum += double{value};
    squares += double{value} * double{value};
    equal += value == CounterRandom(1, 6).uniform(i) ? 1 : 0;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.02);
  EXPECT_NEAR(squares / kCount, 1.0 / 3.0, 0.01);
  EXPECT_LT(equal, 3);
}

TEST(TinyModel, ARanksQkvIsASliceOfTheWhole) {
  const ModelConfig config = small_model();
  const std::int64_t rows = 5;
  const std::vector<float> hidden = random_values(rows * config.hidden_size);
  std::vector<float> scratch(hidden.size());
  const TinyModel whole = slice_of(config, 0, 1);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    std::vector<float> all(static_cast<std::size_t>(rows * whole.qkv_width()));
    whole.project_qkv(layer, hidden.data(), rows, scratch.data(), all.data());
    for (const int ranks : {2, 4}) {
      for (int rank = 0; rank < ranks; ++rank) {
        const TinyModel part = slice_of(config, rank, ranks);
        std::vector<float> mine(static_cast<std::size_t>(rows * part.qkv_width()));
        part.project_qkv(layer, hidden.data(), rows, scratch.data(), mine.data());
        const std::int64_t head = config.head_size;
        for (std::int64_t row = 0; row < rows; ++row) {
          const float* from = all.data() + row * whole.qkv_width();
          const float* to = mine.data() + row * part.qkv_width();
          const auto equal = [](const float* a, const float* b, std::int64_t n) {
            return std::memcmp(a, b, static_cast<std::size_t>(n) * sizeof(float)) == 0;
          };
          EXPECT_TRUE(equal(from + part.slice().first_query_head * head, to, part.query_width()));
          const std::int64_t kv = part.slice().first_kv_head * head;
          EXPECT_TRUE(equal(from + whole.query_width() + kv, to + part.query_width(), part.kv_width()));
          EXPECT_TRUE(equal(from + whole.query_width() + whole.kv_width() + kv,
                            to + part.query_width() + part.kv_width(), part.kv_width()));
        }
      }
    }
  }
}

TEST(TinyModel, SumsOverRanksAreBitwiseTheSumOfOneRank) {
  const ModelConfig config = small_model();
  const std::int64_t rows = 9;
  const TinyModel whole = slice_of(config, 0, 1);
  const std::vector<float> attention = random_values(rows * whole.query_width());
  std::vector<float> expected(static_cast<std::size_t>(rows * config.hidden_size));
  whole.project_output(1, attention.data(), rows, expected.data());
  for (const int ranks : {2, 4, 8}) {
    std::vector<std::vector<float>> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      const TinyModel part = slice_of(config, rank, ranks);
      std::vector<float> mine;
      for (std::int64_t row = 0; row < rows; ++row) {
        const float* from =
            attention.data() + row * whole.query_width() + part.slice().first_query_head * config.head_size;
        mine.insert(mine.end(), from, from + part.query_width());
      }
      parts.emplace_back(expected.size());
      part.project_output(1, mine.data(), rows, parts.back().data());
    }
    const std::vector<float> sum = tree_sum(parts);
    EXPECT_EQ(std::memcmp(sum.data(), expected.data(), sum.size() * sizeof(float)), 0) << ranks << " ranks";
  }
}

TEST(TinyModel, EmbeddingsDifferByTokenAndByPosition) {
  const ModelConfig config = small_model();
  const TinyModel model = slice_of(config, 0, 1);
  const std::vector<TokenId> tokens = {5, 6, 5, 5};
  const std::vector<std::int64_t> positions = {0, 0, 1, 0};
  std::vector<float> out(4 * 96);
  model.embed(tokens, positions, out.data());
  const auto row = [&](std::size_t i) {
    return std::vector<float>(out.begin() + static_cast<std::ptrdiff_t>(i * 96),
                              out.begin() + static_cast<std::ptrdiff_t>((i + 1) * 96));
  };
  EXPECT_NE(row(0), row(1));
  EXPECT_NE(row(0), row(2));
  EXPECT_EQ(row(0), row(3));
}

TEST(RmsNorm, HasUnitPower) {
  const std::vector<float> x = random_values(50);
  std::vector<float> y(x.size());
  rms_norm(x, y);
  double power = 0;
  for (const float value : y) power += double{value} * double{value};
  EXPECT_NEAR(power / 50, 1.0, 1e-4);
}

}  // namespace
}  // namespace kvpool::launch
