#include "kvpool/config/block_sizes.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "config/overloaded.hpp"
#include "config/saturating.hpp"

namespace kvpool {
namespace {

using config::Overloaded;

// The group's Mamba layer, null for attention.
const MambaSpec* state_of(const KVCacheSpec& spec) {
  return std::visit(Overloaded{
                        [](const MambaSpec& mamba) { return &mamba; },
                        [](const UniformTypeSpec& uniform) {
                          return uniform.layers.empty() ? nullptr
                                                        : std::get_if<MambaSpec>(&uniform.layers.front().spec);
                        },
                        [](const auto&) -> const MambaSpec* { return nullptr; },
                    },
                    spec);
}

// Needs hits at its own block boundaries only: finer hash units would find nothing more.
bool hashes_whole_blocks(const KVCacheGroup& group) {
  const MambaSpec* state = state_of(group.spec);
  return state != nullptr && state->cache_mode != MambaCacheMode::align;
}

std::int64_t saturating_lcm(std::int64_t a, std::int64_t b) { return config::mul(a / std::gcd(a, b), b); }

}  // namespace

std::int64_t tokens_per_block(const KVCacheSpec& spec, std::int64_t dcp_world_size) {
  return state_of(spec) != nullptr ? block_size(spec) : config::mul(block_size(spec), dcp_world_size);
}

Result<BlockSizes> resolve_block_sizes(std::span<const KVCacheGroup> groups, const BlockSizeOptions& options) {
  if (options.dcp_world_size < 1) {
    return {ErrorCode::invalid_config,
            "dcp_world_size " + std::to_string(options.dcp_world_size) + " must be at least 1"};
  }
  if (groups.size() <= 1) {
    const std::int64_t tokens = groups.empty() ? options.cache_block_size : block_size(groups.front().spec);
    if (tokens < 1) return {ErrorCode::invalid_config, "block_size " + std::to_string(tokens) + " must be at least 1"};
    const std::int64_t size = config::mul(tokens, options.dcp_world_size);
    return BlockSizes{size, size};
  }

  std::int64_t multiple = 1;
  std::int64_t divisor = 0;
  for (const KVCacheGroup& group : groups) {
    const std::int64_t tokens = tokens_per_block(group.spec, options.dcp_world_size);
    if (tokens < 1) return {ErrorCode::invalid_config, "block_size " + std::to_string(tokens) + " must be at least 1"};
    multiple = saturating_lcm(multiple, tokens);
    divisor = std::gcd(divisor, tokens);
  }
  if (multiple == config::kSaturated) {
    return {ErrorCode::invalid_config, "the groups' block sizes have no common multiple that fits in 63 bits"};
  }
  if (!options.enable_caching && !options.has_connector) return BlockSizes{multiple, multiple};
  if (std::any_of(groups.begin(), groups.end(), hashes_whole_blocks)) return BlockSizes{multiple, multiple};

  const std::int64_t unit = options.prefix_match_unit.value_or(divisor);
  for (const KVCacheGroup& group : groups) {
    const std::int64_t tokens = tokens_per_block(group.spec, options.dcp_world_size);
    if (unit < 1 || tokens % unit != 0) {
      return {ErrorCode::invalid_config,
              "prefix_match_unit " + std::to_string(unit) + " does not divide block size " + std::to_string(tokens)};
    }
  }
  return BlockSizes{multiple, unit};
}

}  // namespace kvpool
