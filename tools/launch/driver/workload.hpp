// A trace as work for the scheduler: scaled lengths, and tokens that repeat exactly where the trace repeats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "tools/scheduler/work.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::launch {

/// Id traces: token j of a prompt is id[j / K] * K + j % K, K = tokens_per_id; tokens without an id and all
/// outputs get numbers that no other token of the run has. Token traces: as written. Immutable, thread-safe.
class Workload final : public scheduler::TokenSource {
 public:
  static constexpr std::int64_t kMaxTokensPerId = 1 << 16;

  /// Errors: bad_input naming `name`, the request and the value (empty prompt, a length or an id that the scaling
  /// takes out of range).
  [[nodiscard]] static Result<Workload> create(tools::Trace trace, const std::string& name, std::int64_t tokens_per_id);
  Workload(Workload&& other) noexcept;

  [[nodiscard]] const std::vector<scheduler::WorkItem>& items() const noexcept { return items_; }
  /// Longest prompt with its output, in tokens.
  [[nodiscard]] std::int64_t max_length() const noexcept { return max_length_; }

  [[nodiscard]] std::vector<TokenId> prompt(std::int64_t index) const override;
  [[nodiscard]] TokenId output(std::int64_t index, std::int64_t position) const override;

 private:
  Workload() = default;
  [[nodiscard]] Status scale(const std::string& name);

  tools::Trace trace_;
  std::int64_t tokens_per_id_ = 0;
  std::vector<scheduler::WorkItem> items_;
  std::vector<TokenId> first_unique_;  ///< per request: start of its own numbers
  std::int64_t max_length_ = 0;
};

}  // namespace kvpool::launch
