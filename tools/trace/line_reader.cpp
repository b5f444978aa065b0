#include "tools/trace/line_reader.hpp"

#include <fmt/core.h>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {

bool LineReader::next(std::string_view& line) {
  constexpr std::size_t kStep = std::size_t{1} << 16;
  std::size_t end = std::string::npos;
  while ((end = buffer_.find('\n', scanned_)) == std::string::npos && !at_end_) {
    buffer_.erase(0, begin_);
    begin_ = 0;
    scanned_ = buffer_.size();
    if (scanned_ > kMaxLineBytes) {
      throw InputError(file_.name(), number_ + 1, "", fmt::format("line is longer than {} bytes", kMaxLineBytes));
    }
    buffer_.resize(scanned_ + kStep);
    const std::size_t got = file_.read({reinterpret_cast<unsigned char*>(buffer_.data()) + scanned_, kStep});
    buffer_.resize(scanned_ + got);
    at_end_ = got == 0;
  }
  if (end == std::string::npos) {
    if (begin_ == buffer_.size()) {
      return false;
    }
    end = buffer_.size();  // the last line has no line end
  }
  line = std::string_view(buffer_).substr(begin_, end - begin_);
  if (!line.empty() && line.back() == '\r') {
    line.remove_suffix(1);
  }
  begin_ = end < buffer_.size() ? end + 1 : end;
  scanned_ = begin_;
  ++number_;
  return true;
}

}  // namespace kvpool::tools
