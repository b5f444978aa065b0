#include "multigpu/pipeline_cover.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace kvpool::multigpu {

namespace {

constexpr std::size_t kMaxNamed = 4;

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

Error mismatch(std::string message, std::size_t rank) {
  return {ErrorCode::layout_mismatch, std::move(message), static_cast<int>(rank)};
}

/// "a, b, c and 12 more"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMaxNamed); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > kMaxNamed) text += " and " + std::to_string(names.size() - kMaxNamed) + " more";
  return text;
}

struct Owner {
  std::size_t rank = 0;
  int stage = 0;
};

}  // namespace

std::optional<Error> find_gap_in_pipeline(std::span<const std::optional<PipelineStage>> stages) {
  const auto named = [](const std::optional<PipelineStage>& stage) { return stage.has_value(); };
  if (std::none_of(stages.begin(), stages.end(), named)) return std::nullopt;
  for (std::size_t r = 0; r < stages.size(); ++r) {
    if (stages[r].has_value() == stages[0].has_value()) continue;
    const std::size_t silent = stages[r] ? 0 : r;
    const std::size_t other = stages[r] ? r : 0;
    return mismatch(rank_text(silent) + " names no pipeline stage, " + rank_text(other) + " does", silent);
  }
  std::map<int, std::pair<std::size_t, std::set<std::string>>> by_stage;
  std::map<std::string, Owner> owners;
  for (std::size_t r = 0; r < stages.size(); ++r) {
    const PipelineStage& mine = *stages[r];
    std::set<std::string> layers(mine.layers.begin(), mine.layers.end());
    if (layers.size() != mine.layers.size()) return mismatch(rank_text(r) + " names a layer twice", r);
    const auto [stage, is_new] = by_stage.try_emplace(mine.index, r, layers);
    if (!is_new && stage->second.second != layers) {
      return mismatch(rank_text(r) + " and " + rank_text(stage->second.first) + " are both of pipeline stage " +
                          std::to_string(mine.index) + ", but hold different layers",
                      r);
    }
    for (const std::string& layer : layers) {
      const auto [owner, first] = owners.try_emplace(layer, Owner{r, mine.index});
      if (first || owner->second.stage == mine.index) continue;
      return mismatch("layer " + layer + " is on " + rank_text(owner->second.rank) + " (stage " +
                          std::to_string(owner->second.stage) + ") and on " + rank_text(r) + " (stage " +
                          std::to_string(mine.index) + ")",
                      r);
    }
  }
  std::vector<std::string> missing;
  std::set<std::string> model;
  for (const std::string& layer : stages[0]->model_layers) {
    model.insert(layer);
    if (!owners.contains(layer)) missing.push_back(layer);
  }
  if (!missing.empty()) {
    return Error{ErrorCode::layout_mismatch,
                 "no pipeline stage holds " + listed(missing) + " of the model's " +
                     std::to_string(stages[0]->model_layers.size()) + " layers",
                 -1};
  }
  for (const auto& [layer, owner] : owners) {
    if (model.contains(layer)) continue;
    return mismatch(rank_text(owner.rank) + " holds layer " + layer + ", which the model does not have", owner.rank);
  }
  return std::nullopt;
}

}  // namespace kvpool::multigpu
