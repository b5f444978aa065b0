// A small transformer with fixed random weights: one rank's slice of it.
//
// Per layer: hidden -> RMS norm -> q, k, v of the rank's heads -> attention (elsewhere) -> row-parallel output
// projection (a partial sum; the sum over ranks is added to the hidden state). No feed-forward part: what is
// shown is attention over a paged cache. All results are per row and independent of the batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvpool/prefix/block_hasher.hpp"
#include "tools/launch/model/head_slice.hpp"
#include "tools/launch/model/model_config.hpp"
#include "tools/launch/model/row_product.hpp"

namespace kvpool::launch {

/// Elements of the weight matrices, as functions of their coordinates in the whole model.
class WeightSource {
 public:
  explicit WeightSource(const ModelConfig& config) : config_(config) {}

  /// q projection: hidden `row` to element `column` of all query heads; k, v alike over KV heads.
  [[nodiscard]] float query(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept;
  [[nodiscard]] float key(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept;
  [[nodiscard]] float value(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept;
  /// Output projection: element `row` of all query heads to hidden `column`.
  [[nodiscard]] float output(std::int64_t layer, std::int64_t row, std::int64_t column) const noexcept;
  /// Input of the first layer for a token at a position, [hidden_size].
  void embed(TokenId token, std::int64_t position, std::span<float> out) const noexcept;

 private:
  [[nodiscard]] float element(std::uint64_t kind, std::int64_t layer, std::int64_t row, std::int64_t column,
                              std::int64_t width, std::int64_t fan_in) const noexcept;
  ModelConfig config_;
};

class TinyModel {
 public:
  /// `counter` may be null; else it counts the weights and must outlive the model.
  TinyModel(const ModelConfig& config, const HeadSlice& slice, RowProductTier tier,
            CountingAllocator* counter = nullptr);

  [[nodiscard]] const ModelConfig& config() const noexcept { return config_; }
  [[nodiscard]] const HeadSlice& slice() const noexcept { return slice_; }
  [[nodiscard]] std::int64_t query_width() const noexcept { return slice_.num_query_heads * config_.head_size; }
  [[nodiscard]] std::int64_t kv_width() const noexcept { return slice_.num_kv_heads * config_.head_size; }
  /// Elements of one row of project_qkv: q, then k, then v of the rank's heads.
  [[nodiscard]] std::int64_t qkv_width() const noexcept { return query_width() + 2 * kv_width(); }
  [[nodiscard]] std::int64_t weight_bytes() const noexcept;

  /// hidden[i] = embedding of tokens[i] at positions[i]; hidden is [tokens][hidden_size].
  void embed(std::span<const TokenId> tokens, std::span<const std::int64_t> positions, float* hidden) const noexcept;

  /// scratch and qkv are [rows][hidden_size] and [rows][qkv_width()].
  void project_qkv(std::int64_t layer, const float* hidden, std::int64_t rows, float* scratch,
                   float* qkv) const noexcept;

  /// partial = attention [rows][query_width()] times the rank's rows of the output projection: this rank's term
  /// of the sum over ranks, [rows][hidden_size].
  void project_output(std::int64_t layer, const float* attention, std::int64_t rows, float* partial) const noexcept;

  /// hidden += sum, both [rows][hidden_size].
  void add_residual(const float* sum, std::int64_t rows, float* hidden) const noexcept;

 private:
  struct Layer {
    PackedMatrix qkv;
    PackedMatrix output;
  };
  ModelConfig config_;
  HeadSlice slice_;
  RowProductTier tier_;
  WeightSource source_;
  std::vector<Layer> layers_;
};

/// y = x / rms(x) of one row; the order of additions is fixed.
void rms_norm(std::span<const float> x, std::span<float> y) noexcept;

}  // namespace kvpool::launch
