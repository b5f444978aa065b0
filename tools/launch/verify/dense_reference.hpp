// The whole model in double precision, without pages, blocks, batches or ranks: what attention must come to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kvpool/prefix/block_hasher.hpp"
#include "tools/launch/model/model_config.hpp"

namespace kvpool::launch {

/// Results of the last `rows` tokens.
struct DenseResult {
  std::vector<double> heads;   ///< [rows][layers][query heads][head size]
  std::vector<double> hidden;  ///< [rows][hidden size]
};

/// Weights of all heads, converted once. Immutable after construction, safe to use from many threads.
class DenseReference {
 public:
  explicit DenseReference(const ModelConfig& config);

  /// Precondition: 1 <= rows <= tokens.size(). O(tokens * weights + tokens² * heads) per layer.
  [[nodiscard]] DenseResult run(std::span<const TokenId> tokens, std::size_t rows) const;

 private:
  struct Layer {
    std::vector<double> query, key, value, output;  ///< [in][out]
  };
  void attend(std::int64_t layer, std::span<const double> query, std::span<const double> keys,
              std::span<const double> values, std::int64_t position, std::span<double> out) const;

  ModelConfig config_;
  std::vector<Layer> layers_;
};

/// |a - b| / |b| over all elements; |a| when b is zero.
[[nodiscard]] double relative_l2(std::span<const float> a, std::span<const double> b);

}  // namespace kvpool::launch
