// Lines of a text file, one at a time, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tools/trace/input_file.hpp"

namespace kvpool::tools {

class LineReader {
 public:
  static constexpr std::size_t kMaxLineBytes = std::size_t{32} << 20;

  explicit LineReader(InputFile& file) : file_(file) {}

  /// The next line without its end (`\n` or `\r\n`); false at the end of the file. The view is valid until the next
  /// call. Throws InputError for a line beyond kMaxLineBytes, with its number, and what InputFile::read throws.
  [[nodiscard]] bool next(std::string_view& line);

  /// Number of the line that next() answered last, from 1.
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  [[nodiscard]] const std::string& file_name() const noexcept { return file_.name(); }

 private:
  InputFile& file_;
  std::string buffer_;
  std::size_t begin_ = 0;    ///< start of the next line in buffer_
  std::size_t scanned_ = 0;  ///< no line end in [begin_, scanned_)
  std::uint64_t number_ = 0;
  bool at_end_ = false;
};

}  // namespace kvpool::tools
