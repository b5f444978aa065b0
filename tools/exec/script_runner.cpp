#include "tools/exec/script_runner.hpp"

#include <fmt/core.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/interrupt.hpp"
#include "tools/exec/comparison.hpp"
#include "tools/exec/lanes.hpp"
#include "tools/exec/script_machine.hpp"
#include "tools/trace/input_error.hpp"
#include "tools/trace/json_line.hpp"
#include "tools/trace/line_reader.hpp"

namespace kvpool::tools {
namespace {

class Runner {
 public:
  Runner(InputFile& script, const ScriptOptions& options) : lines_(script), options_(options) {
    if (options_.threads > 1) {
      lanes_.emplace(options_.threads);
    }
  }

  ScriptResult run() {
    try {
      read_all();
    } catch (const InputError& error) {
      fail(lines_.number(), kExitBadInput, error.what());
    }
    if (lanes_) {
      lanes_->join_all();
    }
    if (result_.interrupted && result_.exit_status == kExitOk) {
      result_.exit_status = kExitInterrupted;
    }
    if (machine_) {
      if (const Status status = machine_->verify(); !status && result_.exit_status != kExitCheckFailed) {
        result_.exit_status = kExitCheckFailed;
        result_.message =
            fmt::format("{}: after line {}: {}", lines_.file_name(), lines_.number(), status.error().message);
      }
    }
    return result_;
  }

 private:
  struct Line {
    std::uint64_t number = 0;
    Json object;
  };

  void read_all() {
    std::string_view text;
    while (!stop_.load(std::memory_order_relaxed) && lines_.next(text)) {
      if (interrupt_requested()) {
        result_.interrupted = true;
        return;
      }
      if (text.find_first_not_of(" \t") == std::string_view::npos) {
        continue;
      }
      auto line =
          std::make_shared<Line>(Line{lines_.number(), parse_json_line(lines_.file_name(), lines_.number(), text)});
      if (!machine_) {
        Fields config(line->object, {lines_.file_name(), line->number});
        machine_.emplace(config);
      } else {
        dispatch(std::move(line));
      }
    }
    if (!machine_) {
      throw InputError(lines_.file_name(), 0, "", "has no configuration line");
    }
  }

  // Lines without a lane, and barriers, wait for all lanes and hold up the lines behind them.
  void dispatch(std::shared_ptr<Line> line) {
    Fields fields(line->object, {lines_.file_name(), line->number});
    const std::string& op = fields.text("op");
    const std::int64_t lane = fields.integer_or("lane", -1, 0);
    if (lanes_ && lane >= 0 && op != "barrier") {
      lanes_->post(static_cast<std::size_t>(lane), [this, line] { carry_out(*line); });
      return;
    }
    if (lanes_) {
      lanes_->join_all();
    }
    carry_out(*line);
  }

  void carry_out(const Line& line) {
    if (stop_.load(std::memory_order_relaxed)) {
      return;
    }
    try {
      Fields fields(line.object, {lines_.file_name(), line.number});
      const std::string& op = fields.text("op");
      (void)fields.has("lane");
      const Json* expected = fields.has("expect") ? &fields.member("expect") : nullptr;
      if (expected != nullptr && !expected->is_object()) {
        fields.refuse("expect", "is not a JSON object", *expected);
      }
      const Answer answer = op == "barrier" ? barrier(fields) : machine_->execute(fields);
      note(line, op, answer, expected);
    } catch (const InputError& error) {
      fail(line.number, kExitBadInput, error.what());
    }
  }

  static Answer barrier(Fields& fields) {
    fields.finish();
    return {Json::object(), false};
  }

  void note(const Line& line, const std::string& op, const Answer& answer, const Json* expected) {
    const bool compare = options_.check && expected != nullptr;
    std::optional<Difference> difference;
    if (compare) {
      difference = compare_answers(*expected, answer.value);
    }
    {
      const std::lock_guard lock(mutex_);
      ++result_.ops;
      result_.refused += answer.refused ? 1U : 0U;
      result_.checked += compare ? 1U : 0U;
      result_.mismatches += difference ? 1U : 0U;
      if (options_.answer_sink) {
        options_.answer_sink(line.number, op, answer.value);
      }
    }
    if (difference) {
      fail(line.number, kExitCheckFailed,
           fmt::format("{}:{}: {}: expected {}, got {}", lines_.file_name(), line.number,
                       difference->field.empty() ? "answer" : difference->field, difference->expected,
                       difference->actual));
    }
  }

  // Lanes may fail at the same time: the earliest line counts.
  void fail(std::uint64_t line, int status, std::string message) {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
    if (failed_line_ == 0 || line < failed_line_) {
      failed_line_ = line;
      result_.exit_status = status;
      result_.message = std::move(message);
    }
  }

  LineReader lines_;
  const ScriptOptions& options_;
  std::optional<ScriptMachine> machine_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  ScriptResult result_;
  std::uint64_t failed_line_ = 0;
  std::optional<Lanes> lanes_;  ///< last: its threads use all of the above
};

}  // namespace

ScriptResult run_script(InputFile& script, const ScriptOptions& options) { return Runner(script, options).run(); }

}  // namespace kvpool::tools
