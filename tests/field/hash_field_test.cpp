// Failures reported from the field that concern what a block's hash depends on (kind 2: wrong prefix hit).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/manager/request.hpp"
#include "kvpool/pool/block_pool.hpp"
#include "kvpool/prefix/content_identity.hpp"

namespace kvpool {
namespace {

constexpr std::array kAlgorithms{HashAlgorithm::sha256, HashAlgorithm::sha256_cbor, HashAlgorithm::xxhash,
                                 HashAlgorithm::xxhash_cbor};

std::shared_ptr<const RequestHashing> hashing_of(std::int64_t unit, HashAlgorithm algorithm = HashAlgorithm::sha256,
                                                 std::string_view seed = "0") {
  return std::make_shared<const RequestHashing>(RequestHashing{BlockHasher(algorithm, seed), unit});
}

std::vector<TokenId> counting_tokens(std::size_t count) {
  std::vector<TokenId> tokens(count);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// A pool whose blocks answer for the hashes of the requests that were published in it.
class Cache {
 public:
  explicit Cache(std::int64_t block_size) : block_size_(block_size), pool_(options()) {}

  /// Tokens of the longest cached prefix that ends before the request's last token.
  [[nodiscard]] std::int64_t hit_tokens(const Request& request) const {
    if (request.options().skip_reading_prefix_cache) return 0;
    const auto most = static_cast<std::size_t>((request.num_tokens() - 1) / block_size_);
    std::vector<BlockHandle> blocks(std::min(most, request.block_hashes().size()));
    return static_cast<std::int64_t>(pool_.find_prefix({request.block_hashes(), 1}, GroupId{0}, blocks)) * block_size_;
  }

  void publish(const Request& request) {
    std::vector<BlockId> blocks(request.block_hashes().size());
    ASSERT_TRUE(pool_.get_new_blocks(blocks));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto covered = static_cast<std::int64_t>(i + 1) * block_size_;
      EXPECT_TRUE(pool_.publish(blocks[i], BlockKey{request.block_hashes()[i], GroupId{0}}, covered));
    }
    std::ranges::reverse(blocks);
    EXPECT_TRUE(pool_.free_blocks(blocks));
  }

 private:
  static BlockPoolOptions options() {
    BlockPoolOptions options;
    options.num_blocks = 129;
    options.num_shards = 1;
    return options;
  }

  std::int64_t block_size_;
  BlockPool pool_;
};

Request make(RequestOptions options, const std::shared_ptr<const RequestHashing>& hashing) {
  return Request::create(std::move(options), hashing).value();
}

RequestOptions with_prompt(std::vector<TokenId> prompt) {
  RequestOptions options;
  options.prompt = std::move(prompt);
  return options;
}

// --- F013: adapter missing from the block key ----------------------------------------------------------

TEST(FieldF013, EqualTokensUnderOtherAdaptersDoNotHit) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    const auto hashing = hashing_of(4, algorithm);
    Cache cache(4);
    std::vector<std::int64_t> hits;
    for (const auto& adapter : {std::optional<std::string>{}, std::optional<std::string>{"X"},
                                std::optional<std::string>{"Y"}, std::optional<std::string>{"X"}}) {
      RequestOptions options = with_prompt(counting_tokens(16));
      options.lora_name = adapter;
      const Request request = make(std::move(options), hashing);
      hits.push_back(cache.hit_tokens(request));
      cache.publish(request);
    }
    EXPECT_EQ(hits, (std::vector<std::int64_t>{0, 0, 0, 12})) << to_string(algorithm);
  }
}

// --- F014: adapter identity by name or by process-local number -----------------------------------------

Request adapter_request(std::int64_t generation, std::int64_t lora_id) {
  RequestOptions options = with_prompt(counting_tokens(16));
  options.lora_name = adapter_identity("x", generation);
  options.lora_id = lora_id;
  return make(std::move(options), hashing_of(4));
}

TEST(FieldF014, AReloadedAdapterIsAnotherOne) {
  Cache cache(4);
  cache.publish(adapter_request(1, 7));
  EXPECT_EQ(cache.hit_tokens(adapter_request(2, 7)), 0);
  EXPECT_EQ(cache.hit_tokens(adapter_request(1, 7)), 12);
}

TEST(FieldF014, LoadOrderDoesNotMatter) {
  const Request here = adapter_request(1, 1);
  const Request there = adapter_request(1, 2);
  EXPECT_TRUE(std::ranges::equal(here.block_hashes(), there.block_hashes()));
}

