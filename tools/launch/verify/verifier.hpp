// Compares what the ranks computed with what it must be: dense in double precision, and bit by bit with one rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/launch/driver/output_log.hpp"
#include "tools/launch/rank/step_executor.hpp"
#include "tools/scheduler/work.hpp"

namespace kvpool::launch {

struct VerifyReport {
  std::int64_t requests = 0;  ///< compared
  std::int64_t rows = 0;      ///< output tokens compared
  /// Largest relative L2 error over (request, layer, head) and over the final hidden states of a request.
  double max_rel_l2 = 0;
  double limit = 0;           ///< for max_rel_l2
  bool bitwise_equal = true;  ///< attention outputs of all layers and heads; see bitwise_layers
  std::int64_t bitwise_layers = 0;
  std::string worst;  ///< where max_rel_l2 was found, or where bits differ first
  [[nodiscard]] bool passed() const noexcept { return max_rel_l2 <= limit && bitwise_equal; }
};

struct VerifyOptions {
  std::int64_t block_size = 16;
  ExecutorOptions executor;
  /// Layers that must be equal bit by bit: all, or the first only where sums over ranks have another order.
  std::int64_t bitwise_layers = 0;
  /// Asked before every sample: true ends the verification with what was compared so far.
  std::function<bool()> interrupted = {};
};

/// Evenly spread over the requests that produce outputs, at most `count`.
[[nodiscard]] std::vector<std::int64_t> choose_samples(const std::vector<scheduler::WorkItem>& items,
                                                       std::int64_t count);

/// Checks every finished sample. Errors: those of the kernels.
[[nodiscard]] Result<VerifyReport> verify_samples(const ModelConfig& model, const scheduler::TokenSource& source,
                                                  const std::vector<scheduler::WorkItem>& items,
                                                  const std::map<std::int64_t, RequestOutputs>& samples,
                                                  const VerifyOptions& options);

}  // namespace kvpool::launch
