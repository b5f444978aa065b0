// Bytes of a file, plain or gzip, told apart by content.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace kvpool::tools {

/// Reads from front to back in constant memory. Not thread-safe.
class InputFile {
 public:
  /// Throws InputError when the file cannot be opened or is a directory. `-` is no special name.
  explicit InputFile(const std::string& path);
  /// Bytes in memory under a name for messages (tests, fuzzing).
  InputFile(std::string name, std::vector<unsigned char> bytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  /// Fills `out` from its start; fewer bytes than asked for only at the end, 0 when there are no more.
  /// Throws InputError for a read error and for gzip data that is corrupt, ends early or is followed by
  /// something that is no gzip member, with the position in the file.
  [[nodiscard]] std::size_t read(std::span<unsigned char> out);

 private:
  struct Inflater;
  bool refill();
  void detect();
  std::size_t read_plain(std::span<unsigned char> out);
  std::size_t read_gzip(std::span<unsigned char> out);
  void start_member();

  std::string name_;
  int descriptor_ = -1;
  std::vector<unsigned char> buffer_;
  std::size_t begin_ = 0;  ///< unread bytes of buffer_: [begin_, end_)
  std::size_t end_ = 0;
  std::uint64_t consumed_ = 0;  ///< bytes of the file before begin_
  bool detected_ = false;
  std::unique_ptr<Inflater> inflater_;  ///< set for gzip
};

}  // namespace kvpool::tools
