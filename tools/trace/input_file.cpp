#include "tools/trace/input_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "tools/trace/input_error.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;
constexpr int kGzipOnly = 15 + 16;  // zlib: largest window, gzip header expected

std::string system_message(int error) { return std::error_code(error, std::generic_category()).message(); }

}  // namespace

struct InputFile::Inflater {
  z_stream stream{};
  bool in_member = true;
  Inflater() {
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

InputFile::InputFile(const std::string& path) : name_(path), buffer_(kBufferBytes) {
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw InputError(name_, 0, "", fmt::format("cannot be opened: {}", system_message(errno)));
  }
  struct stat status {};
  if (fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode)) {
    close(descriptor_);
    throw InputError(name_, 0, "", "is a directory, not a file");
  }
}

InputFile::InputFile(std::string name, std::vector<unsigned char> bytes)
    : name_(std::move(name)), buffer_(std::move(bytes)), end_(buffer_.size()) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) {
    close(descriptor_);
  }
}

// Loads more bytes behind the unread ones; false at the end of the file.
bool InputFile::refill() {
  if (descriptor_ < 0) {
    return false;
  }
  if (begin_ > 0) {
    std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
              buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
    end_ -= begin_;
    begin_ = 0;
  }
  while (true) {
    const ssize_t got = ::read(descriptor_, buffer_.data() + end_, buffer_.size() - end_);
    if (got >= 0) {
      end_ += static_cast<std::size_t>(got);
      return got > 0;
    }
    if (errno != EINTR) {
      throw InputError(name_, 0, "", fmt::format("cannot be read: {}", system_message(errno)));
    }
  }
}

void InputFile::detect() {
  detected_ = true;
  while (end_ - begin_ < 2 && refill()) {
  }
  if (end_ - begin_ >= 2 && buffer_[begin_] == 0x1f && buffer_[begin_ + 1] == 0x8b) {
    inflater_ = std::make_unique<Inflater>();
  }
}

std::size_t InputFile::read(std::span<unsigned char> out) {
  if (!detected_) {
    detect();
  }
  return inflater_ ? read_gzip(out) : read_plain(out);
}

std::size_t InputFile::read_plain(std::span<unsigned char> out) {
  std::size_t written = 0;
  while (written < out.size() && (begin_ < end_ || refill())) {
    const std::size_t count = std::min(end_ - begin_, out.size() - written);
    std::memcpy(out.data() + written, buffer_.data() + begin_, count);
    begin_ += count;
    written += count;
  }
  return written;
}

// The next member of a gzip file that consists of several.
void InputFile::start_member() {
  if (buffer_[begin_] != 0x1f) {
    throw InputError(name_, 0, "", fmt::format("byte {}: what follows the gzip data is no gzip member", consumed_));
  }
  inflateReset(&inflater_->stream);
  inflater_->in_member = true;
}

std::size_t InputFile::read_gzip(std::span<unsigned char> out) {
  z_stream& stream = inflater_->stream;
  std::size_t written = 0;
  while (written < out.size()) {
    if (begin_ == end_ && !refill()) {
      if (inflater_->in_member) {
        throw InputError(name_, 0, "", fmt::format("byte {}: gzip data ends early", consumed_));
      }
      break;
    }
    if (!inflater_->in_member) {
      start_member();
    }
    constexpr std::size_t kMaxStep = std::size_t{1} << 30;
    const std::size_t available = std::min(end_ - begin_, kMaxStep);
    const std::size_t room = std::min(out.size() - written, kMaxStep);
    stream.next_in = buffer_.data() + begin_;
    stream.avail_in = static_cast<uInt>(available);
    stream.next_out = out.data() + written;
    stream.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream, Z_NO_FLUSH);
    const std::size_t used = available - stream.avail_in;
    begin_ += used;
    consumed_ += used;
    written += room - stream.avail_out;
    if (result == Z_STREAM_END) {
      inflater_->in_member = false;
    } else if (result == Z_MEM_ERROR) {
      throw std::bad_alloc();
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      throw InputError(name_, 0, "",
                       fmt::format("byte {}: corrupt gzip data ({})", consumed_,
                                   stream.msg != nullptr ? stream.msg : "it needs a dictionary"));
    }
  }
  return written;
}

}  // namespace kvpool::tools
