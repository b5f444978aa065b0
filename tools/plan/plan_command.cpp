// kvpool plan: what of a model fits on a GPU, and where every byte goes.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/json_output.hpp"
#include "tools/cli/quantity.hpp"
#include "tools/plan/config_reader.hpp"
#include "tools/plan/planner.hpp"
#include "tools/plan/report_text.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

constexpr const char* kExample = R"(Example:
  kvpool plan config.json --gpu-memory 80GiB --tp 4 --peak 2GiB
prints the KV groups of the model, how many blocks and tokens fit, and a ledger of one GPU's memory. Status 1 and
suggestions that have been checked when not even one request of full length fits.)";

const std::map<std::string, KvDType> kKvDTypes = {
    {"auto", KvDType::automatic}, {"bf16", KvDType::bf16}, {"fp16", KvDType::fp16},
    {"fp32", KvDType::fp32},      {"fp8", KvDType::fp8},   {"fp8-per-token-head", KvDType::fp8_per_token_head}};
const std::map<std::string, MambaCacheMode> kMambaModes = {
    {"none", MambaCacheMode::none}, {"all", MambaCacheMode::all}, {"align", MambaCacheMode::align}};

// The names of a table's rows, as a list for messages.
template <class Value>
std::vector<std::string> names(const std::map<std::string, Value>& table) {
  std::vector<std::string> result;
  for (const auto& [name, value] : table) result.push_back(name);
  return result;
}

struct PlanArguments {
  std::string config;
  PlanRequest request;
  std::string kv_dtype = "auto";
  std::string mamba_mode = "align";
  std::int64_t weights = -1;
  std::int64_t peak = -1;
  std::int64_t max_model_len = 0;
  std::int64_t max_in_flight_tokens = 0;
  bool json = false;
};

PlanRequest request_of(const PlanArguments& arguments) {
  PlanRequest request = arguments.request;
  request.shard.kv_dtype = kKvDTypes.at(arguments.kv_dtype);
  request.shard.mamba_mode = kMambaModes.at(arguments.mamba_mode);
  if (arguments.weights >= 0) request.weights = arguments.weights;
  if (arguments.peak >= 0) request.peak = arguments.peak;
  if (arguments.max_model_len != 0) request.max_model_len = arguments.max_model_len;
  if (arguments.max_in_flight_tokens != 0) request.max_in_flight_tokens = arguments.max_in_flight_tokens;
  return request;
}

int run(const PlanArguments& arguments) {
  const PlanRequest request = request_of(arguments);
  ModelFacts facts;
  try {
    facts = read_model_config(arguments.config);
  } catch (const InputError& error) {
    return fail("plan", error.what(), kExitBadInput);
  }
  const auto report = plan_model(facts, request);
  if (!report) return fail("plan", report.error().message, kExitBadInput);
  for (const std::string& warning : report->warnings) fmt::print(stderr, "kvpool plan: warning: {}\n", warning);
  const auto suggestions = remedies(facts, request, *report);
  if (arguments.json) {
    print_json(plan_json(*report, suggestions));
  } else {
    fmt::print("{}", plan_text(*report, suggestions));
  }
  return report->fits ? kExitOk : kExitCheckFailed;
}

}  // namespace

void add_plan_command(CLI::App& app, int& exit_status);

void add_plan_command(CLI::App& app, int& exit_status) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand("plan", "What of a model's KV cache fits into GPU memory");
  command->footer(kExample);
  command->add_option("CONFIG", arguments->config, "Hugging Face config.json")->required();
  add_size_option(*command, "--gpu-memory", arguments->request.gpu_memory, "Memory of one GPU")->required();
  command->add_option("--utilization", arguments->request.utilization, "Share of it that may be used")
      ->capture_default_str();
  command->add_option("--tp", arguments->request.shard.tensor_parallel, "Tensor-parallel ranks")->capture_default_str();
  command->add_option("--pp", arguments->request.shard.pipeline_parallel, "Pipeline stages")->capture_default_str();
  command->add_option("--block-size", arguments->request.shard.block_size, "Tokens of an attention block")
      ->capture_default_str();
  command->add_option("--kv-dtype", arguments->kv_dtype, "Elements of K and V")
      ->check(CLI::IsMember(names(kKvDTypes)))
      ->capture_default_str();
  command->add_option("--mamba-cache-mode", arguments->mamba_mode, "Which states of recurrent layers are kept")
      ->check(CLI::IsMember(names(kMambaModes)))
      ->capture_default_str();
  command
      ->add_option("--max-model-len", arguments->max_model_len, "Tokens of the longest request; default: the model's")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--max-in-flight-tokens", arguments->max_in_flight_tokens,
                   "Tokens scheduled and not yet processed; default: 8192 per pipeline stage")
      ->check(CLI::PositiveNumber);
  add_size_option(*command, "--weights", arguments->weights, "Weights on one GPU; default: estimated from the shapes");
  add_size_option(*command, "--peak", arguments->peak,
                  "Highest memory for activations on one GPU; default: estimated from the shapes");
  command->add_flag("--json", arguments->json, "One JSON object on stdout");
  command->callback([arguments, &exit_status] { exit_status = run(*arguments); });
}

}  // namespace kvpool::tools
