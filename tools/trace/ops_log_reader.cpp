#include "tools/trace/ops_log_reader.hpp"

#include <fmt/core.h>

#include "tools/trace/input_error.hpp"
#include "tools/trace/number_cursor.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {
namespace {

constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 20;

}  // namespace

OpsLogReader::OpsLogReader(LineReader& lines, std::string_view first_line) : lines_(lines) {
  NumberCursor version(lines.file_name(), 1, first_line);
  (void)version.word("#");
  (void)version.word("kvtrace-ops");
  (void)version.next("kvtrace-ops", 1, 1);
  std::string_view line;
  while (lines_.next(line)) {
    if (!line.starts_with('#')) {
      pending_ = line;
      has_pending_ = true;
      break;
    }
    NumberCursor cursor(lines.file_name(), lines.number(), line);
    (void)cursor.word("#");
    const std::string_view name = cursor.word("header name");
    if (name == "capacity") {
      capacity_ = cursor.next("capacity", 1, kMaxCapacity);
    } else if (name == "block_size") {
      block_size_ = cursor.next("block_size", 1, kMaxTraceBlockSize);
    }
  }
  if (capacity_ == 0 || block_size_ == 0) {
    throw InputError(lines.file_name(), lines.number(), capacity_ == 0 ? "capacity" : "block_size",
                     "is missing from the header");
  }
}

std::string OpsLogReader::read_answer(char mark, std::string_view field) {
  std::string_view line;
  if (!lines_.next(line)) {
    throw InputError(lines_.file_name(), lines_.number(), field, "is missing: the log ends inside an entry");
  }
  if (line.empty() || line[0] != mark || (line.size() > 1 && line[1] != ' ')) {
    throw InputError(lines_.file_name(), lines_.number(), field, fmt::format("does not start with '{} '", mark), line);
  }
  return std::string(line.size() > 2 ? line.substr(2) : std::string_view{});
}

bool OpsLogReader::next(OpsLogEntry& entry) {
  std::string_view line = pending_;
  if (!has_pending_ && !lines_.next(line)) {
    return false;
  }
  entry.line = lines_.number();
  entry.tokens.clear();
  NumberCursor cursor(lines_.file_name(), entry.line, line);
  const std::string_view op = cursor.word("operation");
  if (op == "init" || op == "reset") {
    entry.op = op == "init" ? LoggedOp::init : LoggedOp::reset;
  } else if (op == "admit" || op == "append" || op == "free") {
    entry.op = op == "admit" ? LoggedOp::admit : op == "append" ? LoggedOp::append : LoggedOp::free;
    entry.request = cursor.next("request", 0, kMaxTraceId);
    if (entry.op == LoggedOp::append) {
      entry.tokens.push_back(cursor.next("token", 0, kMaxTraceId));
    }
    while (entry.op == LoggedOp::admit && (cursor.more() || entry.tokens.empty())) {
      entry.tokens.push_back(cursor.next("token", 0, kMaxTraceId));
    }
  } else {
    throw InputError(lines_.file_name(), entry.line, "operation", "is unknown", op);
  }
  cursor.finish();
  has_pending_ = false;
  entry.result = read_answer('=', "result");
  entry.queue = read_answer('q', "queue");
  return true;
}

}  // namespace kvpool::tools
