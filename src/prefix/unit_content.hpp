// The triple that a hash unit is made of, as both encoders see it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvpool/prefix/block_hasher.hpp"

namespace kvpool {

/// Views only; everything outlives the call that encodes it.
struct UnitContent {
  std::span<const std::uint8_t> parent;
  std::span<const TokenId> tokens;
  std::span<const ExtraKey> extra;  ///< empty: none
};

/// Payload bytes of one key: the text or the digest.
[[nodiscard]] inline std::size_t payload_bytes(const ExtraKey& key) noexcept {
  struct Size {
    std::size_t operator()(const LoraKey& lora) const noexcept { return lora.name.size(); }
    std::size_t operator()(const MultimodalKey& item) const noexcept { return item.identifier.size(); }
    std::size_t operator()(const SaltKey& salt) const noexcept { return salt.salt.size(); }
    std::size_t operator()(const PromptEmbedsKey& rows) const noexcept { return rows.sha256.size(); }
  };
  return std::visit(Size{}, key);
}

}  // namespace kvpool
