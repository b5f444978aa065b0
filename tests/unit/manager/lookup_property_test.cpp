// Look-ups over several groups against a brute-force search over all lengths.
#include <algorithm>
#include <random>
#include <set>

#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

/// One group as the brute force sees it: which of its blocks are cached.
struct Cached {
  KVCacheGroup group;
  std::int64_t block_size = 0;
  std::set<std::int64_t> blocks;

  [[nodiscard]] bool has(std::int64_t first, std::int64_t last) const {
    for (std::int64_t i = first; i < last; ++i) {
      if (blocks.count(i) == 0) return false;
    }
    return true;
  }

  /// Whether the group can go on from `length` tokens. A draft group must have the block behind, too,
  /// for that one is computed again.
  [[nodiscard]] bool holds(std::int64_t length, bool drop, std::int64_t max_length) const {
    if (length % block_size != 0) return false;
    if (length == 0) return true;
    std::int64_t end = length / block_size;
    if (std::holds_alternative<MambaSpec>(group.spec)) return blocks.count(end - 1) != 0;
    if (const auto* chunk = std::get_if<ChunkedLocalAttentionSpec>(&group.spec)) {
      return has(length / chunk->attention_chunk_size * chunk->attention_chunk_size / block_size, end);
    }
    if (drop) {
      ++end;
      if (end * block_size > max_length) return false;
    }
    if (const auto* window = std::get_if<SlidingWindowSpec>(&group.spec)) {
      const std::int64_t needed = (window->sliding_window - 1 + block_size - 1) / block_size + (drop ? 1 : 0);
      return has(std::max<std::int64_t>(0, end - needed), end);
    }
    return has(0, end);
  }
};

std::vector<KVCacheGroup> random_groups(std::mt19937& random, bool drafts) {
  const auto pick = [&random](int count) { return static_cast<int>(random() % static_cast<unsigned>(count)); };
  std::vector<KVCacheGroup> groups;
  const int count = 2 + pick(3);
  for (int g = 0; g < count; ++g) {
    const std::int64_t size = pick(2) == 0 ? 4 : 8;
    switch (pick(drafts ? 3 : 4)) {
      case 0: groups.push_back(full(size, drafts && pick(2) == 0)); break;
      case 1: groups.push_back(window(size, 2 + pick(30), drafts && pick(2) == 0)); break;
      case 2: groups.push_back(mamba(size, MambaCacheMode::all)); break;
      default: groups.push_back(chunked(size, 16)); break;
    }
  }
  return groups;
}

/// A random part of a random prefix of the request's blocks is cached in every group.
std::vector<Cached> fill(Engine& engine, const Request& request, std::mt19937& random) {
  std::vector<Cached> state;
  const std::vector<KVCacheGroup>& groups = engine->config().groups;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    Cached cached{groups[g], block_size(groups[g].spec), {}};
    const std::int64_t blocks = (request.num_tokens() - 1) / cached.block_size;
    const std::int64_t prefix = static_cast<std::int64_t>(random() % static_cast<unsigned>(blocks + 1));
    const auto density = 5 + random() % 6;
    for (std::int64_t i = 0; i < blocks; ++i) {
      if (i < prefix ? random() % 50 == 0 : random() % 10 >= density) continue;
      BlockId block{};
      EXPECT_TRUE(engine.pool().get_new_blocks(std::span(&block, 1)));
      const std::size_t unit = static_cast<std::size_t>((i + 1) * cached.block_size / 4 - 1);
      engine.pool().publish(block, {request.block_hashes()[unit], GroupId{static_cast<std::uint32_t>(g)}},
                            (i + 1) * cached.block_size);
      cached.blocks.insert(i);
    }
    state.push_back(std::move(cached));
  }
  // Groups of equal spec are looked up jointly: a block counts when all of them have it.
  for (Cached& a : state) {
    for (const Cached& b : state) {
      if (!(a.group.spec == b.group.spec)) continue;
      std::set<std::int64_t> both;
      std::set_intersection(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(),
                            std::inserter(both, both.begin()));
      a.blocks = both;
    }
  }
  return state;
}

bool drops(const std::vector<Cached>& state, const Cached& asked) {
  return std::any_of(state.begin(), state.end(), [&](const Cached& other) {
    return other.group.spec == asked.group.spec && other.group.is_eagle_group;
  });
}

class LookupProperty : public testing::TestWithParam<bool> {};

TEST_P(LookupProperty, F059_AgreesWithBruteForce) {
  const bool drafts = GetParam();
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    EngineOptions options{.num_blocks = 400, .groups = random_groups(random, drafts), .hash_block_size = 4};
    Engine engine(options);
    const Request request = engine.request(tokens(0, 20 + static_cast<std::int64_t>(random() % 60)));
    const std::vector<Cached> state = fill(engine, request, random);
    const std::int64_t alignment = engine->options().scheduler_block_size;
    const std::int64_t max_length = request.num_tokens() - 1;
    std::int64_t longest = 0;
    for (std::int64_t length = alignment; length <= max_length; length += alignment) {
      const bool everywhere = std::all_of(state.begin(), state.end(), [&](const Cached& group) {
        return group.holds(length, drops(state, group), max_length);
      });
      if (everywhere) longest = length;
    }
    const PrefixHit hit = engine->get_computed_blocks(request);
    if (drafts) {
      // The search does not try every length again after a drop, so it may stop earlier; never later.
      ASSERT_LE(hit.num_computed_tokens, longest) << "seed " << seed;
      for (const Cached& group : state) {
        ASSERT_TRUE(group.holds(hit.num_computed_tokens, drops(state, group), max_length)) << "seed " << seed;
      }
    } else {
      ASSERT_EQ(hit.num_computed_tokens, longest) << "seed " << seed;
    }
    for (std::size_t g = 0; g < state.size(); ++g) {
      ASSERT_EQ(static_cast<std::int64_t>(hit.blocks.groups[g].size()), hit.num_computed_tokens / state[g].block_size)
          << "seed " << seed << " group " << g;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, LookupProperty, testing::Values(false, true),
                         [](const auto& param) { return std::string(param.param ? "with_drafts" : "without_drafts"); });

}  // namespace
}  // namespace kvpool::test
