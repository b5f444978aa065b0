#include <algorithm>
#include <cctype>
#include <string>

#include "require.hpp"
#include "targets.hpp"
#include "tools/cli/exit_status.hpp"
#include "tools/exec/script_runner.hpp"
#include "tools/trace/input_file.hpp"

namespace kvpool::fuzz {
namespace {

// Numbers of 6 to 15 digits are legal sizes of pools and prompts: they cost seconds and find nothing new.
bool is_costly(std::span<const std::uint8_t> bytes) {
  std::size_t digits = 0;
  const auto costly = [](std::size_t count) { return count >= 6 && count <= 15; };
  for (const std::uint8_t byte : bytes) {
    if (std::isdigit(byte) != 0) {
      ++digits;
    } else {
      if (costly(digits)) {
        return true;
      }
      digits = 0;
    }
  }
  return costly(digits);
}

}  // namespace

void fuzz_script(std::span<const std::uint8_t> bytes) {
  if (is_costly(bytes)) {
    return;
  }
  using namespace kvpool::tools;
  InputFile file("script", {bytes.begin(), bytes.end()});
  std::uint64_t answers = 0;
  ScriptOptions options;
  options.answer_sink = [&](std::uint64_t, const std::string&, const Json& answer) {
    ++answers;
    require(answer.is_object(), "an answer is an object");
  };
  const ScriptResult result = run_script(file, options);
  require(result.exit_status == kExitOk || result.exit_status == kExitBadInput,
          "without expectations a script ends well or is refused: " + result.message);
  require((result.exit_status == kExitOk) == result.message.empty(), "a refusal says what is wrong");
  require(result.refused <= result.ops && answers <= result.ops, "operations are counted once");
}

}  // namespace kvpool::fuzz
