#include "kvpool/multigpu/block_transfer.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace kvpool {

namespace {

Status out_of_range(std::size_t pair, std::string_view side, std::int64_t id, std::int64_t blocks) {
  return {ErrorCode::unknown_block, "pair " + std::to_string(pair) + ": " + std::string(side) + " block " +
                                        std::to_string(id) + " is not in 1 to " + std::to_string(blocks - 1) +
                                        " of its pool"};
}

}  // namespace

Status check_block_pairs(std::span<const BlockPair> pairs, std::int64_t source_blocks,
                         std::int64_t destination_blocks) {
  std::vector<std::int64_t> destinations;
  destinations.reserve(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto source = static_cast<std::int64_t>(pairs[i].source.value());
    const auto destination = static_cast<std::int64_t>(pairs[i].destination.value());
    if (source < 1 || source >= source_blocks) return out_of_range(i, "source", source, source_blocks);
    if (destination < 1 || destination >= destination_blocks) {
      return out_of_range(i, "destination", destination, destination_blocks);
    }
    destinations.push_back(destination);
  }
  std::sort(destinations.begin(), destinations.end());
  const auto twice = std::adjacent_find(destinations.begin(), destinations.end());
  if (twice == destinations.end()) return {};
  return {ErrorCode::invalid_argument, "destination block " + std::to_string(*twice) + " is written twice"};
}

}  // namespace kvpool
