#include "tools/launch/driver/output_log.hpp"

#include <span>

namespace kvpool::launch {

OutputLog::OutputLog(std::int64_t num_requests, const std::vector<std::int64_t>& samples) : digest_(num_requests) {
  for (const std::int64_t request : samples) samples_[request] = {};
}

void OutputLog::add(const StepMessage& step, const GatheredOutputs& outputs) {
  if (outputs.rows == 0) return;
  const std::size_t heads = outputs.heads.size() / static_cast<std::size_t>(outputs.rows);
  const std::size_t hidden = outputs.hidden.size() / static_cast<std::size_t>(outputs.rows);
  std::size_t row = 0;
  for (const StepSequence& sequence : step.sequences) {
    const auto request = static_cast<std::int64_t>(sequence.request);
    for (std::uint32_t i = 0; i < sequence.num_outputs; ++i, ++row) {
      const std::span<const float> attention(outputs.heads.data() + row * heads, heads);
      const std::span<const float> state(outputs.hidden.data() + row * hidden, hidden);
      digest_.add(request, std::as_bytes(attention));
      digest_.add(request, std::as_bytes(state));
      const auto sample = samples_.find(request);
      if (sample == samples_.end()) continue;
      ++sample->second.rows;
      sample->second.heads.insert(sample->second.heads.end(), attention.begin(), attention.end());
      sample->second.hidden.insert(sample->second.hidden.end(), state.begin(), state.end());
    }
  }
}

void OutputLog::finish(std::int64_t request) {
  digest_.close(request);
  if (const auto sample = samples_.find(request); sample != samples_.end()) sample->second.finished = true;
}

}  // namespace kvpool::launch
