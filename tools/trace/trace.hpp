// A request trace in memory: who asked when, for how many tokens, and which parts of the prompts are equal.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "kvpool/prefix/block_hasher.hpp"
#include "tools/trace/line_reader.hpp"

namespace kvpool::tools {

// Limits of what a reader accepts; they bound the memory that a hostile file can ask for.
inline constexpr std::int64_t kMaxRequestTokens = std::int64_t{1} << 30;  ///< prompt or output of one request
inline constexpr std::int64_t kMaxTraceBlockSize = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxTraceId = std::int64_t{1} << 62;
inline constexpr std::int64_t kMaxTime = std::int64_t{1} << 53;
inline constexpr std::uint64_t kMaxTraceRequests = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kMaxStoredItems = std::uint64_t{1} << 28;  ///< id runs, or tokens, of one trace

enum class TraceKind {
  ids,     ///< an id per block of the prompt; equal ids: equal blocks and equal everything before
  tokens,  ///< prompts and outputs token by token
};

/// The ids first, first + 1, ..., first + count - 1.
struct IdRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool operator==(const IdRun&) const = default;
};

struct TraceRequest {
  std::int64_t time_ms = 0;   ///< arrival, from the start of the file
  std::int64_t session = -1;  ///< -1: not known
  std::int64_t input_tokens = 0;
  std::int64_t output_tokens = 0;
};

/// Requests in file order. Memory is linear in the size of the (unpacked) file.
class Trace {
 public:
  TraceKind kind = TraceKind::ids;
  std::string title;
  std::int64_t block_size = 0;  ///< tokens per id; 0 for token traces

  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }
  [[nodiscard]] const TraceRequest& operator[](std::size_t index) const noexcept { return requests_[index]; }

  /// Id traces: ids of the prompt's blocks from its start, in runs. Blocks beyond have no id.
  [[nodiscard]] std::span<const IdRun> runs(std::size_t index) const noexcept;

  /// Token traces: the whole prompt, written over `out`. O(input_tokens).
  void prompt(std::size_t index, std::vector<TokenId>& out) const;
  /// Token traces: the output.
  [[nodiscard]] std::span<const TokenId> output(std::size_t index) const noexcept;

  // --- for readers -------------------------------------------------------------------------------------

  void add(const TraceRequest& request, std::span<const IdRun> runs);
  /// The prompt is the first `keep` tokens of the prompt of request `base` (ignored for keep 0), then `suffix`.
  /// Precondition: base < size(), keep <= its input_tokens.
  void add(const TraceRequest& request, std::size_t base, std::int64_t keep, std::span<const TokenId> suffix,
           std::span<const TokenId> output);
  [[nodiscard]] std::uint64_t stored_items() const noexcept { return runs_.size() + tokens_.size(); }

 private:
  struct TokenPrompt {
    std::size_t base = 0;
    std::int64_t keep = 0;         ///< tokens taken from base
    std::uint64_t begin = 0;       ///< own tokens: tokens_[begin, output), then the output
    std::uint64_t output = 0;      ///< start of the output in tokens_
    std::uint64_t output_end = 0;  ///< end of the output in tokens_
  };

  std::vector<TraceRequest> requests_;
  std::vector<std::uint64_t> run_ends_;  ///< id traces: end of each request's runs in runs_
  std::vector<IdRun> runs_;
  std::vector<TokenPrompt> prompts_;  ///< token traces
  std::vector<TokenId> tokens_;
};

/// What a file holds, seen from its first line.
enum class TraceFormat { kvt, mooncake, ops_log };

/// Throws InputError when it is none of them.
[[nodiscard]] TraceFormat trace_format(const LineReader& lines, std::string_view first_line);

/// Reads a `.kvt` or Mooncake JSONL trace, plain or gzip, at most its first `limit` requests.
/// Throws InputError with file, line, field and value.
[[nodiscard]] Trace read_trace(InputFile& file, std::uint64_t limit = std::numeric_limits<std::uint64_t>::max());
[[nodiscard]] Trace read_trace(const std::string& path,
                               std::uint64_t limit = std::numeric_limits<std::uint64_t>::max());

// The readers behind it. `lines` has just answered `first_line`.
[[nodiscard]] Trace read_kvt(LineReader& lines, std::string_view first_line, std::uint64_t limit);
[[nodiscard]] Trace read_mooncake(LineReader& lines, std::string_view first_line, std::uint64_t limit);

}  // namespace kvpool::tools
