// The one place that knows which rules a spec asks for.
#pragma once

#include <memory>
#include <optional>

#include "kvpool/config/kv_cache_spec.hpp"
#include "kvpool/foundation/error.hpp"
#include "manager/single_type_manager.hpp"

namespace kvpool {

/// Facts about a spec that the coordinator needs before it builds the manager.
struct SpecTraits {
  bool is_state = false;     ///< recurrent: no context-parallel scaling, no zeroing
  bool is_windowed = false;  ///< sliding window or chunked local: has an admission cap
  bool is_sparse = false;    ///< sliding window or state: sparse retention applies
  bool is_full_attention = false;
  bool is_encoder = false;  ///< cross attention
  bool is_chunked_local = false;
  std::int64_t permanent_blocks = 0;
  std::optional<std::int64_t> window{};  ///< tokens, as told in events
};

/// Errors: unsupported (a type without a manager), invalid_config (a size out of range).
[[nodiscard]] Result<SpecTraits> spec_traits(const KVCacheSpec& spec);

/// Precondition: spec_traits(spec) succeeded.
[[nodiscard]] std::unique_ptr<SingleTypeManager> make_manager(const KVCacheSpec& spec, const GroupContext& context);

}  // namespace kvpool
