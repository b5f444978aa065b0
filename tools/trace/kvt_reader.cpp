// The line format of `.kvt` traces: a header of `# name value` lines, then one request of integers per line.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <vector>

#include "tools/trace/input_error.hpp"
#include "tools/trace/number_cursor.hpp"
#include "tools/trace/trace.hpp"

namespace kvpool::tools {
namespace {

struct Header {
  bool has_version = false;
  std::optional<TraceKind> kind;
  std::string title;
  std::int64_t block_size = 0;
  std::int64_t vocab = std::int64_t{1} << 53;  ///< tokens are below this
};

void read_header_line(Header& header, const LineReader& lines, std::string_view line) {
  NumberCursor cursor(lines.file_name(), lines.number(), line);
  (void)cursor.word("#");
  const std::string_view name = cursor.word("header name");
  if (name == "kvtrace") {
    (void)cursor.next("kvtrace", 1, 1);
    header.has_version = true;
  } else if (name == "kind") {
    const std::string_view kind = cursor.word("kind");
    if (kind != "ids" && kind != "tokens") {
      throw InputError(lines.file_name(), lines.number(), "kind", "is neither 'ids' nor 'tokens'", kind);
    }
    header.kind = kind == "ids" ? TraceKind::ids : TraceKind::tokens;
  } else if (name == "title") {
    header.title = line.size() > 8 ? line.substr(8) : std::string_view{};
  } else if (name == "block_size") {
    header.block_size = cursor.next("block_size", 1, kMaxTraceBlockSize);
  } else if (name == "vocab") {
    header.vocab = cursor.next("vocab", 1, header.vocab);
  }
}

void check_header(const Header& header, const LineReader& lines) {
  const auto require = [&lines](bool present, std::string_view name) {
    if (!present) {
      throw InputError(lines.file_name(), lines.number(), name, "is missing from the header");
    }
  };
  require(header.has_version, "kvtrace");
  require(header.kind.has_value(), "kind");
  require(header.kind != TraceKind::ids || header.block_size > 0, "block_size");
}

TraceRequest read_front(NumberCursor& cursor) {
  TraceRequest request;
  request.time_ms = cursor.next("t", 0, kMaxTime);
  request.session = cursor.next("session", -1, kMaxTraceId);
  request.input_tokens = cursor.next("in", 0, kMaxRequestTokens);
  request.output_tokens = cursor.next("out", 0, kMaxRequestTokens);
  return request;
}

// t session in out k  s1 n1 ... sk nk
class IdLine {
 public:
  void read(const LineReader& lines, std::string_view line, Trace& trace) {
    NumberCursor cursor(lines.file_name(), lines.number(), line);
    const TraceRequest request = read_front(cursor);
    std::int64_t room = (request.input_tokens + trace.block_size - 1) / trace.block_size;
    const std::int64_t runs = cursor.next("k", 0, room);
    runs_.clear();
    for (std::int64_t i = 1; i <= runs; ++i) {
      const std::int64_t first = cursor.next("s", 0, kMaxTraceId);
      const std::int64_t count = cursor.next("n", 1, room);
      room -= count;
      runs_.push_back({first, count});
    }
    cursor.finish();
    trace.add(request, runs_);
  }

 private:
  std::vector<IdRun> runs_;
};

// t session in out base keep m  p1 ... pm  o1 ... o_out
class TokenLine {
 public:
  explicit TokenLine(std::int64_t vocab) : max_token_(vocab - 1) {}

  void read(const LineReader& lines, std::string_view line, Trace& trace) {
    NumberCursor cursor(lines.file_name(), lines.number(), line);
    const TraceRequest request = read_front(cursor);
    const auto known = static_cast<std::int64_t>(trace.size());
    const std::int64_t base = cursor.next("base", -1, known - 1);
    const std::int64_t base_tokens = base < 0 ? 0 : trace[static_cast<std::size_t>(base)].input_tokens;
    const std::int64_t keep = cursor.next("keep", 0, std::min(base_tokens, request.input_tokens));
    const std::int64_t own = request.input_tokens - keep;
    (void)cursor.next("m", own, own);
    read_tokens(cursor, "p", own, suffix_);
    read_tokens(cursor, "o", request.output_tokens, output_);
    cursor.finish();
    trace.add(request, base < 0 ? 0 : static_cast<std::size_t>(base), keep, suffix_, output_);
  }

 private:
  void read_tokens(NumberCursor& cursor, std::string_view field, std::int64_t count, std::vector<TokenId>& out) const {
    out.clear();
    for (std::int64_t i = 0; i < count; ++i) {
      out.push_back(cursor.next(field, 0, max_token_));
    }
  }

  std::int64_t max_token_;
  std::vector<TokenId> suffix_;
  std::vector<TokenId> output_;
};

}  // namespace

Trace read_kvt(LineReader& lines, std::string_view first_line, std::uint64_t limit) {
  Header header;
  std::string_view line = first_line;
  bool more = true;
  while (more && line.starts_with('#')) {
    read_header_line(header, lines, line);
    more = lines.next(line);
  }
  check_header(header, lines);
  Trace trace;
  trace.kind = *header.kind;
  trace.title = header.title;
  trace.block_size = trace.kind == TraceKind::ids ? header.block_size : 0;
  IdLine id_line;
  TokenLine token_line(header.vocab);
  for (; more && trace.size() < limit; more = lines.next(line)) {
    if (trace.size() == kMaxTraceRequests || trace.stored_items() > kMaxStoredItems) {
      throw InputError(lines.file_name(), lines.number(), "", "the trace is larger than this program accepts");
    }
    if (trace.kind == TraceKind::ids) {
      id_line.read(lines, line, trace);
    } else {
      token_line.read(lines, line, trace);
    }
  }
  return trace;
}

}  // namespace kvpool::tools