// --- F015: truncated content id -------------------------------------------------------------------------

Request image_request(const std::string& identifier, const std::shared_ptr<const RequestHashing>& hashing) {
  RequestOptions options = with_prompt({1, 2, 3, 4, 5, 6, 9, 9, 9, 9, 7, 8, 10, 11, 12, 13, 14});
  options.mm_features = {{identifier, 6, 4}};
  return make(std::move(options), hashing);
}

TEST(FieldF015, EveryByteOfAContentIdCounts) {
  const std::string identifier = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
  for (const HashAlgorithm algorithm : kAlgorithms) {
    const auto hashing = hashing_of(4, algorithm);
    Cache cache(4);
    cache.publish(image_request(identifier, hashing));
    EXPECT_EQ(cache.hit_tokens(image_request(identifier, hashing)), 16);
    for (std::size_t i = 0; i < identifier.size(); ++i) {
      std::string other = identifier;
      other[i] = other[i] == '0' ? '1' : '0';
      // Tokens 0..3 lie before the image; block 1 holds its first tokens.
      EXPECT_EQ(cache.hit_tokens(image_request(other, hashing)), 4) << "byte " << i;
    }
  }
}

// --- F016: incomplete image metadata treated as plain text ----------------------------------------------

TEST(FieldF016, SpansThatDoNotDescribeTheirImagesAreErrors) {
  const auto refused = [](std::vector<MultimodalFeature> features) {
    RequestOptions options = with_prompt({101, 9, 9, 102, 103});
    options.mm_features = std::move(features);
    const auto request = Request::create(std::move(options), hashing_of(4));
    return !request.ok() && request.error().code == ErrorCode::invalid_argument;
  };
  EXPECT_FALSE(refused({{"a", 1, 2}}));
  EXPECT_TRUE(refused({{"a", 1, 0}})) << "no span";
  EXPECT_TRUE(refused({{"a", 1, -1}}));
  EXPECT_TRUE(refused({{"", 1, 2}})) << "no content id";
  EXPECT_TRUE(refused({{"a", -1, 2}}));
  EXPECT_TRUE(refused({{"a", 1, 2}, {"b", 2, 2}})) << "overlap";
  EXPECT_TRUE(refused({{"a", 1, 1}, {"b", 1, 1}})) << "the same span twice";
  EXPECT_TRUE(refused({{"a", 3, 1}, {"b", 1, 1}})) << "order";
  EXPECT_TRUE(refused({{"a", 4, 2}})) << "beyond the prompt";
  EXPECT_TRUE(refused({{"a", 5, 1}}));
  EXPECT_TRUE(refused({{"a", INT64_MAX, 1}}));
  EXPECT_TRUE(refused({{"a", INT64_MAX, INT64_MAX}}));
  EXPECT_TRUE(refused({{"a", 1, INT64_MAX}}));
}

TEST(FieldF016, TwoImagesNeverHitEachOther) {
  const auto hashing = hashing_of(4);
  const auto request = [&](const std::string& identifier) {
    RequestOptions options = with_prompt({101, 9, 9, 102, 103});
    options.mm_features = {{identifier, 1, 2}};
    return make(std::move(options), hashing);
  };
  Cache cache(4);
  cache.publish(request("a"));
  EXPECT_EQ(cache.hit_tokens(request("b")), 0);
  EXPECT_EQ(cache.hit_tokens(make(with_prompt({101, 9, 9, 102, 103}), hashing)), 0) << "the same tokens as text";
  EXPECT_EQ(cache.hit_tokens(request("a")), 4);
}

// --- F018: prompt logprobs need every prompt token ------------------------------------------------------

TEST(FieldF018, SkippingTheLookUpChangesNoHash) {
  const auto hashing = hashing_of(16);
  Cache cache(16);
  cache.publish(make(with_prompt(counting_tokens(39)), hashing));
  RequestOptions options = with_prompt(counting_tokens(39));
  options.skip_reading_prefix_cache = true;
  const Request skipping = make(std::move(options), hashing);
  const Request normal = make(with_prompt(counting_tokens(39)), hashing);
  EXPECT_EQ(cache.hit_tokens(normal), 32);
  EXPECT_EQ(cache.hit_tokens(skipping), 0);

  Cache other(16);
  other.publish(skipping);
  EXPECT_EQ(other.hit_tokens(normal), 32);
}

