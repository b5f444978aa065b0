#include "kvpool/prefix/block_hasher.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "kvpool/prefix/content_identity.hpp"
#include "prefix/digest.hpp"

namespace kvpool {
namespace {

constexpr std::array kAlgorithms{HashAlgorithm::sha256, HashAlgorithm::sha256_cbor, HashAlgorithm::xxhash,
                                 HashAlgorithm::xxhash_cbor};

std::vector<TokenId> counting_tokens(TokenId first, std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

std::span<const std::uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

TEST(Digest, PublishedValues) {
  EXPECT_EQ(sha256(bytes_of("")).to_hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256(bytes_of("abc")).to_hex(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(xxh3_128(bytes_of("")).to_hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(xxh3_128(bytes_of("abc")).to_hex(), "06b05ab6733a618578af5f94892f3950");
}

TEST(BlockHasher, NamesRoundTrip) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    EXPECT_EQ(hash_algorithm_from_string(to_string(algorithm)), algorithm);
  }
  EXPECT_EQ(to_string(HashAlgorithm::sha256_cbor), "sha256_cbor");
  EXPECT_FALSE(hash_algorithm_from_string("SHA256").has_value());
  EXPECT_FALSE(hash_algorithm_from_string("").has_value());
}

TEST(BlockHasher, SeedIsTheEnvironmentsIfGiven) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    EXPECT_EQ(BlockHasher::default_seed(algorithm, "42"), "42");
    EXPECT_EQ(BlockHasher::default_seed(algorithm, ""), "");
  }
}

TEST(BlockHasher, DefaultSeedIsFixedForSha256AndRandomOtherwise) {
  EXPECT_EQ(BlockHasher::default_seed(HashAlgorithm::sha256, std::nullopt), "vllm-none-hash");
  EXPECT_EQ(BlockHasher::default_seed(HashAlgorithm::sha256_cbor, std::nullopt), "vllm-none-hash");
  std::set<std::string> seeds;
  for (int i = 0; i < 8; ++i) {
    for (const HashAlgorithm algorithm : {HashAlgorithm::xxhash, HashAlgorithm::xxhash_cbor}) {
      const std::string seed = BlockHasher::default_seed(algorithm, std::nullopt);
      EXPECT_EQ(seed.size(), 64U);
      for (const char digit : seed) EXPECT_TRUE(std::isdigit(digit) || (digit >= 'a' && digit <= 'f')) << seed;
      seeds.insert(seed);
    }
  }
  EXPECT_EQ(seeds.size(), 16U);
}

TEST(BlockHasher, DigestSizes) {
  EXPECT_EQ(BlockHasher(HashAlgorithm::sha256, "s").root().size, 32);
  EXPECT_EQ(BlockHasher(HashAlgorithm::sha256_cbor, "s").root().size, 32);
  EXPECT_EQ(BlockHasher(HashAlgorithm::xxhash, "s").root().size, 16);
  EXPECT_EQ(BlockHasher(HashAlgorithm::xxhash_cbor, "s").root().size, 16);
}

TEST(BlockHasher, NoParentMeansTheRoot) {
  const std::vector<TokenId> tokens = counting_tokens(0, 16);
  for (const HashAlgorithm algorithm : kAlgorithms) {
    const BlockHasher hasher(algorithm, "0");
    EXPECT_EQ(hasher.hash_unit(BlockHash{}, tokens, {}), hasher.hash_unit(hasher.root(), tokens, {}));
    EXPECT_EQ(hasher.hash_unit_after({}, tokens, {}), hasher.hash_unit(hasher.root(), tokens, {}));
  }
}

TEST(BlockHasher, ChainOfTheFixedSeed) {
  const BlockHasher hasher(HashAlgorithm::sha256, BlockHasher::default_seed(HashAlgorithm::sha256, std::nullopt));
  const BlockHash first = hasher.hash_unit({}, counting_tokens(0, 16), {});
  const BlockHash second = hasher.hash_unit(first, counting_tokens(16, 16), {});
  EXPECT_EQ(first.to_hex(), "fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798");
  EXPECT_EQ(first.event_id(), 3262291359910021016ULL);
  EXPECT_EQ(second.to_hex(), "8be7aaa33831156d316f1f463ae57e643deb63f42e633e2d631df88815cc4629");
}

// Beyond the buffer on the stack the same bytes must come from the heap.
TEST(BlockHasher, LongUnitsHashLikeTheirEncoding) {
  for (const std::size_t count : {511U, 512U, 600U, 700U, 5000U}) {
    const std::vector<TokenId> tokens = counting_tokens(100000, count);
    const BlockHasher hasher(HashAlgorithm::sha256_cbor, "0");
    std::vector<std::uint8_t> encoded{0x83, 0x58, 0x20};
    const auto root = hasher.root().digest();
    encoded.insert(encoded.end(), root.begin(), root.end());
    encoded.insert(encoded.end(), {0x99, static_cast<std::uint8_t>(count >> 8), static_cast<std::uint8_t>(count)});
    for (const TokenId token : tokens) {
      encoded.push_back(0x1a);
      for (int shift = 24; shift >= 0; shift -= 8) encoded.push_back(static_cast<std::uint8_t>(token >> shift));
    }
    encoded.push_back(0xf6);
    EXPECT_EQ(hasher.hash_unit({}, tokens, {}), sha256(encoded)) << count;
  }
}

TEST(BlockHasher, ManyThreadsAgree) {
  const BlockHasher hasher(HashAlgorithm::sha256, "0");
  constexpr std::size_t kUnits = 200;
  const auto chain = [&] {
    BlockHash parent;
    for (std::size_t i = 0; i < kUnits; ++i) {
      parent = hasher.hash_unit(parent, counting_tokens(static_cast<TokenId>(i), 16), {});
    }
    return parent;
  };
  const BlockHash expected = chain();
  std::array<BlockHash, 4> results;
  std::vector<std::thread> threads;
  for (BlockHash& result : results) threads.emplace_back([&] { result = chain(); });
  for (std::thread& thread : threads) thread.join();
  for (const BlockHash& result : results) EXPECT_EQ(result, expected);
}

TEST(ContentIdentity, EqualTextsMeanEqualArguments) {
  EXPECT_EQ(adapter_identity("x", 1), adapter_identity("x", 1));
  EXPECT_NE(adapter_identity("x", 1), adapter_identity("x", 2));
  EXPECT_NE(adapter_identity("x;generation=1", 2), adapter_identity("x", 1));
  EXPECT_EQ(multimodal_identity("id", 4, "o"), multimodal_identity("id", 4, "o"));
  const std::set<std::string> different{
      multimodal_identity("id", 4, "o"),  multimodal_identity("id", 5, "o"), multimodal_identity("id", 4, "p"),
      multimodal_identity("id2", 4, "o"), multimodal_identity("id", 4, ""),  multimodal_identity("id;length=4", 4, "o"),
  };
  EXPECT_EQ(different.size(), 6U);
}

}  // namespace
}  // namespace kvpool
