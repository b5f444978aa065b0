// Model configurations of tests/data/models, planned.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tools/plan/config_reader.hpp"
#include "tools/plan/model_layers.hpp"
#include "tools/plan/planner.hpp"

namespace kvpool::test {

inline constexpr std::int64_t kGiB = std::int64_t{1} << 30;

inline tools::ModelFacts model_facts(const std::string& name) {
  return tools::read_model_config(std::string(KVPOOL_TEST_DATA) + "/models/" + name + ".json");
}

inline tools::ModelLayers layers_of(const tools::ModelFacts& facts, const tools::ShardOptions& options = {}) {
  auto layers = tools::model_layers(facts, options);
  EXPECT_TRUE(layers.ok()) << (layers.ok() ? "" : layers.error().message);
  return layers ? std::move(*layers) : tools::ModelLayers{};
}

inline tools::PlanReport report_of(const tools::ModelFacts& facts, const tools::PlanRequest& request) {
  auto report = tools::plan_model(facts, request);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
  return report ? std::move(*report) : tools::PlanReport{};
}

inline tools::PlanRequest gpu(std::int64_t gibibytes, std::int64_t tensor_parallel = 1) {
  tools::PlanRequest request;
  request.gpu_memory = gibibytes * kGiB;
  request.shard.tensor_parallel = tensor_parallel;
  return request;
}

}  // namespace kvpool::test
