// Names for adapters and multimodal items that include everything their KV depends on.
//
// Block hashes see one text per adapter and one per image. These functions build such texts; equal texts
// mean equal arguments, in every process. Who shares hashes with other engines must build the same texts there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvpool {

/// Identity of an adapter that can be reloaded under its name: `generation` changes with its weights.
[[nodiscard]] std::string adapter_identity(std::string_view name, std::int64_t generation);

/// Identity of a multimodal item. `content_id`: digest of the bytes, unshortened. `length`: placeholder tokens.
/// `options`: whatever else the embedding depends on (resolution, frame rate, processor version), as one text.
[[nodiscard]] std::string multimodal_identity(std::string_view content_id, std::int64_t length,
                                              std::string_view options);

}  // namespace kvpool
