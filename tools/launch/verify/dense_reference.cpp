#include "tools/launch/verify/dense_reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tools/launch/model/tiny_model.hpp"

namespace kvpool::launch {
namespace {

constexpr double kEpsilon = 1e-6;

/// y[columns] = x[rows] times matrix [rows][columns].
void multiply(std::span<const double> x, const std::vector<double>& matrix, std::span<double> y) {
  std::fill(y.begin(), y.end(), 0.0);
  const double* row = matrix.data();
  for (const double factor : x) {
    for (std::size_t column = 0; column < y.size(); ++column) y[column] += factor * row[column];
    row += y.size();
  }
}

void normalise(std::span<const double> x, std::span<double> y) {
  double sum = 0;
  for (const double value : x) sum += value * value;
  const double scale = 1.0 / std::sqrt(sum / static_cast<double>(x.size()) + kEpsilon);
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale;
}

/// As the cache stores it: K and V are compared on what was written, not on what was meant.
double as_stored(double value, DType type) {
  if (type != DType::bfloat16) return value;
  const auto single = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(single);
  bits += 0x7fffU + ((bits >> 16U) & 1U);
  return static_cast<double>(std::bit_cast<float>(bits & 0xffff0000U));
}

}  // namespace

DenseReference::DenseReference(const ModelConfig& config) : config_(config) {
  const WeightSource source(config);
  const std::int64_t queries = config.num_query_heads * config.head_size;
  const std::int64_t keys = config.num_kv_heads * config.head_size;
  const auto fill = [](std::int64_t rows, std::int64_t columns, auto element) {
    std::vector<double> matrix;
    matrix.reserve(static_cast<std::size_t>(rows * columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        matrix.push_back(static_cast<double>(element(row, column)));
      }
    }
    return matrix;
  };
  for (std::int64_t l = 0; l < config.num_layers; ++l) {
    Layer layer;
    layer.query = fill(config.hidden_size, queries, [&](auto r, auto c) { return source.query(l, r, c); });
    layer.key = fill(config.hidden_size, keys, [&](auto r, auto c) { return source.key(l, r, c); });
    layer.value = fill(config.hidden_size, keys, [&](auto r, auto c) { return source.value(l, r, c); });
    layer.output = fill(queries, config.hidden_size, [&](auto r, auto c) { return source.output(l, r, c); });
    layers_.push_back(std::move(layer));
  }
}

void DenseReference::attend(std::int64_t layer, std::span<const double> query, std::span<const double> keys,
                            std::span<const double> values, std::int64_t position, std::span<double> out) const {
  const std::int64_t size = config_.head_size;
  const std::int64_t width = config_.num_kv_heads * size;
  const std::int64_t group = config_.num_query_heads / config_.num_kv_heads;
  const std::int64_t window = config_.sliding_windows[static_cast<std::size_t>(layer)];
  const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0;
  const double scale = 1.0 / std::sqrt(static_cast<double>(size));
  std::vector<double> weights(static_cast<std::size_t>(position + 1 - first));
  for (std::int64_t head = 0; head < config_.num_query_heads; ++head) {
    const double* q = query.data() + head * size;
    const std::int64_t column = head / group * size;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t j = first; j <= position; ++j) {
      const double* k = keys.data() + j * width + column;
      double sum = 0;
      for (std::int64_t d = 0; d < size; ++d) sum += q[d] * k[d];
      weights[static_cast<std::size_t>(j - first)] = sum * scale;
      largest = std::max(largest, sum * scale);
    }
    double* o = out.data() + head * size;
    std::fill_n(o, size, 0.0);
    double total = 0;
    for (std::int64_t j = first; j <= position; ++j) {
      const double weight = std::exp(weights[static_cast<std::size_t>(j - first)] - largest);
      const double* v = values.data() + j * width + column;
      total += weight;
      for (std::int64_t d = 0; d < size; ++d) o[d] += weight * v[d];
    }
    for (std::int64_t d = 0; d < size; ++d) o[d] /= total;
  }
}

DenseResult DenseReference::run(std::span<const TokenId> tokens, std::size_t rows) const {
  const std::size_t count = tokens.size();
  const auto hidden = static_cast<std::size_t>(config_.hidden_size);
  const auto queries = static_cast<std::size_t>(config_.num_query_heads * config_.head_size);
  const auto keys = static_cast<std::size_t>(config_.num_kv_heads * config_.head_size);
  const WeightSource source(config_);
  std::vector<double> state(count * hidden);
  std::vector<float> embedding(hidden);
  for (std::size_t i = 0; i < count; ++i) {
    source.embed(tokens[i], static_cast<std::int64_t>(i), embedding);
    std::copy(embedding.begin(), embedding.end(), state.begin() + static_cast<std::ptrdiff_t>(i * hidden));
  }
  DenseResult result;
  result.heads.resize(rows * layers_.size() * queries);
  std::vector<double> normal(hidden), q(queries), k(count * keys), v(count * keys), attention(queries), sum(hidden);
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const bool last = l + 1 == layers_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::span<double> row(state.data() + i * hidden, hidden);
      const std::span<double> key(k.data() + i * keys, keys);
      const std::span<double> value(v.data() + i * keys, keys);
      normalise(row, normal);
      multiply(normal, layers_[l].key, key);
      multiply(normal, layers_[l].value, value);
      for (double& element : key) element = as_stored(element, config_.kv_dtype);
      for (double& element : value) element = as_stored(element, config_.kv_dtype);
      // After the last layer only the asked rows matter.
      if (last && i + rows < count) continue;
      multiply(normal, layers_[l].query, q);
      attend(static_cast<std::int64_t>(l), q, k, v, static_cast<std::int64_t>(i), attention);
      if (i + rows >= count) {
        const std::size_t place = ((i + rows - count) * layers_.size() + l) * queries;
        std::copy(attention.begin(), attention.end(), result.heads.begin() + static_cast<std::ptrdiff_t>(place));
      }
      multiply(attention, layers_[l].output, sum);
      for (std::size_t d = 0; d < hidden; ++d) row[d] += sum[d];
    }
  }
  result.hidden.assign(state.end() - static_cast<std::ptrdiff_t>(rows * hidden), state.end());
  return result;
}

double relative_l2(std::span<const float> a, std::span<const double> b) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double delta = static_cast<double>(a[i]) - b[i];
    difference += delta * delta;
    norm += b[i] * b[i];
  }
  return norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace kvpool::launch
