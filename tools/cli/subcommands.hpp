// The table of subcommands; its rows come from kvpool_add_subcommand() in the build files.
#pragma once

#include <CLI/CLI.hpp>
#include <span>

namespace kvpool::tools {

/// Adds one subcommand to `app`. Its callback runs the work and leaves the exit status in `exit_status`.
using AddSubcommand = void (*)(CLI::App& app, int& exit_status);

[[nodiscard]] std::span<const AddSubcommand> subcommands() noexcept;

}  // namespace kvpool::tools
