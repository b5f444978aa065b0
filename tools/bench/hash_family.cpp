// Hashes of 16-token units, chained as a request chains them.
#include <algorithm>
#include <chrono>
#include <memory>
#include <random>

#include "kvpool/prefix/block_hasher.hpp"
#include "tools/bench/families.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kUnitTokens = 16;
constexpr std::size_t kUnits = 4'096;
constexpr TokenId kVocabulary = 151'936;

std::vector<TokenId> random_tokens() {
  std::mt19937_64 random(7);
  std::uniform_int_distribution<TokenId> uniform(0, kVocabulary - 1);
  std::vector<TokenId> tokens(kUnits * kUnitTokens);
  std::generate(tokens.begin(), tokens.end(), [&] { return uniform(random); });
  return tokens;
}

Sample hash_chain(const BlockHasher& hasher, std::span<const TokenId> tokens, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::chrono::duration<double> passed{};
  std::size_t units = 0;
  BlockHash parent;
  do {
    for (std::size_t i = 0; i < kUnits; ++i) {
      parent = hasher.hash_unit(parent, tokens.subspan(i * kUnitTokens, kUnitTokens), {});
    }
    units += kUnits;
    passed = Clock::now() - start;
  } while (passed.count() < seconds);
  Sample sample;
  sample.ns_per_block = passed.count() * 1e9 / static_cast<double>(units);
  sample.ops_per_second = static_cast<double>(units) / passed.count();
  return sample;
}

}  // namespace

void bench_hashing(const BenchPlan& plan) {
  if (!plan.wants("hash")) {
    return;
  }
  const auto tokens = std::make_shared<const std::vector<TokenId>>(random_tokens());
  std::vector<Contender> contenders;
  for (const HashAlgorithm algorithm :
       {HashAlgorithm::sha256, HashAlgorithm::sha256_cbor, HashAlgorithm::xxhash, HashAlgorithm::xxhash_cbor}) {
    const auto hasher = std::make_shared<const BlockHasher>(algorithm, "0");
    contenders.push_back({{"hash"}, std::string(to_string(algorithm)), 1, [=, seconds = plan.seconds] {
                            return std::vector<Sample>{hash_chain(*hasher, *tokens, seconds)};
                          }});
  }
  for (BenchRow& row : interleave(plan, contenders)) {
    plan.report->add(std::move(row));
  }
}

}  // namespace kvpool::tools
