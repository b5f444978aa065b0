// Every line of tests/data/golden/hash_vectors.jsonl: root hashes, single units, chains of a request, image keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/manager/request.hpp"
#include "kvpool/prefix/block_hasher.hpp"
#include "prefix/cbor.hpp"
#include "prefix/pickle.hpp"

namespace kvpool {
namespace {

using nlohmann::json;

struct Vector {
  int line = 0;
  json value;
};

std::vector<Vector> vectors_of_kind(const std::string& kind) {
  std::ifstream file(KVPOOL_TEST_DATA "/golden/hash_vectors.jsonl");
  EXPECT_TRUE(file.is_open());
  std::vector<Vector> vectors;
  std::string text;
  for (int line = 1; std::getline(file, text); ++line) {
    json value = json::parse(text);
    if (value.at("kind") == kind) vectors.push_back({line, std::move(value)});
  }
  return vectors;
}

HashAlgorithm algorithm_of(const json& value) {
  const auto algorithm = hash_algorithm_from_string(value.at("algo").get<std::string>());
  EXPECT_TRUE(algorithm.has_value());
  return algorithm.value_or(HashAlgorithm::sha256);
}

/// Integers, and pairs [first, count] that stand for a run of numbers.
std::vector<TokenId> tokens_of(const json& list) {
  std::vector<TokenId> tokens;
  for (const json& item : list) {
    if (item.is_array()) {
      const auto first = item.at(0).get<TokenId>();
      const auto count = item.at(1).get<TokenId>();
      for (TokenId i = 0; i < count; ++i) tokens.push_back(first + i);
    } else {
      tokens.push_back(item.get<TokenId>());
    }
  }
  return tokens;
}

/// A text is an adapter or a salt: both are hashed as plain texts.
ExtraKeys keys_of(const json& extra) {
  ExtraKeys keys;
  if (extra.is_null()) return keys;
  for (const json& item : extra) {
    if (item.is_string()) {
      keys.emplace_back(LoraKey{item.get<std::string>()});
    } else if (item.is_array()) {
      keys.emplace_back(MultimodalKey{item.at(0).get<std::string>(), item.at(1).get<std::int64_t>()});
    } else {
      const auto digest = BlockHash::from_hex(item.at("bytes").get<std::string>());
      EXPECT_TRUE(digest.has_value());
      keys.emplace_back(PromptEmbedsKey{{digest->digest().begin(), digest->digest().end()}});
    }
  }
  return keys;
}

/// The inverse of keys_of.
json json_of(const ExtraKeys& keys) {
  if (keys.empty()) return nullptr;
  json list = json::array();
  for (const ExtraKey& key : keys) {
    if (const auto* lora = std::get_if<LoraKey>(&key)) list.push_back(lora->name);
    if (const auto* salt = std::get_if<SaltKey>(&key)) list.push_back(salt->salt);
    if (const auto* item = std::get_if<MultimodalKey>(&key)) list.push_back({item->identifier, item->offset});
    if (const auto* rows = std::get_if<PromptEmbedsKey>(&key)) {
      list.push_back({{"bytes", BlockHash::from_digest(rows->sha256).to_hex()}});
    }
  }
  return list;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

/// The vectors also have parents longer than any digest.
std::vector<std::uint8_t> bytes_of(const std::string& text) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i < text.size(); i += 2) {
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string encoded_hex(HashAlgorithm algorithm, const UnitContent& unit) {
  const bool pickled = algorithm == HashAlgorithm::sha256 || algorithm == HashAlgorithm::xxhash;
  std::vector<std::uint8_t> out(pickled ? pickle::unit_bound(unit) : cbor::unit_bound(unit));
  out.resize(pickled ? pickle::encode_unit(unit, out.data()) : cbor::encode_unit(unit, out.data()));
  return hex(out);
}

std::vector<MultimodalFeature> features_of(const json& list) {
  std::vector<MultimodalFeature> features;
  for (const json& item : list) {
    features.push_back({item.at("identifier"), item.at("offset"), item.at("length")});
  }
  return features;
}

std::optional<std::string> optional_text(const json& value) {
  return value.is_null() ? std::nullopt : std::optional(value.get<std::string>());
}

TEST(HashVectors, Roots) {
  const auto vectors = vectors_of_kind("root");
  ASSERT_EQ(vectors.size(), 40U);
  for (const auto& [line, value] : vectors) {
    const BlockHasher hasher(algorithm_of(value), value.at("seed").get<std::string>());
    EXPECT_EQ(hasher.root().to_hex(), value.at("root")) << "line " << line;
    EXPECT_EQ(hasher.seed(), value.at("seed")) << "line " << line;
  }
}

TEST(HashVectors, Units) {
  const auto vectors = vectors_of_kind("unit");
  ASSERT_EQ(vectors.size(), 308U);
  std::size_t with_bytes = 0;
  for (const auto& [line, value] : vectors) {
    const HashAlgorithm algorithm = algorithm_of(value);
    const BlockHasher hasher(algorithm, "another seed, since every vector names its parent");
    const std::vector<std::uint8_t> parent = bytes_of(value.at("parent").get<std::string>());
    const std::vector<TokenId> tokens = tokens_of(value.at("tokens"));
    const ExtraKeys extra = keys_of(value.at("extra"));
    const BlockHash hash = hasher.hash_unit_after(parent, tokens, extra);
    EXPECT_EQ(hash.to_hex(), value.at("hash")) << "line " << line;
    EXPECT_EQ(hash.event_id(), value.at("event").get<std::uint64_t>()) << "line " << line;
    if (!value.contains("encoded")) continue;
    ++with_bytes;
    EXPECT_EQ(encoded_hex(algorithm, {parent, tokens, extra}), value.at("encoded")) << "line " << line;
  }
  EXPECT_EQ(with_bytes, 222U);
}

TEST(HashVectors, Chains) {
  const auto vectors = vectors_of_kind("chain");
  ASSERT_EQ(vectors.size(), 56U);
  for (const auto& [line, value] : vectors) {
    const std::int64_t unit = value.at("hash_block_size");
    auto hashing = std::make_shared<const RequestHashing>(
        RequestHashing{BlockHasher(algorithm_of(value), value.at("seed").get<std::string>()), unit});
    RequestOptions options;
    options.prompt = tokens_of(value.at("tokens"));
    options.lora_name = optional_text(value.at("lora"));
    options.cache_salt = optional_text(value.at("cache_salt"));
    options.mm_features = features_of(value.at("mm"));
    auto request = Request::create(std::move(options), hashing);
    ASSERT_TRUE(request.ok()) << "line " << line << ": " << request.error().message;
    // One token at a time, as a decoding engine appends them.
    for (const TokenId token : tokens_of(value.at("appended"))) request->append_tokens({&token, 1});

    const json& hashes = value.at("hashes");
    ASSERT_EQ(request->block_hashes().size(), hashes.size()) << "line " << line;
    std::int64_t cursor = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) {
      EXPECT_EQ(request->block_hashes()[i].to_hex(), hashes.at(i)) << "line " << line << ", unit " << i;
      const auto start = static_cast<std::int64_t>(i) * unit;
      EXPECT_EQ(json_of(request->extra_keys(start, start + unit, cursor)), value.at("extra").at(i))
          << "line " << line << ", unit " << i;
    }
  }
}

TEST(HashVectors, ImageKeys) {
  const auto vectors = vectors_of_kind("keys");
  ASSERT_EQ(vectors.size(), 103U);
  for (const auto& [line, value] : vectors) {
    RequestOptions options;
    options.mm_features = features_of(value.at("mm"));
    std::int64_t prompt = value.at("end");
    for (const MultimodalFeature& item : options.mm_features) prompt = std::max(prompt, item.offset + item.length);
    options.prompt.resize(static_cast<std::size_t>(prompt));
    const auto request = Request::create(std::move(options), nullptr);
    ASSERT_TRUE(request.ok()) << "line " << line << ": " << request.error().message;
    std::int64_t cursor = value.at("cursor");
    EXPECT_EQ(json_of(request->extra_keys(value.at("start"), value.at("end"), cursor)), value.at("extra"))
        << "line " << line;
    EXPECT_EQ(cursor, value.at("next").get<std::int64_t>()) << "line " << line;
  }
}

}  // namespace
}  // namespace kvpool
