// Byte-exact prefix hashes of token blocks.
//
// hash = F((parent hash, tokens of the unit, extra keys)), where F is a digest of a Python pickle
// (protocol 5) or of canonical CBOR of that triple, so that hashes agree with other engines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/prefix/extra_keys.hpp"

namespace kvpool {

/// Token ids are plain numbers; negative placeholders and values beyond 32 bits hash as they are.
using TokenId = std::int64_t;

enum class HashAlgorithm { sha256, sha256_cbor, xxhash, xxhash_cbor };

[[nodiscard]] std::string_view to_string(HashAlgorithm algorithm) noexcept;
[[nodiscard]] std::optional<HashAlgorithm> hash_algorithm_from_string(std::string_view name) noexcept;

/// An algorithm with its root hash. Immutable; safe to use from many threads at once.
class BlockHasher {
 public:
  /// `seed` is the text from which the root hash ("no parent") is derived.
  BlockHasher(HashAlgorithm algorithm, std::string_view seed);

  /// Seed as engines choose it: `python_hash_seed` (the environment variable PYTHONHASHSEED, read by the
  /// caller; an empty text counts) if given; else a fixed text for the SHA-256 algorithms and 64 random hex
  /// digits for the others, whose collisions can be constructed. Processes with different seeds share no
  /// hashes, so a random seed is worth a warning wherever caches are shared.
  [[nodiscard]] static std::string default_seed(HashAlgorithm algorithm,
                                                std::optional<std::string_view> python_hash_seed);

  [[nodiscard]] HashAlgorithm algorithm() const noexcept { return algorithm_; }
  [[nodiscard]] const std::string& seed() const noexcept { return seed_; }

  /// The hash that stands for "no parent".
  [[nodiscard]] const BlockHash& root() const noexcept { return root_; }

  /// Hash of one unit. `parent` empty (size 0): the root is used. O(tokens), no lock, no allocation for up to
  /// 512 tokens without extra keys.
  [[nodiscard]] BlockHash hash_unit(const BlockHash& parent, std::span<const TokenId> tokens,
                                    std::span<const ExtraKey> extra) const;

  /// The same behind a parent digest of any length, as other engines may use.
  [[nodiscard]] BlockHash hash_unit_after(std::span<const std::uint8_t> parent, std::span<const TokenId> tokens,
                                          std::span<const ExtraKey> extra) const;

 private:
  HashAlgorithm algorithm_;
  std::string seed_;
  BlockHash root_;
};

}  // namespace kvpool
