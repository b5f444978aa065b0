// Mooncake's own trace format: one JSON object per line with an id per 512 prompt tokens.
#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "tools/trace/input_error.hpp"
#include "tools/trace/json_line.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {
namespace {

constexpr std::int64_t kTokensPerId = 512;

class MooncakeLine {
 public:
  explicit MooncakeLine(const LineReader& lines) : lines_(lines) {}

  void read(std::string_view line, Trace& trace) {
    const Json object = parse_json_line(lines_.file_name(), lines_.number(), line);
    if (!object.is_object()) {
      throw InputError(lines_.file_name(), lines_.number(), "", "is not a JSON object", line);
    }
    TraceRequest request;
    request.time_ms = time(member(object, "timestamp"));
    request.input_tokens = integer(member(object, "input_length"), "input_length", kMaxRequestTokens);
    request.output_tokens = integer(member(object, "output_length"), "output_length", kMaxRequestTokens);
    read_ids(member(object, "hash_ids"), (request.input_tokens + kTokensPerId - 1) / kTokensPerId);
    trace.add(request, runs_);
  }

 private:
  const Json& member(const Json& object, const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) {
      throw InputError(lines_.file_name(), lines_.number(), name, "is missing");
    }
    return *found;
  }

  [[noreturn]] void refuse(std::string_view field, std::string_view problem, const Json& value) const {
    throw InputError(lines_.file_name(), lines_.number(), field, problem, to_text(value));
  }

  std::int64_t integer(const Json& value, std::string_view field, std::int64_t high) const {
    if (!value.is_number_integer()) {
      refuse(field, "is not an integer", value);
    }
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= static_cast<std::uint64_t>(high)
                                                 : value.get<std::int64_t>() >= 0;
    if (!fits) {
      refuse(field, fmt::format("is outside 0..{}", high), value);
    }
    return value.get<std::int64_t>();
  }

  std::int64_t time(const Json& value) const {
    if (value.is_number_float()) {
      const double milliseconds = value.get<double>();
      if (!(milliseconds >= 0.0 && milliseconds <= static_cast<double>(kMaxTime))) {
        refuse("timestamp", fmt::format("is outside 0..{}", kMaxTime), value);
      }
      return std::llround(milliseconds);
    }
    return integer(value, "timestamp", kMaxTime);
  }

  void read_ids(const Json& ids, std::int64_t most) {
    if (!ids.is_array()) {
      refuse("hash_ids", "is not a list", ids);
    }
    if (static_cast<std::int64_t>(ids.size()) > most) {
      throw InputError(
          lines_.file_name(), lines_.number(), "hash_ids",
          fmt::format("has {} ids, but the prompt has only {} blocks of {} tokens", ids.size(), most, kTokensPerId));
    }
    runs_.clear();
    for (const Json& item : ids) {
      const std::int64_t id = integer(item, "hash_ids", kMaxTraceId);
      if (!runs_.empty() && id == runs_.back().first + runs_.back().count) {
        ++runs_.back().count;
      } else {
        runs_.push_back({id, 1});
      }
    }
  }

  const LineReader& lines_;
  std::vector<IdRun> runs_;
};

}  // namespace

Trace read_mooncake(LineReader& lines, std::string_view first_line, std::uint64_t limit) {
  Trace trace;
  trace.kind = TraceKind::ids;
  trace.title = lines.file_name();
  trace.block_size = kTokensPerId;
  MooncakeLine reader(lines);
  std::string_view line = first_line;
  for (bool more = true; more && trace.size() < limit; more = lines.next(line)) {
    if (trace.size() == kMaxTraceRequests || trace.stored_items() > kMaxStoredItems) {
      throw InputError(lines.file_name(), lines.number(), "", "the trace is larger than this program accepts");
    }
    reader.read(line, trace);
  }
  return trace;
}

}  // namespace kvpool::tools
