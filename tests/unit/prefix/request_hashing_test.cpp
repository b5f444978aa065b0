// What a request hashes, when, and which requests are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kvpool/manager/request.hpp"
#include "prefix/digest.hpp"

namespace kvpool {
namespace {

std::shared_ptr<const RequestHashing> hashing_of(std::int64_t unit) {
  return std::make_shared<const RequestHashing>(RequestHashing{BlockHasher(HashAlgorithm::sha256, "0"), unit});
}

RequestOptions counting_options(std::size_t count) {
  RequestOptions options;
  options.id = "r";
  options.prompt.resize(count);
  std::iota(options.prompt.begin(), options.prompt.end(), 0);
  return options;
}

Request make(RequestOptions options, std::int64_t unit) {
  return Request::create(std::move(options), hashing_of(unit)).value();
}

void expect_refused(RequestOptions options, const std::string& part) {
  const auto request = Request::create(std::move(options), hashing_of(4));
  ASSERT_FALSE(request.ok()) << part;
  EXPECT_EQ(request.error().code, ErrorCode::invalid_argument);
  EXPECT_NE(request.error().message.find(part), std::string::npos) << request.error().message;
}

TEST(RequestHashing, OnlyFullUnitsHaveHashes) {
  for (const std::size_t count : {1U, 3U, 4U, 5U, 7U, 8U, 9U}) {
    EXPECT_EQ(make(counting_options(count), 4).block_hashes().size(), count / 4) << count;
  }
}

TEST(RequestHashing, AppendingGivesTheHashesOfTheWholeText) {
  const Request whole = make(counting_options(50), 4);
  for (const std::size_t step : {1U, 2U, 3U, 4U, 5U, 9U, 40U}) {
    Request grown = make(counting_options(3), 4);
    std::vector<TokenId> rest(47);
    std::iota(rest.begin(), rest.end(), 3);
    for (std::size_t i = 0; i < rest.size(); i += step) {
      grown.append_tokens(std::span(rest).subspan(i, std::min(step, rest.size() - i)));
    }
    EXPECT_TRUE(std::ranges::equal(grown.tokens(), whole.tokens())) << step;
    EXPECT_TRUE(std::ranges::equal(grown.block_hashes(), whole.block_hashes())) << step;
    EXPECT_EQ(grown.num_prompt_tokens(), 3);
  }
}

TEST(RequestHashing, NoHashingWithoutSettings) {
  auto request = Request::create(counting_options(40), nullptr);
  ASSERT_TRUE(request.ok());
  const std::vector<TokenId> more(40, 1);
  request->append_tokens(more);
  EXPECT_EQ(request->num_tokens(), 80);
  EXPECT_TRUE(request->block_hashes().empty());
}

TEST(RequestHashing, KeysOfAUnitAreInTheirOrder) {
  RequestOptions options = counting_options(8);
  options.lora_name = "lora";
  options.cache_salt = "salt";
  options.mm_features = {{"image", 2, 4}};
  options.prompt_embeddings = PromptEmbeddings{std::vector<std::uint8_t>(16, 9), 2};
  const Request request = make(std::move(options), 4);
  std::int64_t cursor = 0;
  const std::vector<std::uint8_t> rows(8, 9);
  const auto digest = sha256(rows);
  const PromptEmbedsKey embeddings{{digest.digest().begin(), digest.digest().end()}};
  EXPECT_EQ(request.extra_keys(0, 4, cursor),
            (ExtraKeys{LoraKey{"lora"}, MultimodalKey{"image", 2}, SaltKey{"salt"}, embeddings}));
  EXPECT_EQ(request.extra_keys(4, 8, cursor), (ExtraKeys{LoraKey{"lora"}, MultimodalKey{"image", -2}, embeddings}));
}

TEST(RequestHashing, AnEmptySaltIsNone) {
  RequestOptions options = counting_options(8);
  options.cache_salt = "";
  const Request salted = make(std::move(options), 4);
  EXPECT_TRUE(std::ranges::equal(salted.block_hashes(), make(counting_options(8), 4).block_hashes()));
}

TEST(RequestHashing, EmbeddingRowsEndWithThePrompt) {
  RequestOptions options = counting_options(6);
  options.prompt_embeddings = PromptEmbeddings{{1, 2, 3, 4, 5, 6}, 1};
  Request request = make(std::move(options), 4);
  const std::vector<TokenId> more(6, 1);
  request.append_tokens(more);
  ASSERT_EQ(request.block_hashes().size(), 3U);
  const auto key = [&](std::int64_t start, std::int64_t end) {
    std::int64_t cursor = 0;
    return BlockHash::from_digest(std::get<PromptEmbedsKey>(request.extra_keys(start, end, cursor).at(0)).sha256);
  };
  EXPECT_EQ(key(0, 4), sha256(std::vector<std::uint8_t>{1, 2, 3, 4}));
  EXPECT_EQ(key(4, 8), sha256(std::vector<std::uint8_t>{5, 6}));
  EXPECT_EQ(key(8, 12), sha256({}));
}

// The prompt ends inside a unit with two images; output tokens complete it later.
TEST(RequestHashing, EveryImageOfAUnitCompletedLaterCounts) {
  const auto hashes = [](const std::string& first, const std::string& second) {
    RequestOptions options = counting_options(10);
    options.mm_features = {{first, 4, 2}, {second, 7, 2}};
    Request request = make(std::move(options), 4);
    const std::vector<TokenId> more(2, 1);
    request.append_tokens(more);
    return std::vector<BlockHash>(request.block_hashes().begin(), request.block_hashes().end());
  };
  const auto hashes8 = [](const std::string& first, const std::string& second) {
    RequestOptions options = counting_options(13);
    options.mm_features = {{first, 9, 1}, {second, 11, 1}};
    Request request = make(std::move(options), 8);
    const std::vector<TokenId> more(3, 1);
    request.append_tokens(more);
    return std::vector<BlockHash>(request.block_hashes().begin(), request.block_hashes().end());
  };
  EXPECT_EQ(hashes("a", "b").size(), 3U);
  EXPECT_NE(hashes("a", "b")[1], hashes("x", "b")[1]);
  ASSERT_EQ(hashes8("a", "b").size(), 2U);
  EXPECT_EQ(hashes8("a", "b")[0], hashes8("x", "b")[0]);
  EXPECT_NE(hashes8("a", "b")[1], hashes8("x", "b")[1]);
  EXPECT_NE(hashes8("a", "b")[1], hashes8("a", "x")[1]);
}

TEST(RequestValidation, BadArgumentsAreNamed) {
  expect_refused({}, "prompt is empty");
  EXPECT_FALSE(Request::create(counting_options(4), hashing_of(0)).ok());
  EXPECT_FALSE(Request::create(counting_options(4), hashing_of(-16)).ok());

  RequestOptions options = counting_options(4);
  options.prompt_embeddings = PromptEmbeddings{std::vector<std::uint8_t>(7), 2};
  expect_refused(options, "7 bytes");
  options.prompt_embeddings = PromptEmbeddings{std::vector<std::uint8_t>(8), 0};
  expect_refused(options, "rows of 0 bytes");
  options.prompt_embeddings = PromptEmbeddings{std::vector<std::uint8_t>(6), 2};
  expect_refused(options, "4 rows");
  options.prompt_embeddings = PromptEmbeddings{{}, std::numeric_limits<std::int64_t>::max()};
  expect_refused(options, "0 bytes");
}

TEST(RequestValidation, SpansOnTheEdgesAreFine) {
  RequestOptions options = counting_options(8);
  options.mm_features = {{"a", 0, 3}, {"b", 3, 1}, {"c", 4, 4}};
  EXPECT_TRUE(Request::create(std::move(options), hashing_of(4)).ok());
}

}  // namespace
}  // namespace kvpool
