// What would make a model fit: every suggestion is planned before it is made.
#include <algorithm>
#include <cmath>

#include "tools/plan/planner.hpp"
#include "tools/plan/report_text.hpp"

namespace kvpool::tools {
namespace {

constexpr std::int64_t kMostRanks = 64;

bool fits(const ModelFacts& facts, const PlanRequest& request) {
  const auto report = plan_model(facts, request);
  return report && report->fits;
}

PlanRequest with_fp8(PlanRequest request) {
  request.shard.kv_dtype = KvDType::fp8;
  return request;
}

// Given weights are those of one rank; more ranks share them.
PlanRequest with_ranks(PlanRequest request, std::int64_t ranks) {
  if (request.weights) {
    request.weights = static_cast<std::int64_t>(
        std::ceil(static_cast<double>(*request.weights) * static_cast<double>(request.shard.tensor_parallel) /
                  static_cast<double>(ranks)));
  }
  request.shard.tensor_parallel = ranks;
  return request;
}

std::optional<std::int64_t> memory_that_fits(const ModelFacts& facts, PlanRequest request, std::int64_t missing) {
  const double factor = 1.0 / request.utilization;
  const double memory = static_cast<double>(request.gpu_memory) + std::ceil(static_cast<double>(missing) * factor);
  if (!(memory < 4.0e18)) return std::nullopt;
  request.gpu_memory = static_cast<std::int64_t>(memory);
  // The limit is rounded; a few bytes more than computed may be needed.
  for (int attempt = 0; attempt < 4; ++attempt) {
    if (fits(facts, request)) return request.gpu_memory;
    request.gpu_memory += std::int64_t{1} << (4 * attempt + 8);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> remedies(const ModelFacts& facts, const PlanRequest& request, const PlanReport& report) {
  std::vector<std::string> found;
  if (report.fits) return found;
  if (report.max_model_len_fit > 0) {
    found.push_back("--max-model-len " + std::to_string(report.max_model_len_fit) + " fits");
  }
  const bool quantised =
      request.shard.kv_dtype == KvDType::fp8 || request.shard.kv_dtype == KvDType::fp8_per_token_head;
  if (!quantised) {
    const auto smaller = plan_model(facts, with_fp8(request));
    if (smaller && smaller->fits) {
      found.emplace_back("--kv-dtype fp8 fits");
    } else if (smaller && smaller->max_model_len_fit > report.max_model_len_fit) {
      found.push_back("--kv-dtype fp8 with --max-model-len " + std::to_string(smaller->max_model_len_fit) + " fits");
    }
  }
  for (std::int64_t ranks = request.shard.tensor_parallel * 2; ranks <= kMostRanks; ranks *= 2) {
    if (!fits(facts, with_ranks(request, ranks))) continue;
    found.push_back("--tp " + std::to_string(ranks) + " fits");
    break;
  }
  if (const auto memory = memory_that_fits(facts, request, report.missing_bytes)) {
    found.push_back("--gpu-memory " + std::to_string(*memory) + " (" + bytes_text(*memory) + ") fits, " +
                    bytes_text(*memory - request.gpu_memory) + " more a GPU");
  }
  return found;
}

}  // namespace kvpool::tools
