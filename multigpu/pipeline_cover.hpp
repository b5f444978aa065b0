// Whether the layers of all pipeline stages together are the model: nothing missing, nothing twice.
#pragma once

#include <optional>
#include <span>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/rank_coordinator.hpp"

namespace kvpool::multigpu {

/// `stages`: what each rank said, in rank order; the model's layers are those of the first. Either every rank names a
/// stage or none does. Ranks of one stage hold the same layers, no layer belongs to two stages, and each layer of
/// the model belongs to one. The error (layout_mismatch) is a function of the arguments alone. O(layers log layers).
[[nodiscard]] std::optional<Error> find_gap_in_pipeline(std::span<const std::optional<PipelineStage>> stages);

}  // namespace kvpool::multigpu
