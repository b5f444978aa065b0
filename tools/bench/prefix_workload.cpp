#include "tools/bench/prefix_workload.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace kvpool::tools {
namespace {

constexpr std::size_t kSharedHead = 8;
constexpr std::size_t kPrefixesPerHead = 16;
constexpr std::size_t kDraws = 1U << 16U;
constexpr double kExponent = 0.99;

std::uint64_t mix(std::uint64_t value) noexcept {  // splitmix64's finaliser
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31U);
}

}  // namespace

BlockHash numbered_hash(std::uint64_t number) noexcept {
  // One mixed word is enough to look random, its variations cost little inside a measured loop.
  const std::uint64_t first = mix(number + 0x9e3779b97f4a7c15ULL);
  const std::array<std::uint64_t, 4> words{first, first * 0xd1342543de82ef95ULL, number, ~first};
  BlockHash hash;
  static_assert(sizeof words == BlockHash::kMaxBytes);
  std::memcpy(hash.bytes.data(), words.data(), sizeof words);
  hash.size = BlockHash::kMaxBytes;
  return hash;
}

PrefixTable::PrefixTable() : hashes_(kPrefixes * kPrefixBlocks) {
  constexpr std::uint64_t kHeadNumbers = std::uint64_t{1} << 32U;
  for (std::size_t prefix = 0; prefix < kPrefixes; ++prefix) {
    for (std::size_t i = 0; i < kPrefixBlocks; ++i) {
      const std::size_t number = i < kSharedHead ? kHeadNumbers + ((prefix / kPrefixesPerHead) * kSharedHead) + i
                                                 : (prefix * kPrefixBlocks) + i;
      hashes_[(prefix * kPrefixBlocks) + i] = numbered_hash(number);
    }
  }
}

ZipfSequence::ZipfSequence(std::uint64_t seed) : draws_(kDraws) {
  std::vector<double> cumulative(PrefixTable::kPrefixes);
  double sum = 0;
  for (std::size_t rank = 0; rank < cumulative.size(); ++rank) {
    sum += std::pow(static_cast<double>(rank + 1), -kExponent);
    cumulative[rank] = sum;
  }
  std::mt19937_64 random(seed + 1);
  std::uniform_real_distribution<double> uniform(0, sum);
  for (std::uint16_t& draw : draws_) {
    const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform(random));
    const auto rank = std::min<std::ptrdiff_t>(found - cumulative.begin(), PrefixTable::kPrefixes - 1);
    // Neighbours in rank share no head: popular prefixes come from many families.
    constexpr std::ptrdiff_t kStride = 1'657;  // coprime to the number of prefixes
    draw = static_cast<std::uint16_t>((rank * kStride) % static_cast<std::ptrdiff_t>(PrefixTable::kPrefixes));
  }
}

}  // namespace kvpool::tools
