// Which layers share a block table.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvpool/config/kv_cache_config.hpp"
#include "kvpool/foundation/error.hpp"

namespace kvpool {

/// A layer that needs KV cache. Lists of layers are in the order of the model.
using NamedLayer = UniformTypeSpec::Layer;

struct GroupingOptions {
  /// Allocate window and chunked layers like full attention, so that one block table serves all.
  bool disable_hybrid_kv_cache_manager = false;
  bool use_eagle = false;                 ///< a draft model reads the last layer's KV
  std::vector<std::string> draft_layers;  ///< layers of a draft model; their groups become EAGLE groups
};

/// Groups of one model, the same on every rank. All groups draw block ids from one pool, so a block has
/// the same bytes in each of them, or the packed layout is used (see memory_plan.hpp).
/// Errors: invalid_config (a spec that breaks a rule, a name used twice, window markers that contradict
/// each other, layers that no grouping can serve), unsupported (page sizes that cannot be made equal).
/// O(layers²) at worst, in the number of distinct specs.
[[nodiscard]] Result<std::vector<KVCacheGroup>> get_kv_cache_groups(std::span<const NamedLayer> layers,
                                                                    const GroupingOptions& options = {});

/// The part of `groups` that `layers` hold. Every group stays, also empty, because block ids are common
/// to all ranks; a mixed group without layers here is represented by the spec of one of its layers.
[[nodiscard]] std::vector<KVCacheGroup> project_groups(std::span<const KVCacheGroup> groups,
                                                       std::span<const NamedLayer> layers);

}  // namespace kvpool
