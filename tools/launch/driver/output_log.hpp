// What the ranks computed, request by request: the digest of everything, and the samples that are verified.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/launch/driver/ordered_digest.hpp"
#include "tools/launch/rank/rank_step.hpp"
#include "tools/launch/step/step_message.hpp"

namespace kvpool::launch {

/// Results of one request's output tokens, in token order.
struct RequestOutputs {
  bool finished = false;
  std::int64_t rows = 0;
  std::vector<float> heads;   ///< [rows][layers][query heads][head size]
  std::vector<float> hidden;  ///< [rows][hidden size]
};

/// The digest covers, per request in order of index and per output token, the gathered attention outputs of all
/// layers and heads and then the final hidden state. Not thread-safe.
class OutputLog {
 public:
  /// `samples`: indices of the requests whose outputs are kept.
  OutputLog(std::int64_t num_requests, const std::vector<std::int64_t>& samples);

  /// Results of one step, in the order of its sequences.
  void add(const StepMessage& step, const GatheredOutputs& outputs);
  /// No more outputs come for the request.
  void finish(std::int64_t request);

  [[nodiscard]] std::string digest() { return digest_.finish(); }
  [[nodiscard]] const std::map<std::int64_t, RequestOutputs>& samples() const noexcept { return samples_; }

 private:
  OrderedDigest digest_;
  std::map<std::int64_t, RequestOutputs> samples_;
};

}  // namespace kvpool::launch
