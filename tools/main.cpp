// The program `kvpool`: one subcommand per task. Exit statuses are listed in tools/cli/exit_status.hpp.
#include <CLI/CLI.hpp>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "tools/cli/exit_status.hpp"
#include "tools/cli/subcommands.hpp"

namespace {

/// What CLI11 answers to an unknown word is that a subcommand is required; this names the word and the subcommands.
std::string unknown_word(const CLI::App& app, const std::string& word) {
  std::string message =
      "'" + word + "' is no " + (word.rfind('-', 0) == 0 ? "option" : "subcommand") + "; subcommands:";
  for (const CLI::App* known : app.get_subcommands({})) {
    message += " " + known->get_name();
  }
  return message;
}

int run(int argc, char** argv) {
  using namespace kvpool::tools;
  CLI::App app("kvpool: KV-cache block management for LLM inference, from the command line");
  app.name("kvpool");
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of all subcommands");
  int exit_status = kExitOk;
  for (const AddSubcommand add : subcommands()) {
    add(app, exit_status);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    const std::vector<std::string> words = app.remaining();
    if (app.get_subcommands().empty() && !words.empty()) {
      return fail("", unknown_word(app, words.front()), kExitBadInput);
    }
    app.exit(error);
    return kExitBadInput;
  } catch (const CLI::ParseError& error) {
    const bool asked_for_help = error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success);
    app.exit(error);
    return asked_for_help ? kExitOk : kExitBadInput;
  }
  return exit_status;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::bad_alloc&) {
    return kvpool::tools::fail("", "out of memory", kvpool::tools::kExitEnvironment);
  } catch (const std::exception& error) {
    return kvpool::tools::fail("", error.what(), kvpool::tools::kExitCheckFailed);
  }
}
