#include "tools/launch/model/tiny_model.hpp"

#include <array>
#include <cmath>

#include "tools/launch/model/counter_random.hpp"

namespace kvpool::launch {
namespace {

enum WeightKind : std::uint64_t { kind_query = 0, kind_key, kind_value, kind_output, num_kinds };
constexpr std::uint64_t kTokenStream = ~std::uint64_t{0};
constexpr std::uint64_t kPositionStream = ~std::uint64_t{1};
// Sharper than 1/sqrt(head size) alone would give: keys must differ in weight for errors to show.
constexpr float kQueryGain = 2.0F;
constexpr float kEpsilon = 1e-6F;

}  // namespace

float WeightSource::element(std::uint64_t kind, std::int64_t layer, std::int64_t row, std::int64_t column,
                            std::int64_t width, std::int64_t fan_in) const noexcept {
  const CounterRandom random(config_.seed, static_cast<std::uint64_t>(layer) * num_kinds + kind);
  // Uniform in [-1, 1) has variance 1/3.
  const float scale = std::sqrt(3.0F / static_cast<float>(fan_in));
  return scale * random.uniform(static_cast<std::uint64_t>(row * width + column));
}

float WeightSource::query(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept {
  return kQueryGain *
         element(kind_query, layer, row, column, config_.num_query_heads * config_.head_size, config_.hidden_size);
}

float WeightSource::key(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept {
  return element(kind_key, layer, row, column, config_.num_kv_heads * config_.head_size, config_.hidden_size);
}

float WeightSource::value(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept {
  return element(kind_value, layer, row, column, config_.num_kv_heads * config_.head_size, config_.hidden_size);
}

float WeightSource::output(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept {
  return element(kind_output, layer, row, column, config_.hidden_size, config_.num_query_heads * config_.head_size);
}

void WeightSource::embed(TokenId token, std::int64_t position, std::span<float> out) const noexcept {
  const CounterRandom tokens(config_.seed, kTokenStream ^ mix_bits(static_cast<std::uint64_t>(token)));
  const CounterRandom positions(config_.seed, kPositionStream ^ mix_bits(static_cast<std::uint64_t>(position)));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = tokens.uniform(i) + 0.5F * positions.uniform(i);
}

TinyModel::TinyModel(const ModelConfig& config, const HeadSlice& slice, RowProductTier tier, CountingAllocator* counter)
    : config_(config), slice_(slice), tier_(tier), source_(config) {
  const std::int64_t hidden = config_.hidden_size;
  const std::int64_t head = config_.head_size;
  const std::int64_t first_query = slice_.first_query_head * head;
  const std::int64_t first_kv = slice_.first_kv_head * head;
  for (std::int64_t l = 0; l < config_.num_layers; ++l) {
    Layer layer{PackedMatrix(hidden, qkv_width(), counter), PackedMatrix(query_width(), hidden, counter)};
    for (std::int64_t row = 0; row < hidden; ++row) {
      for (std::int64_t c = 0; c < query_width(); ++c) layer.qkv.at(row, c) = source_.query(l, row, first_query + c);
      for (std::int64_t c = 0; c < kv_width(); ++c) {
        layer.qkv.at(row, query_width() + c) = source_.key(l, row, first_kv + c);
        layer.qkv.at(row, query_width() + kv_width() + c) = source_.value(l, row, first_kv + c);
      }
    }
    for (std::int64_t row = 0; row < query_width(); ++row) {
      for (std::int64_t c = 0; c < hidden; ++c) layer.output.at(row, c) = source_.output(l, first_query + row, c);
    }
    layers_.push_back(std::move(layer));
  }
}

std::int64_t TinyModel::weight_bytes() const noexcept {
  std::int64_t bytes = 0;
  for (const Layer& layer : layers_) bytes += layer.qkv.size_bytes() + layer.output.size_bytes();
  return bytes;
}

void TinyModel::embed(std::span<const TokenId> tokens, std::span<const std::int64_t> positions,
                      float* hidden) const noexcept {
  const auto width = static_cast<std::size_t>(config_.hidden_size);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    source_.embed(tokens[i], positions[i], {hidden + i * width, width});
  }
}

void TinyModel::project_qkv(std::int64_t layer, const float* hidden, std::int64_t rows, float* scratch,
                            float* qkv) const noexcept {
  const auto width = static_cast<std::size_t>(config_.hidden_size);
  for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
    rms_norm({hidden + r * width, width}, {scratch + r * width, width});
  }
  RowProductArguments arguments;
  arguments.x = scratch;
  arguments.rows = rows;
  arguments.x_stride = config_.hidden_size;
  arguments.matrix = &layers_[static_cast<std::size_t>(layer)].qkv;
  arguments.segment = config_.hidden_size;
  arguments.y = qkv;
  arguments.y_stride = qkv_width();
  row_product(tier_, arguments);
}

void TinyModel::project_output(std::int64_t layer, const float* attention, std::int64_t rows,
                               float* partial) const noexcept {
  RowProductArguments arguments;
  arguments.x = attention;
  arguments.rows = rows;
  arguments.x_stride = query_width();
  arguments.matrix = &layers_[static_cast<std::size_t>(layer)].output;
  arguments.segment = config_.head_size;
  arguments.y = partial;
  arguments.y_stride = config_.hidden_size;
  row_product(tier_, arguments);
}

void TinyModel::add_residual(const float* sum, std::int64_t rows, float* hidden) const noexcept {
  const std::int64_t count = rows * config_.hidden_size;
  for (std::int64_t i = 0; i < count; ++i) hidden[i] += sum[i];
}

void rms_norm(std::span<const float> x, std::span<float> y) noexcept {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> squares{};
  std::size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) squares[lane] += x[i + lane] * x[i + lane];
  }
  for (std::size_t lane = 0; i < x.size(); ++i, ++lane) squares[lane] += x[i] * x[i];
  float sum = 0.0F;
  for (const float square : squares) sum += square;
  const float scale = 1.0F / std::sqrt(sum / static_cast<float>(x.size()) + kEpsilon);
  for (std::size_t k = 0; k < x.size(); ++k) y[k] = x[k] * scale;
}

}  // namespace kvpool::launch
