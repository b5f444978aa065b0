// The part of canonical CBOR (RFC 8949, core deterministic encoding) that hash units use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "prefix/unit_content.hpp"

namespace kvpool::cbor {

/// Bytes that `encode_unit` may touch at most. O(extra keys).
[[nodiscard]] std::size_t unit_bound(const UnitContent& unit) noexcept;

/// The array [parent, tokens, extra or null] at `out`, which has room for unit_bound() bytes. Definite
/// lengths, shortest heads, no tags. Returns the length.
[[nodiscard]] std::size_t encode_unit(const UnitContent& unit, std::uint8_t* out) noexcept;

[[nodiscard]] std::size_t text_bound(std::string_view text) noexcept;

/// One text string.
[[nodiscard]] std::size_t encode_text(std::string_view text, std::uint8_t* out) noexcept;

}  // namespace kvpool::cbor
