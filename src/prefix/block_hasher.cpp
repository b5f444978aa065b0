#include "kvpool/prefix/block_hasher.hpp"

#include <array>
#include <memory>
#include <random>

#include "prefix/cbor.hpp"
#include "prefix/digest.hpp"
#include "prefix/pickle.hpp"

namespace kvpool {
namespace {

constexpr std::string_view kFixedSeed = "vllm-none-hash";
constexpr std::size_t kRandomSeedBytes = 32;

// Enough for units of 512 tokens of any size, without extra keys.
constexpr std::size_t kStackBytes = 6 * 1024;

constexpr std::array<std::string_view, 4> kNames{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"};

bool uses_pickle(HashAlgorithm algorithm) noexcept {
  return algorithm == HashAlgorithm::sha256 || algorithm == HashAlgorithm::xxhash;
}

bool uses_sha256(HashAlgorithm algorithm) noexcept {
  return algorithm == HashAlgorithm::sha256 || algorithm == HashAlgorithm::sha256_cbor;
}

/// Runs `encode(out)` on a buffer of `bound` bytes and digests what it wrote.
template <class Encode>
BlockHash encode_and_digest(HashAlgorithm algorithm, std::size_t bound, const Encode& encode) {
  std::array<std::uint8_t, kStackBytes> stack;  // left uninitialised on purpose: clearing it costs more than hashing
  std::unique_ptr<std::uint8_t[]> heap;
  std::uint8_t* out = stack.data();
  if (bound > stack.size()) {
    heap.reset(new std::uint8_t[bound]);
    out = heap.get();
  }
  const std::span<const std::uint8_t> encoded(out, encode(out));
  return uses_sha256(algorithm) ? sha256(encoded) : xxh3_128(encoded);
}

BlockHash hash_text(HashAlgorithm algorithm, std::string_view text) {
  if (uses_pickle(algorithm)) {
    return encode_and_digest(algorithm, pickle::text_bound(text),
                             [&](std::uint8_t* out) { return pickle::encode_text(text, out); });
  }
  return encode_and_digest(algorithm, cbor::text_bound(text),
                           [&](std::uint8_t* out) { return cbor::encode_text(text, out); });
}

std::string random_seed() {
  constexpr std::string_view kHexDigits = "0123456789abcdef";
  std::random_device device;  // the operating system's generator, not a seeded one
  std::string seed;
  seed.reserve(2 * kRandomSeedBytes);
  for (std::size_t i = 0; i < kRandomSeedBytes; ++i) {
    const auto byte = static_cast<std::uint8_t>(device());
    seed.push_back(kHexDigits[byte >> 4]);
    seed.push_back(kHexDigits[byte & 15]);
  }
  return seed;
}

}  // namespace

std::string_view to_string(HashAlgorithm algorithm) noexcept {
  const auto index = static_cast<std::size_t>(algorithm);
  return index < kNames.size() ? kNames[index] : "unknown";
}

std::optional<HashAlgorithm> hash_algorithm_from_string(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<HashAlgorithm>(i);
  }
  return std::nullopt;
}

BlockHasher::BlockHasher(HashAlgorithm algorithm, std::string_view seed)
    : algorithm_(algorithm), seed_(seed), root_(hash_text(algorithm, seed)) {}

std::string BlockHasher::default_seed(HashAlgorithm algorithm, std::optional<std::string_view> python_hash_seed) {
  if (python_hash_seed) return std::string(*python_hash_seed);
  return uses_sha256(algorithm) ? std::string(kFixedSeed) : random_seed();
}

BlockHash BlockHasher::hash_unit(const BlockHash& parent, std::span<const TokenId> tokens,
                                 std::span<const ExtraKey> extra) const {
  return hash_unit_after(parent.digest(), tokens, extra);
}

BlockHash BlockHasher::hash_unit_after(std::span<const std::uint8_t> parent, std::span<const TokenId> tokens,
                                       std::span<const ExtraKey> extra) const {
  const UnitContent unit{parent.empty() ? root_.digest() : parent, tokens, extra};
  if (uses_pickle(algorithm_)) {
    return encode_and_digest(algorithm_, pickle::unit_bound(unit),
                             [&](std::uint8_t* out) { return pickle::encode_unit(unit, out); });
  }
  return encode_and_digest(algorithm_, cbor::unit_bound(unit),
                           [&](std::uint8_t* out) { return cbor::encode_unit(unit, out); });
}

}  // namespace kvpool
