// Operation logs of a small pool: what was done, what it answered, and the free queue after it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvpool/prefix/block_hasher.hpp"
#include "tools/trace/line_reader.hpp"

namespace kvpool::tools {

enum class LoggedOp { init, admit, append, free, reset };

struct OpsLogEntry {
  std::uint64_t line = 0;  ///< of the operation; the result is on the next line, the queue on the one after
  LoggedOp op = LoggedOp::init;
  std::int64_t request = 0;
  std::vector<TokenId> tokens;  ///< prompt of admit, the one token of append
  std::string result;           ///< without "= "
  std::string queue;            ///< without "q "
};

class OpsLogReader {
 public:
  /// Reads the header. `lines` has just answered `first_line`. Throws InputError.
  OpsLogReader(LineReader& lines, std::string_view first_line);

  [[nodiscard]] std::int64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::int64_t block_size() const noexcept { return block_size_; }

  /// False at the end. Throws InputError, also for a log that ends inside an entry.
  [[nodiscard]] bool next(OpsLogEntry& entry);

 private:
  std::string read_answer(char mark, std::string_view field);

  LineReader& lines_;
  std::string pending_;  ///< first line after the header
  bool has_pending_ = false;
  std::int64_t capacity_ = 0;
  std::int64_t block_size_ = 0;
};

}  // namespace kvpool::tools
