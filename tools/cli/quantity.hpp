// Sizes and durations as people write them: 80GiB, 1.5MB, 60s, 500ms.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvpool/foundation/error.hpp"

namespace kvpool::tools {

/// Bytes. Units: none or B, KiB MiB GiB TiB (powers of 1024), KB MB GB TB (powers of 1000), upper or lower case;
/// a decimal fraction is allowed with a unit and rounded down to whole bytes.
/// Errors: invalid_argument with the text (not a number, negative, unknown unit, beyond 2^63 - 1).
[[nodiscard]] Result<std::int64_t> parse_size(std::string_view text);

/// Units: ns, us, ms, s, m, h; the unit may be left out for 0 only. Errors as above; the limit is 10 years.
[[nodiscard]] Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// A duration as above, or a plain number of seconds.
[[nodiscard]] Result<std::chrono::nanoseconds> parse_seconds(std::string_view text);

/// Options that take such texts; a bad one is a usage error.
CLI::Option* add_size_option(CLI::App& app, const std::string& name, std::int64_t& bytes,
                             const std::string& description);
CLI::Option* add_duration_option(CLI::App& app, const std::string& name, std::chrono::nanoseconds& duration,
                                 const std::string& description);

/// The same for parse_seconds, from `least` to `most`.
CLI::Option* add_seconds_option(CLI::App& app, const std::string& name, std::chrono::nanoseconds& duration,
                                std::chrono::nanoseconds least, std::chrono::nanoseconds most,
                                const std::string& description);

}  // namespace kvpool::tools
