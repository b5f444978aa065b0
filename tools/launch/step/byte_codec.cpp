#include "tools/launch/step/byte_codec.hpp"

#include <fmt/format.h>

namespace kvpool::launch {

void ByteWriter::put_text(std::string_view text) {
  put(static_cast<std::uint32_t>(text.size()));
  for (const char c : text) bytes_.push_back(static_cast<std::byte>(c));
}

std::string ByteReader::get_text(const char* field) {
  std::string text(count(1, field), '\0');
  for (char& c : text) c = static_cast<char>(bytes_[offset_++]);
  return text;
}

bool ByteReader::need(std::size_t bytes, const char* field) {
  if (!ok()) return false;
  if (bytes <= remaining()) return true;
  fail(field, fmt::format("needs {} bytes, {} are left", bytes, remaining()));
  return false;
}

std::size_t ByteReader::count(std::size_t element_bytes, const char* field) {
  const auto value = get<std::uint32_t>(field);
  if (!ok()) return 0;
  if (value > remaining() / element_bytes) {
    fail(field, fmt::format("{} elements of {} bytes or more, {} bytes are left", value, element_bytes, remaining()));
    return 0;
  }
  return value;
}

void ByteReader::fail(const char* field, const std::string& problem) {
  if (ok()) problem_ = fmt::format("byte {}: {}: {}", offset_, field, problem);
}

}  // namespace kvpool::launch
