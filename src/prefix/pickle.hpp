// The part of Python's pickle protocol 5 that hash units use, byte for byte as CPython's C pickler writes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "prefix/unit_content.hpp"

namespace kvpool::pickle {

/// Bytes that `encode_unit` may touch at most. O(extra keys).
[[nodiscard]] std::size_t unit_bound(const UnitContent& unit) noexcept;

/// Pickle of the tuple (parent, tokens, extra) at `out`, which has room for unit_bound() bytes.
/// Every text counts as an object of its own: equal texts are written twice, never as a reference, so
/// that the bytes depend on values alone. Returns the length.
[[nodiscard]] std::size_t encode_unit(const UnitContent& unit, std::uint8_t* out) noexcept;

[[nodiscard]] std::size_t text_bound(std::string_view text) noexcept;

/// Pickle of one text.
[[nodiscard]] std::size_t encode_text(std::string_view text, std::uint8_t* out) noexcept;

}  // namespace kvpool::pickle
