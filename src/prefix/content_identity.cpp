#include "kvpool/prefix/content_identity.hpp"

namespace kvpool {
namespace {

// A text that may contain anything is preceded by its length, so that the joined text can be read one way only.
void append_field(std::string& identity, std::string_view text) {
  identity += std::to_string(text.size());
  identity += ':';
  identity += text;
}

}  // namespace

std::string adapter_identity(std::string_view name, std::int64_t generation) {
  std::string identity = "adapter:";
  append_field(identity, name);
  identity += ";generation=" + std::to_string(generation);
  return identity;
}

std::string multimodal_identity(std::string_view content_id, std::int64_t length, std::string_view options) {
  std::string identity = "item:";
  append_field(identity, content_id);
  identity += ";length=" + std::to_string(length) + ";options=";
  append_field(identity, options);
  return identity;
}

}  // namespace kvpool
