// What a block's hash depends on besides its tokens: adapter, images, salt, embeddings.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace kvpool {

/// One thing besides the tokens that a block's hash depends on.
struct LoraKey {
  std::string name;
  bool operator==(const LoraKey&) const = default;
};
struct MultimodalKey {
  std::string identifier;
  std::int64_t offset = 0;  ///< tokens from the unit's start to the item's start; may be negative
  bool operator==(const MultimodalKey&) const = default;
};
struct SaltKey {
  std::string salt;
  bool operator==(const SaltKey&) const = default;
};
struct PromptEmbedsKey {
  std::vector<std::uint8_t> sha256;  ///< 32 bytes
  bool operator==(const PromptEmbedsKey&) const = default;
};
using ExtraKey = std::variant<LoraKey, MultimodalKey, SaltKey, PromptEmbedsKey>;

/// Keys of one unit; empty = none.
using ExtraKeys = std::vector<ExtraKey>;

}  // namespace kvpool
