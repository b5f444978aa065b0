// The byte strings of both encoders: short ones in full, long ones by length, ends and digest.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "prefix/digest.hpp"
#include "unit/prefix/encoded_bytes.hpp"

namespace kvpool {
namespace {

using nlohmann::json;

const std::string kParentHex = "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198";

struct Unit {
  BlockHash parent = *BlockHash::from_hex(kParentHex);
  std::vector<TokenId> tokens;
  ExtraKeys extra;

  [[nodiscard]] UnitContent content() const { return {parent.digest(), tokens, extra}; }
};

Unit plain_unit() {
  Unit unit;
  unit.tokens.resize(16);
  std::iota(unit.tokens.begin(), unit.tokens.end(), 0);
  return unit;
}

Unit unit_with_keys() {
  Unit unit;
  unit.tokens = {0, 255, 256, 65535, 65536, 151643, 2147483647, 1};
  unit.extra = {LoraKey{"my-lora"}, MultimodalKey{"aaa", -5}, MultimodalKey{"bbb", 14}};
  return unit;
}

Unit salted_unit() {
  Unit unit;
  unit.tokens = {7};
  unit.extra = {SaltKey{"salt"}};
  return unit;
}

TEST(Pickle, UnitsAsCPythonWritesThem) {
  const std::string parent = "4320" + kParentHex + "94";
  EXPECT_EQ(to_hex(pickled(plain_unit().content())),
            "8005954a00000000000000" + parent +
                "284b004b014b024b034b044b054b064b074b084b094b0a4b0b4b0c4b0d4b0e4b0f74944e87942e");
  EXPECT_EQ(to_hex(pickled(unit_with_keys().content())),
            "8005956700000000000000" + parent +
                "284b004bff4d00014dffff4a000001004a5b5002004affffff7f4b017494"
                "8c076d792d6c6f7261948c03616161944afbffffff86948c03626262944b0e8694879487942e");
  EXPECT_EQ(to_hex(pickled(salted_unit().content())),
            "8005953300000000000000" + parent + "4b0785948c0473616c7494859487942e");
}

TEST(Pickle, EmptyTupleAndWideIntegers) {
  const BlockHash zero = *BlockHash::from_hex("00");
  EXPECT_EQ(to_hex(pickled(UnitContent{zero.digest(), {}, {}})), "800595090000000000000043010094294e87942e");
  const std::vector<TokenId> tokens{-1, TokenId{1} << 31, TokenId{1} << 40, -5};
  EXPECT_EQ(to_hex(pickled(UnitContent{zero.digest(), tokens, {}})),
            "8005952400000000000000430100"
            "94284affffffff8a0500000080008a060000000000014afbffffff74944e87942e");
}

TEST(Pickle, EqualTextsAreWrittenTwice) {
  Unit unit;
  unit.tokens = {1};
  unit.extra = {MultimodalKey{"abc", 0}, MultimodalKey{"abc", 4}};
  const std::string text = to_hex(pickled(unit.content()));
  EXPECT_NE(text.find("8c0361626394"
                      "4b008694"
                      "8c0361626394"
                      "4b048694"
                      "869487942e"),
            std::string::npos)
      << text;
}

TEST(Cbor, UnitsInShortestForm) {
  const std::string parent = "835820" + kParentHex;
  EXPECT_EQ(to_hex(cbor_encoded(plain_unit().content())), parent + "90000102030405060708090a0b0c0d0e0ff6");
  EXPECT_EQ(to_hex(cbor_encoded(unit_with_keys().content())), parent +
                                                                  "880018ff19010019ffff1a000100001a0002505b1a7fffffff01"
                                                                  "83676d792d6c6f7261826361616124"
                                                                  "82636262620e");
  EXPECT_EQ(to_hex(cbor_encoded(salted_unit().content())), parent + "8107816473616c74");
}

std::string run_of_text(const json& run) {
  std::string text;
  for (int i = 0; i < run.at(1).get<int>(); ++i) text += run.at(0).get<std::string>();
  return text;
}

ExtraKeys keys_of(const json& extra) {
  ExtraKeys keys;
  if (extra.is_null()) return keys;
  for (const json& key : extra) {
    if (key.contains("text")) {
      keys.emplace_back(SaltKey{run_of_text(key.at("text"))});
    } else if (key.contains("item")) {
      keys.emplace_back(MultimodalKey{run_of_text(key.at("item")), key.at("item").at(2).get<std::int64_t>()});
    } else {
      const BlockHash digest = BlockHash::from_hex(key.at("bytes").get<std::string>()).value();
      keys.emplace_back(PromptEmbedsKey{{digest.digest().begin(), digest.digest().end()}});
    }
  }
  return keys;
}

Bytes encode(const json& value) {
  const bool pickle = value.at("encoder") == "pickle";
  if (value.contains("seed")) {
    const std::string text = run_of_text(value.at("seed"));
    return pickle ? pickled(text) : cbor_encoded(text);
  }
  Unit unit;
  unit.parent = BlockHash::from_hex(value.at("parent").get<std::string>()).value();
  for (const json& run : value.at("tokens")) {
    unit.tokens.insert(unit.tokens.end(), run.at(1).get<std::size_t>(), run.at(0).get<TokenId>());
  }
  unit.extra = keys_of(value.at("extra"));
  return pickle ? pickled(unit.content()) : cbor_encoded(unit.content());
}

// Lengths around 255, 65,535 and the frame size; integers around every length. tests/data/hash/
// make_encoder_vectors.py made the expected values with CPython.
TEST(Encoders, LargeAndUnusualUnits) {
  std::ifstream file(KVPOOL_TEST_DATA "/hash/encoder_vectors.jsonl");
  ASSERT_TRUE(file.is_open());
  std::string text;
  int lines = 0;
  while (std::getline(file, text)) {
    ++lines;
    const json value = json::parse(text);
    const Bytes bytes = encode(value);
    ASSERT_EQ(bytes.size(), value.at("length").get<std::size_t>()) << "line " << lines;
    const auto ends = static_cast<std::ptrdiff_t>(std::min<std::size_t>(bytes.size(), 24));
    EXPECT_EQ(to_hex(Bytes(bytes.begin(), bytes.begin() + ends)), value.at("head")) << "line " << lines;
    EXPECT_EQ(to_hex(Bytes(bytes.end() - ends, bytes.end())), value.at("tail")) << "line " << lines;
    EXPECT_EQ(sha256(bytes).to_hex(), value.at("sha256")) << "line " << lines;
  }
  EXPECT_EQ(lines, 316);
}

}  // namespace
}  // namespace kvpool
