#include "tests/kernels/low_precision.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/plan_impl.hpp"

namespace kvpool::kernels::test {
namespace {

float rounded(float value) { return to_float(bf16_from_float(value)); }

/// Half the distance of neighbouring numbers around 1.
double unit_of(DType type) {
  if (type == DType::bfloat16) return 0x1p-8;
  return type == DType::float16 ? 0x1p-11 : 0x1p-24;
}

/// The rows of a case as rounded fp32 numbers.
class RoundedRows {
 public:
  explicit RoundedRows(const AttentionCase& c) : c_(c) {}

  [[nodiscard]] std::vector<float> query(std::int64_t token, std::int64_t head) const {
    const std::int64_t heads = c_.spec.kv_heads * c_.spec.group;
    return read(c_.q.data(), c_.spec.query, (token * heads + head) * c_.spec.dim, c_.spec.dim, 1);
  }
  [[nodiscard]] std::vector<float> key(std::size_t b, std::int64_t j, std::int64_t head) const {
    return cached(c_.view.k, b, j, head, c_.spec.dim, scales(head).k);
  }
  [[nodiscard]] std::vector<float> value(std::size_t b, std::int64_t j, std::int64_t head) const {
    return cached(c_.view.v, b, j, head, c_.dim_v, scales(head).v);
  }

 private:
  [[nodiscard]] HeadScales scales(std::int64_t head) const {
    return head_scales({c_.spec.k_scale, c_.spec.v_scale, 0}, c_.view, head);
  }
  [[nodiscard]] std::vector<float> cached(const PagedRows& rows, std::size_t b, std::int64_t j, std::int64_t head,
                                          std::int64_t dim, float scale) const {
    const auto column = static_cast<std::size_t>(j / c_.spec.page_size);
    const std::int64_t page = c_.table[b * static_cast<std::size_t>(c_.columns) + column];
    return read(rows.data, c_.spec.cache, row_offset(rows, page, j % c_.spec.page_size, head), dim, scale);
  }
  static std::vector<float> read(const void* data, DType type, std::int64_t at, std::int64_t dim, float scale) {
    std::vector<float> row(static_cast<std::size_t>(dim));
    with_cache_type(type, [&](auto tag) {
      using T = typename decltype(tag)::type;
      for (std::int64_t d = 0; d < dim; ++d)
        row[static_cast<std::size_t>(d)] = rounded(to_float(static_cast<const T*>(data)[at + d]) * scale);
    });
    return row;
  }

  const AttentionCase& c_;
};

float low_logit(const AttentionCase& c, const std::vector<float>& q, const std::vector<float>& k) {
  float dot = 0;
  for (std::size_t d = 0; d < q.size(); ++d) dot += q[d] * k[d];
  const float scale = c.spec.scale.value_or(static_cast<float>(1 / std::sqrt(static_cast<double>(c.spec.dim))));
  const float s = rounded(rounded(dot) * scale);
  if (c.spec.soft_cap == 0) return s;
  return rounded(c.spec.soft_cap * rounded(std::tanh(rounded(s / c.spec.soft_cap))));
}

}  // namespace

std::vector<float> attention_in_bf16(const AttentionCase& c) {
  const RoundedRows rows(c);
  const std::int64_t heads = c.spec.kv_heads * c.spec.group;
  std::vector<float> out(static_cast<std::size_t>(c.num_tokens() * heads * c.dim_v), 0.0F);
  for (std::size_t b = 0; b < c.spec.seq_lens.size(); ++b) {
    for (std::int64_t token = c.cu_q[b]; token < c.cu_q[b + 1]; ++token) {
      const std::int64_t end = c.spec.seq_lens[b] - (c.cu_q[b + 1] - token) + 1;  // keys that the query sees
      for (std::int64_t head = 0; head < heads && end > 0; ++head) {
        const auto q = rows.query(token, head);
        std::vector<float> p;
        for (std::int64_t j = 0; j < end; ++j) p.push_back(low_logit(c, q, rows.key(b, j, head / c.spec.group)));
        const float max = *std::max_element(p.begin(), p.end());
        float sum = 0;
        for (float& x : p) sum += x = std::exp(x - max);
        std::vector<float> row(static_cast<std::size_t>(c.dim_v), 0.0F);
        for (std::int64_t j = 0; j < end; ++j) {
          const float weight = rounded(p[static_cast<std::size_t>(j)] / sum);
          const auto v = rows.value(b, j, head / c.spec.group);
          for (std::size_t d = 0; d < row.size(); ++d) row[d] += weight * v[d];
        }
        std::transform(row.begin(), row.end(), out.begin() + (token * heads + head) * c.dim_v, rounded);
      }
    }
  }
  return out;
}

void expect_within_bf16_error(const AttentionCase& c, const Output& got, const Output& reference,
                              const std::vector<float>& low, double factor) {
  ASSERT_TRUE(got.status.ok() && reference.status.ok());
  const auto dim = static_cast<std::size_t>(c.dim_v);
  for (std::size_t row = 0; row < got.lse.size(); ++row) {
    double largest = 0;
    double allowed = 0;
    double error = 0;
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
      const auto want = static_cast<double>(reference.at(i, DType::float32));
      largest = std::max(largest, std::abs(want));
      allowed = std::max(allowed, std::abs(static_cast<double>(low[i]) - want));
      const double off = std::abs(static_cast<double>(got.at(i, c.spec.out)) - want);
      error = std::isnan(off) ? std::numeric_limits<double>::infinity() : std::max(error, off);
    }
    EXPECT_LE(error, factor * allowed + 2 * unit_of(c.spec.out) * largest) << "row " << row;
  }
}

}  // namespace kvpool::kernels::test
