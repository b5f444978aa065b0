#include "tools/launch/model/row_product.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tools/launch/model/counter_random.hpp"

namespace kvpool::launch {
namespace {

std::vector<RowProductTier> tiers() {
  std::vector<RowProductTier> all;
  for (const auto tier : {RowProductTier::generic, RowProductTier::avx2, RowProductTier::avx512}) {
    if (is_supported(tier)) all.push_back(tier);
  }
  return all;
}

PackedMatrix random_matrix(std::int64_t inner, std::int64_t outer) {
  PackedMatrix matrix(inner, outer);
  const CounterRandom random(7, 1);
  for (std::int64_t row = 0; row < inner; ++row) {
    for (std::int64_t column = 0; column < outer; ++column) {
      matrix.at(row, column) = random.uniform(static_cast<std::uint64_t>(row * outer + column));
    }
  }
  return matrix;
}

std::vector<float> random_rows(std::int64_t rows, std::int64_t width) {
  std::vector<float> x(static_cast<std::size_t>(rows * width));
  const CounterRandom random(7, 2);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.uniform(i);
  return x;
}

std::vector<float> multiply(RowProductTier tier, const std::vector<float>& x, std::int64_t rows,
                            const PackedMatrix& matrix, std::int64_t segment) {
  std::vector<float> y(static_cast<std::size_t>(rows * matrix.outer()), -1.0F);
  RowProductArguments arguments;
  arguments.x = x.data();
  arguments.rows = rows;
  arguments.x_stride = matrix.inner();
  arguments.matrix = &matrix;
  arguments.segment = segment;
  arguments.y = y.data();
  arguments.y_stride = matrix.outer();
  row_product(tier, arguments);
  return y;
}

TEST(RowProduct, AgreesWithDoubleForOddShapes) {
  for (const RowProductTier tier : tiers()) {
    for (const std::int64_t outer : {1, 31, 32, 33, 100}) {
      for (const std::int64_t rows : {1, 7, 8, 9, 65}) {
        const std::int64_t inner = 24;
        const PackedMatrix matrix = random_matrix(inner, outer);
        const std::vector<float> x = random_rows(rows, inner);
        const std::vector<float> y = multiply(tier, x, rows, matrix, 8);
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < outer; ++c) {
            double expected = 0;
            for (std::int64_t k = 0; k < inner; ++k) {
              expected += double{x[static_cast<std::size_t>(r * inner + k)]} * double{matrix.at(k, c)};
            }
            ASSERT_NEAR(double{y[static_cast<std::size_t>(r * outer + c)]}, expected, 1e-5)
                << to_string(tier) << " row " << r << " column " << c;
          }
        }
      }
    }
  }
}

TEST(RowProduct, ARowDoesNotDependOnTheRowsBesideIt) {
  const std::int64_t inner = 96;
  const std::int64_t outer = 40;
  const std::int64_t rows = 77;
  const PackedMatrix matrix = random_matrix(inner, outer);
  const std::vector<float> x = random_rows(rows, inner);
  for (const RowProductTier tier : tiers()) {
    const std::vector<float> together = multiply(tier, x, rows, matrix, 32);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::vector<float> row(x.begin() + r * inner, x.begin() + (r + 1) * inner);
      const std::vector<float> alone = multiply(tier, row, 1, matrix, 32);
      ASSERT_EQ(std::memcmp(alone.data(), together.data() + r * outer, static_cast<std::size_t>(outer) * 4), 0)
          << to_string(tier) << " row " << r;
    }
  }
}

TEST(RowProduct, SegmentsAreAddedByOneTreeOfNeighbours) {
  // Values that make every order of additions give another result.
  const std::vector<float> terms = {1.0F, 0x1p-24F, 0x1p-24F, 0x1p-24F, 3.0F, 0x1p-23F, -4.0F};
  for (std::size_t count = 1; count <= terms.size(); ++count) {
    PackedMatrix matrix(static_cast<std::int64_t>(count), 1);
    for (std::size_t i = 0; i < count; ++i) matrix.at(static_cast<std::int64_t>(i), 0) = terms[i];
    std::vector<float> level(terms.begin(), terms.begin() + static_cast<std::ptrdiff_t>(count));
    while (level.size() > 1) {
      std::vector<float> next;
      for (std::size_t i = 0; i + 1 < level.size(); i += 2) next.push_back(level[i] + level[i + 1]);
      if (level.size() % 2 == 1) next.push_back(level.back());
      level = next;
    }
    for (const RowProductTier tier : tiers()) {
      const std::vector<float> ones(count, 1.0F);
      EXPECT_EQ(multiply(tier, ones, 1, matrix, 1)[0], level[0]) << to_string(tier) << ", " << count << " segments";
    }
  }
}

}  // namespace
}  // namespace kvpool::launch
