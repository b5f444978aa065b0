// The two digests behind the hash algorithms.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/block/block_hash.hpp"

namespace kvpool {

/// SHA-256, 32 bytes. Thread-safe; no allocation after a thread's first call.
[[nodiscard]] BlockHash sha256(std::span<const std::uint8_t> data);

/// XXH3, 128 bits, seed 0, in canonical order (most significant byte first). Thread-safe.
[[nodiscard]] BlockHash xxh3_128(std::span<const std::uint8_t> data) noexcept;

}  // namespace kvpool
