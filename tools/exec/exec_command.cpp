// kvpool exec: drive the manager with an op script, compare the answers.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/cli/json_output.hpp"
#include "tools/cli/progress.hpp"
#include "tools/exec/script_runner.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

constexpr const char* kExample = R"(Example:
  kvpool exec --check --answers walkthrough.jsonl
compares every answer of the script with the "expect" beside it, prints the answers, and ends with status 1 and
"walkthrough.jsonl:LINE: FIELD: expected X, got Y" at the first difference.)";

struct ExecOptions {
  std::string script;
  bool check = false;
  bool answers = false;
  bool json = false;
  unsigned threads = 1;
};

// With --json the answers become a list inside the one object, written as they come.
class Output {
 public:
  explicit Output(const ExecOptions& options) : options_(options) {
    if (options_.json) {
      fmt::print("{{\"script\":{}", to_text(options_.script));
      if (options_.answers) {
        fmt::print(",\"answers\":[");
      }
    }
  }

  void answer(std::uint64_t line, const std::string& op, const Json& value) {
    if (options_.json) {
      fmt::print("{}{}", first_ ? "" : ",", to_text(Json{{"line", line}, {"op", op}, {"answer", value}}));
      first_ = false;
    } else {
      fmt::print("{:>6} {:<28} {}\n", line, op, to_text(value));
    }
  }

  void finish(const ScriptResult& result) const {
    if (!result.message.empty()) {
      std::fflush(stdout);
      fmt::print(stderr, "{}\n", result.message);
    }
    if (!options_.json) {
      fmt::print("{}: {} operations ({} refused), {} answers checked, {} mismatches{}{}\n", options_.script, result.ops,
                 result.refused, result.checked, result.mismatches, result.interrupted ? ", interrupted" : "",
                 result.exit_status == kExitOk ? ", invariants hold" : "");
      return;
    }
    fmt::print("{},\"ops\":{},\"refused\":{},\"checked\":{},\"mismatches\":{}", options_.answers ? "]" : "", result.ops,
               result.refused, result.checked, result.mismatches);
    if (!result.message.empty()) {
      fmt::print(",\"message\":{}", to_text(result.message));
    }
    fmt::print("{}}}\n", result.interrupted ? ",\"interrupted\":true" : "");
  }

 private:
  const ExecOptions& options_;
  bool first_ = true;
};

int run(const ExecOptions& options) {
  const InterruptGuard guard;
  Progress progress("exec", "operations", 0);
  Output output(options);
  ScriptOptions script_options;
  script_options.check = options.check;
  script_options.threads = options.threads;
  script_options.answer_sink = [&](std::uint64_t line, const std::string& op, const Json& value) {
    progress.advance();
    if (options.answers) {
      output.answer(line, op, value);
    }
  };
  ScriptResult result;
  try {
    InputFile script(options.script);
    result = run_script(script, script_options);
  } catch (const InputError& error) {
    result.exit_status = kExitBadInput;
    result.message = error.what();
  }
  output.finish(result);
  return result.exit_status;
}

}  // namespace

void add_exec_command(CLI::App& app, int& exit_status);

void add_exec_command(CLI::App& app, int& exit_status) {
  auto* command = app.add_subcommand("exec", "Run an op script and compare its answers");
  auto options = std::make_shared<ExecOptions>();
  command->add_option("SCRIPT", options->script, "Op script, JSON Lines, plain or gzip")->required();
  command->add_flag("--check", options->check, "Compare every answer with its \"expect\"");
  command->add_option("--threads", options->threads, "Threads for the script's lanes")
      ->check(CLI::Range(1U, 256U))
      ->capture_default_str();
  command->add_flag("--answers", options->answers, "Print the answer of each operation");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->footer(kExample);
  command->callback([options, &exit_status] { exit_status = run(*options); });
}

}  // namespace kvpool::tools
