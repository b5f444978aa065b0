// Integers of one text line, separated by single spaces.
#pragma once

#include <cstdint>
#include <string_view>

namespace kvpool::tools {

/// Walks over a line and checks what it reads. Everything it throws is an InputError with file, line, field, value.
class NumberCursor {
 public:
  NumberCursor(std::string_view file, std::uint64_t line, std::string_view text)
      : file_(file), line_(line), rest_(text), more_(!text.empty()) {}

  [[nodiscard]] bool more() const noexcept { return more_; }

  /// The next integer, which must lie in [low, high].
  [[nodiscard]] std::int64_t next(std::string_view field, std::int64_t low, std::int64_t high);

  /// The next word as it is.
  [[nodiscard]] std::string_view word(std::string_view field);

  /// Throws unless everything has been read.
  void finish() const;

 private:
  std::string_view file_;
  std::uint64_t line_;
  std::string_view rest_;
  bool more_;
};

}  // namespace kvpool::tools