// --- F019: root hash seeding ----------------------------------------------------------------------------

std::string three_hashes(HashAlgorithm algorithm, std::string_view seed, std::optional<std::string> salt = {}) {
  RequestOptions options = with_prompt(counting_tokens(12));
  options.cache_salt = std::move(salt);
  const Request request = make(std::move(options), hashing_of(4, algorithm, seed));
  std::string text;
  for (const BlockHash& hash : request.block_hashes()) text += hash.to_hex() + ' ';
  return text;
}

/// What `three_hashes` answers in a process of its own.
std::string three_hashes_elsewhere(HashAlgorithm algorithm) {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe(ends.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = three_hashes(algorithm, BlockHasher::default_seed(algorithm, std::nullopt));
    const bool written = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 256> buffer{};
  for (ssize_t count = 0; (count = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return text;
}

TEST(FieldF019, TwoProcessesAgreeByDefault) {
  for (const HashAlgorithm algorithm : {HashAlgorithm::sha256, HashAlgorithm::sha256_cbor}) {
    const std::string here = three_hashes(algorithm, BlockHasher::default_seed(algorithm, std::nullopt));
    EXPECT_EQ(here, three_hashes_elsewhere(algorithm));
  }
}

// With the faster digest a known root would invite crafted collisions, so there the root is a secret.
TEST(FieldF019, WeakerDigestsGetARandomRoot) {
  for (const HashAlgorithm algorithm : {HashAlgorithm::xxhash, HashAlgorithm::xxhash_cbor}) {
    const std::string here = three_hashes(algorithm, BlockHasher::default_seed(algorithm, std::nullopt));
    const std::string elsewhere = three_hashes_elsewhere(algorithm);
    EXPECT_EQ(here.size(), elsewhere.size());
    EXPECT_NE(here, elsewhere);
  }
}

TEST(FieldF019, SeedAndSaltChangeEveryBlock) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    const std::string base = three_hashes(algorithm, "s1");
    const std::size_t step = base.size() / 3;
    EXPECT_GE(step - 1, 32U) << "at least 128 bits in hex";
    for (const std::string& other : {three_hashes(algorithm, "s2"), three_hashes(algorithm, "s1", "salt")}) {
      for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(base.substr(i * step, step), other.substr(i * step, step));
    }
    EXPECT_EQ(base, three_hashes(algorithm, "s1"));
  }
}

TEST(FieldF019, EveryTokenBitChangesItsBlockAndAllLaterOnes) {
  for (const HashAlgorithm algorithm : kAlgorithms) {
    const auto hashing = hashing_of(4, algorithm);
    const Request base = make(with_prompt(counting_tokens(12)), hashing);
    for (std::size_t token = 0; token < 12; ++token) {
      for (unsigned bit = 0; bit < 64; ++bit) {
        std::vector<TokenId> prompt = counting_tokens(12);
        prompt[token] = static_cast<TokenId>(static_cast<std::uint64_t>(prompt[token]) ^ (std::uint64_t{1} << bit));
        const Request other = make(with_prompt(std::move(prompt)), hashing);
        for (std::size_t block = 0; block < 3; ++block) {
          EXPECT_EQ(base.block_hashes()[block] == other.block_hashes()[block], block < token / 4)
              << to_string(algorithm) << " token " << token << " bit " << bit << " block " << block;
        }
      }
    }
  }
}

// --- F021: content id too short, or without decode options ----------------------------------------------

TEST(FieldF021, LengthAndDecodeOptionsArePartOfTheKey) {
  const auto hashing = hashing_of(4);
  // Placeholder tokens are the same number over and over, so only the identity can tell lengths apart.
  const auto request = [&](std::int64_t length, const std::string& options_text) {
    RequestOptions options = with_prompt(std::vector<TokenId>(24, 9));
    options.mm_features = {{multimodal_identity("9f86d081884c7d65", length, options_text), 0, length}};
    return make(std::move(options), hashing);
  };
  Cache cache(4);
  cache.publish(request(16, "o1"));
  EXPECT_EQ(cache.hit_tokens(request(20, "o1")), 0);
  EXPECT_EQ(cache.hit_tokens(request(12, "o1")), 0);
  EXPECT_EQ(cache.hit_tokens(request(16, "o2")), 0);
  EXPECT_EQ(cache.hit_tokens(request(16, "o1")), 20);
}

}  // namespace
}  // namespace kvpool
