// What the two encoders write, as bytes and as hex.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "prefix/cbor.hpp"
#include "prefix/pickle.hpp"

namespace kvpool {

using Bytes = std::vector<std::uint8_t>;

inline Bytes pickled(const UnitContent& unit) {
  Bytes out(pickle::unit_bound(unit));
  out.resize(pickle::encode_unit(unit, out.data()));
  return out;
}

inline Bytes pickled(std::string_view text) {
  Bytes out(pickle::text_bound(text));
  out.resize(pickle::encode_text(text, out.data()));
  return out;
}

inline Bytes cbor_encoded(const UnitContent& unit) {
  Bytes out(cbor::unit_bound(unit));
  out.resize(cbor::encode_unit(unit, out.data()));
  return out;
}

inline Bytes cbor_encoded(std::string_view text) {
  Bytes out(cbor::text_bound(text));
  out.resize(cbor::encode_text(text, out.data()));
  return out;
}

inline std::string to_hex(const Bytes& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

}  // namespace kvpool
