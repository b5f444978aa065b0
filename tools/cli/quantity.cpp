#include "tools/cli/quantity.hpp"

#include <fmt/core.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

namespace kvpool::tools {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKibi = 1024.0;
constexpr double kKilo = 1000.0;
constexpr std::array<Unit, 10> kSizeUnits{{{"", 1.0},
                                           {"b", 1.0},
                                           {"kib", kKibi},
                                           {"mib", kKibi* kKibi},
                                           {"gib", kKibi* kKibi* kKibi},
                                           {"tib", kKibi* kKibi* kKibi* kKibi},
                                           {"kb", kKilo},
                                           {"mb", kKilo* kKilo},
                                           {"gb", kKilo* kKilo* kKilo},
                                           {"tb", kKilo* kKilo* kKilo* kKilo}}};
constexpr std::array<Unit, 6> kTimeUnits{
    {{"ns", 1.0}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"h", 3600e9}}};
constexpr double kMaxBytes = 9223372036854774784.0;  // the largest double below 2^63
constexpr double kMaxNanoseconds = 10.0 * 365 * 24 * 3600e9;

/// Number and unit of `text`; empty when it is no number with at most one decimal point.
struct Split {
  std::string_view number;
  std::string unit;
};

std::optional<Split> split(std::string_view text) {
  std::size_t end = 0;
  std::size_t digits = 0;
  std::size_t points = 0;
  while (end < text.size() && ((text[end] >= '0' && text[end] <= '9') || text[end] == '.')) {
    (text[end] == '.' ? points : digits) += 1;
    ++end;
  }
  if (digits == 0 || points > 1) {
    return std::nullopt;
  }
  Split result{text.substr(0, end), {}};
  if (end < text.size() && text[end] == ' ') {
    ++end;
  }
  for (const char c : text.substr(end)) {
    result.unit.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  return result;
}

template <std::size_t N>
std::optional<double> factor_of(const std::array<Unit, N>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) {
      return unit.factor;
    }
  }
  return std::nullopt;
}

std::optional<double> to_double(std::string_view number) {
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) {
    return std::nullopt;
  }
  return value;
}

Error bad(std::string_view what, std::string_view text, std::string_view why) {
  return {ErrorCode::invalid_argument, fmt::format("{} '{}' {}", what, text, why)};
}

/// An option whose text `parse` turns into a Result; what it refuses is a usage error.
template <class Value, class Parse>
CLI::Option* add_parsed_option(CLI::App& app, const std::string& name, Value& value, const char* type,
                               const std::string& description, Parse parse) {
  return app
      .add_option_function<std::string>(
          name,
          [name, &value, parse](const std::string& text) {
            auto parsed = parse(text);
            if (!parsed) {
              throw CLI::ValidationError(name, parsed.error().message);
            }
            value = *parsed;
          },
          description)
      ->type_name(type);
}

}  // namespace

Result<std::int64_t> parse_size(std::string_view text) {
  const auto parts = split(text);
  if (!parts) {
    return bad("size", text, "is not a number with an optional unit, as in 80GiB");
  }
  const auto factor = factor_of(kSizeUnits, parts->unit);
  if (!factor) {
    return bad("size", text, "has an unknown unit; known are B, KiB, MiB, GiB, TiB, KB, MB, GB, TB");
  }
  std::int64_t whole = 0;  // exact where a double would round
  const auto [end, error] = std::from_chars(parts->number.data(), parts->number.data() + parts->number.size(), whole);
  if (*factor == 1.0) {
    if (error != std::errc() || end != parts->number.data() + parts->number.size()) {
      return bad("size", text, "is not a whole number of bytes below 2^63");
    }
    return whole;
  }
  const auto number = to_double(parts->number);
  if (!number || *number * *factor > kMaxBytes) {
    return bad("size", text, "is beyond 2^63 bytes");
  }
  return static_cast<std::int64_t>(std::floor(*number * *factor));
}

Result<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  const auto parts = split(text);
  if (!parts) {
    return bad("duration", text, "is not a number with a unit, as in 500ms");
  }
  const auto number = to_double(parts->number);
  if (!number) {
    return bad("duration", text, "is not a number with a unit, as in 500ms");
  }
  if (parts->unit.empty() && *number == 0) {
    return std::chrono::nanoseconds{0};
  }
  const auto factor = factor_of(kTimeUnits, parts->unit);
  if (!factor) {
    return bad("duration", text, "needs one of the units ns, us, ms, s, m, h");
  }
  if (*number * *factor > kMaxNanoseconds) {
    return bad("duration", text, "is longer than ten years");
  }
  return std::chrono::nanoseconds{static_cast<std::int64_t>(*number * *factor)};
}

Result<std::chrono::nanoseconds> parse_seconds(std::string_view text) {
  const bool plain = text.find_first_not_of("0123456789.") == std::string_view::npos;
  return parse_duration(plain ? std::string(text) + "s" : std::string(text));
}

CLI::Option* add_size_option(CLI::App& app, const std::string& name, std::int64_t& bytes,
                             const std::string& description) {
  return add_parsed_option(app, name, bytes, "SIZE", description, parse_size);
}

CLI::Option* add_duration_option(CLI::App& app, const std::string& name, std::chrono::nanoseconds& duration,
                                 const std::string& description) {
  return add_parsed_option(app, name, duration, "DURATION", description, parse_duration);
}

CLI::Option* add_seconds_option(CLI::App& app, const std::string& name, std::chrono::nanoseconds& duration,
                                std::chrono::nanoseconds least, std::chrono::nanoseconds most,
                                const std::string& description) {
  const auto parse_within = [least, most](const std::string& text) -> Result<std::chrono::nanoseconds> {
    auto parsed = parse_seconds(text);
    if (parsed && (*parsed < least || *parsed > most)) {
      return Error{ErrorCode::invalid_argument, fmt::format("'{}' is not between {:.10g}s and {:.10g}s", text,
                                                            std::chrono::duration<double>(least).count(),
                                                            std::chrono::duration<double>(most).count())};
    }
    return parsed;
  };
  return add_parsed_option(app, name, duration, "DURATION", description, parse_within);
}

}  // namespace kvpool::tools
