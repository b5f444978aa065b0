// Runs an op script from its first line to its verdict.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tools/cli/json_output.hpp"
#include "tools/trace/input_file.hpp"

namespace kvpool::tools {

/// One operation's answer, for whoever prints them. Calls do not overlap.
using AnswerSink = std::function<void(std::uint64_t line, const std::string& op, const Json& answer)>;

struct ScriptOptions {
  bool check = false;      ///< compare every answer with the `expect` beside it
  unsigned threads = 1;    ///< more than 1: lanes run on that many threads
  AnswerSink answer_sink;  ///< may be empty
};

struct ScriptResult {
  int exit_status = 0;
  std::uint64_t ops = 0;  ///< carried out or refused, the configuration not counted
  std::uint64_t refused = 0;
  std::uint64_t checked = 0;  ///< answers compared
  std::uint64_t mismatches = 0;
  bool interrupted = false;
  std::string message;  ///< what went wrong, with file and line; empty when nothing did
};

/// Reads line by line in bounded memory and stops at the first difference, the first line that cannot be read and on
/// interrupt_requested(). Afterwards the pool's invariants and the block tables are verified, always. Never throws
/// for bad input: the result carries the message.
[[nodiscard]] ScriptResult run_script(InputFile& script, const ScriptOptions& options);

}  // namespace kvpool::tools
