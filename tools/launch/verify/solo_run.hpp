// One request computed by one rank alone: same kernels, all heads, no sharing, blocks in reverse order.
#pragma once

#include <cstdint>
#include <span>

#include "kvpool/foundation/error.hpp"
#include "tools/launch/rank/rank_step.hpp"

namespace kvpool::launch {

struct SoloOptions {
  std::int64_t block_size = 16;
  std::int64_t chunk = 192;  ///< tokens per step
};

/// What ranks, batches, prefix reuse and preemption must not change: results of the last `rows` tokens over the heads
/// of `model`. Allocates its own pages. Precondition: 1 <= rows <= tokens.size().
[[nodiscard]] Result<GatheredOutputs> run_alone(const TinyModel& model, const SoloOptions& options,
                                                const ExecutorOptions& executor, std::span<const TokenId> tokens,
                                                std::size_t rows);

/// The slice of a rank that is alone.
[[nodiscard]] HeadSlice all_heads(const ModelConfig& model);

}  // namespace kvpool::launch
