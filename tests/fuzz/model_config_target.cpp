#include <cmath>
#include <map>
#include <string>

#include "require.hpp"
#include "targets.hpp"
#include "tools/plan/config_reader.hpp"
#include "tools/plan/planner.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool::fuzz {
namespace {

using namespace kvpool::tools;

void check(const PlanReport& report, const PlanRequest& request) {
  std::map<std::int64_t, std::int64_t> stages;
  std::int64_t sum = 0;
  for (const LedgerEntry& entry : report.ledger) {
    require(!entry.name.empty(), "a part of the ledger has a name");
    stages[entry.stage] += entry.bytes;
    sum += entry.bytes;
  }
  require(sum == report.ledger_bytes, "the ledger adds up");
  for (const auto& [stage, bytes] : stages) {
    require(bytes == request.gpu_memory, "a stage accounts for every byte of its GPU");
  }
  require(report.num_blocks >= 0 && report.num_tokens >= 0 && report.missing_bytes >= 0, "counts are not negative");
  require(std::isfinite(report.max_concurrency) && std::isfinite(report.bytes_per_token), "ratios are finite");
  require(report.max_model_len_fit >= 0, "the longest length is not negative");
}

}  // namespace

void fuzz_model_config(std::span<const std::uint8_t> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  try {
    const ModelFacts facts = parse_model_config("config.json", text);
    for (const std::int64_t gpus : {1, 8}) {
      PlanRequest request;
      request.gpu_memory = std::int64_t{80} << 30;
      request.shard.tensor_parallel = gpus;
      const auto report = plan_model(facts, request);
      if (report) {
        check(*report, request);
      } else {
        require(!report.error().message.empty(), "a refusal says what is wrong");
      }
    }
  } catch (const InputError& error) {
    require(!std::string_view(error.what()).empty(), "a refusal says what is wrong");
  }
}

}  // namespace kvpool::fuzz
