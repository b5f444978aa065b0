#include "kvpool/multigpu/rank_coordinator.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <utility>

#include "multigpu/agreement_messages.hpp"
#include "multigpu/pipeline_cover.hpp"
#include "multigpu/sha256_text.hpp"

namespace kvpool {

namespace {

using multigpu::CommitMessage;
using multigpu::HelloMessage;

constexpr std::size_t kMaxNamedDifferences = 8;

std::string rank_text(std::size_t rank) { return "rank " + std::to_string(rank); }

Error unreadable(std::size_t rank, std::string_view step, std::size_t bytes) {
  return {ErrorCode::bad_input,
          rank_text(rank) + " sent " + std::to_string(bytes) + " bytes in step '" + std::string(step) +
              "' that cannot be read",
          static_cast<int>(rank)};
}

/// Every rank that failed, in its own words. Empty when none did.
std::optional<Error> first_failure(const std::vector<HelloMessage>& hellos, Status HelloMessage::*part,
                                   std::string_view what) {
  std::optional<Error> error;
  for (std::size_t r = 0; r < hellos.size(); ++r) {
    const Status& status = hellos[r].*part;
    if (status.ok()) continue;
    if (!error) error = Error{ErrorCode::rank_failed, {}, static_cast<int>(r)};
    if (!error->message.empty()) error->message += "; ";
    error->message += rank_text(r) + ": " + std::string(what) + ": " + status.error().message;
  }
  return error;
}

/// Runs a step of the storage; whatever it throws is this rank's failure and no reason to stay silent.
template <class Step>
Status guarded(Step&& step) {
  try {
    return step();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "the allocator refused"};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, std::string("exception: ") + error.what()};
  } catch (...) {
    return {ErrorCode::internal, "unknown exception"};
  }
}

/// Limits after a failed attempt: what the storage says, but less than what has just failed.
std::vector<std::int64_t> lowered_limits(KVStorage& storage, std::span<const std::int64_t> failed) {
  std::vector<std::int64_t> limits;
  const Status asked = guarded([&] {
    limits = storage.limits();
    return Status{};
  });
  if (!asked || limits.size() != failed.size()) limits.assign(failed.begin(), failed.end());
  bool lower = false;
  for (std::size_t p = 0; p < failed.size(); ++p) {
    limits[p] = std::min(limits[p], failed[p]);
    lower = lower || limits[p] < failed[p];
  }
  if (!lower) {
    for (std::int64_t& limit : limits) limit -= std::max<std::int64_t>(1, limit / 16);
  }
  return limits;
}

}  // namespace

std::string layout_digest(std::span<const LayoutLine> layout) { return multigpu::sha256_hex(layout_text(layout)); }

Status check_local_part(std::span<const std::pair<std::string, KVCacheSpec>> local_layers,
                        std::span<const KVCacheGroup> merged_groups) {
  for (const auto& [name, spec] : local_layers) {
    std::optional<std::size_t> home;
    for (std::size_t g = 0; g < merged_groups.size(); ++g) {
      const auto& names = merged_groups[g].layer_names;
      if (std::find(names.begin(), names.end(), name) == names.end()) continue;
      if (home) {
        return {ErrorCode::invalid_config, "layer " + name + " is in group " + std::to_string(*home) +
                                               " and in group " + std::to_string(g) + " of the merged layout"};
      }
      home = g;
    }
    if (!home) return {ErrorCode::invalid_config, "layer " + name + " is in no group of the merged layout"};
    const KVCacheSpec& merged = merged_groups[*home].spec;
    bool equal = merged == spec;
    if (const auto* uniform = std::get_if<UniformTypeSpec>(&merged); uniform != nullptr) {
      equal = std::any_of(uniform->layers.begin(), uniform->layers.end(),
                          [&, &layer_name = name, &layer_spec = spec](const UniformTypeSpec::Layer& layer) {
                            return layer.name == layer_name &&
                                   std::visit([](const auto& inner) { return KVCacheSpec(inner); }, layer.spec) ==
                                       layer_spec;
                          });
    }
    if (!equal) {
      return {ErrorCode::invalid_config, "layer " + name + " has another shape here than group " +
                                             std::to_string(*home) + " of the merged layout"};
    }
  }
  return {};
}

RankCoordinator::RankCoordinator(Communicator& communicator, AgreementOptions options)
    : communicator_(communicator), options_(std::move(options)) {}

Result<Agreement> RankCoordinator::agree(const RankView& view, KVStorage& storage) {
  auto agreement = run(view, storage);
  if (!agreement) storage.release();
  return agreement;
}

Result<Agreement> RankCoordinator::run(const RankView& view, KVStorage& storage) {
  const std::vector<LayoutLine> facts = facts_of(view);
  if (auto status = hello(view, facts, view.limits.size()); !status) return status.error();
  auto limits = exchange_limits(view.limits);
  if (!limits) return limits.error();
  auto agreement = commit(std::move(*limits), storage);
  if (agreement) agreement->layout_digest = layout_digest(facts);
  return agreement;
}

/// The layout and whatever else must be equal for the outcome to be.
std::vector<LayoutLine> RankCoordinator::facts_of(const RankView& view) const {
  std::vector<LayoutLine> facts = view.layout;
  const auto add = [&](std::string field, std::int64_t value) {
    facts.push_back({"agreement " + std::move(field), std::to_string(value)});
  };
  // A rank without a profile does not know its pools; its own failure is reported, not a difference.
  add("max_commit_rounds", options_.max_commit_rounds);
  for (std::size_t p = 0; p < options_.num_blocks_override.size(); ++p) {
    add("num_blocks_override " + std::to_string(p), options_.num_blocks_override[p]);
  }
  for (std::size_t p = 0; p < options_.min_blocks.size(); ++p) {
    add("min_blocks " + std::to_string(p), options_.min_blocks[p]);
  }
  if (view.stage) {
    std::string names;
    for (const std::string& layer : view.stage->model_layers) names += layer + "\n";
    facts.push_back({"agreement model_layers", multigpu::sha256_hex(names)});
  }
  if (view.profiling.ok()) add("pools", static_cast<std::int64_t>(view.limits.size()));
  return facts;
}

Status RankCoordinator::hello(const RankView& view, std::span<const LayoutLine> facts, std::size_t pools) {
  HelloMessage mine{kAgreementProtocolVersion,
                    static_cast<std::uint32_t>(communicator_.world_size()),
                    static_cast<std::uint32_t>(communicator_.rank()),
                    view.profiling,
                    view.local_part,
                    layout_digest(facts),
                    view.stage};
  const bool fits = (options_.num_blocks_override.empty() || options_.num_blocks_override.size() == pools) &&
                    (options_.min_blocks.empty() || options_.min_blocks.size() == pools) && pools > 0;
  if (mine.profiling.ok() && !fits) {
    mine.profiling = {ErrorCode::invalid_config,
                      std::to_string(pools) + " pools, but " + std::to_string(options_.num_blocks_override.size()) +
                          " overrides and " + std::to_string(options_.min_blocks.size()) + " minimums"};
  }
  const auto all = communicator_.agree("hello", encode(mine), options_.deadline);
  if (!all) return all.error();

  std::vector<HelloMessage> hellos;
  std::vector<std::string> digests;
  for (std::size_t r = 0; r < all->size(); ++r) {
    auto theirs = multigpu::decode_hello((*all)[r]);
    if (!theirs) return unreadable(r, "hello", (*all)[r].size());
    if (theirs->protocol_version != kAgreementProtocolVersion) {
      return {ErrorCode::layout_mismatch,
              rank_text(r) + " speaks version " + std::to_string(theirs->protocol_version) +
                  " of the agreement, others version " + std::to_string(kAgreementProtocolVersion),
              static_cast<int>(r)};
    }
    if (theirs->rank != r || theirs->world_size != all->size()) {
      return {ErrorCode::layout_mismatch,
              rank_text(r) + " takes itself for rank " + std::to_string(theirs->rank) + " of " +
                  std::to_string(theirs->world_size) + ", in a world of " + std::to_string(all->size()),
              static_cast<int>(r)};
    }
    digests.push_back(theirs->layout_digest);
    hellos.push_back(std::move(*theirs));
  }
  if (auto error = first_failure(hellos, &HelloMessage::profiling, "profiling failed")) return *error;
  if (auto error = first_failure(hellos, &HelloMessage::local_part, "local layers")) return *error;
  if (std::adjacent_find(digests.begin(), digests.end(), std::not_equal_to<>()) != digests.end()) {
    return explain_layouts(facts, digests);
  }
  std::vector<std::optional<PipelineStage>> stages;
  for (HelloMessage& theirs : hellos) stages.push_back(std::move(theirs.stage));
  // What the digest covers is the same everywhere, so each rank uses its own copy.
  if (stages[0] && view.stage) stages[0]->model_layers = view.stage->model_layers;
  if (auto error = multigpu::find_gap_in_pipeline(stages)) return *error;
  return {};
}

/// Digests differ: exchanges the facts themselves and names what differs from most ranks' layout.
Status RankCoordinator::explain_layouts(std::span<const LayoutLine> facts, std::span<const std::string> digests) {
  const std::string text = layout_text(facts);
  const auto all = communicator_.agree("layout", std::as_bytes(std::span(text)), options_.deadline);
  if (!all) return all.error();

  std::size_t reference = 0;
  for (std::size_t r = 1; r < digests.size(); ++r) {
    if (std::count(digests.begin(), digests.end(), digests[r]) >
        std::count(digests.begin(), digests.end(), digests[reference])) {
      reference = r;
    }
  }
  std::vector<std::vector<LayoutLine>> layouts;
  for (std::size_t r = 0; r < all->size(); ++r) {
    const std::string_view theirs(reinterpret_cast<const char*>((*all)[r].data()), (*all)[r].size());
    auto lines = parse_layout_text(theirs);
    if (!lines || multigpu::sha256_hex(theirs) != digests[r]) return unreadable(r, "layout", (*all)[r].size());
    layouts.push_back(std::move(*lines));
  }
  Error error{ErrorCode::layout_mismatch, {}, -1};
  std::size_t named = 0;
  for (std::size_t r = 0; r < layouts.size(); ++r) {
    const auto difference = first_difference(layouts[r], layouts[reference]);
    if (!difference || ++named > kMaxNamedDifferences) continue;
    if (error.rank < 0) error.rank = static_cast<int>(r);
    if (!error.message.empty()) error.message += "; ";
    const auto value = [](const std::string& text_of_side) { return text_of_side.empty() ? "absent" : text_of_side; };
    error.message += rank_text(r) + ": " + difference->field + " " + value(difference->left) + ", " +
                     rank_text(reference) + ": " + value(difference->right);
  }
  if (named > kMaxNamedDifferences) error.message += "; " + std::to_string(named - kMaxNamedDifferences) + " more";
  return error;
}

Result<std::vector<std::vector<std::int64_t>>> RankCoordinator::exchange_limits(std::span<const std::int64_t> mine) {
  const auto all = communicator_.agree("minimum", multigpu::encode_limits(mine), options_.deadline);
  if (!all) return all.error();
  std::vector<std::vector<std::int64_t>> limits;
  for (std::size_t r = 0; r < all->size(); ++r) {
    auto theirs = multigpu::decode_limits((*all)[r], mine.size());
    if (!theirs) return unreadable(r, "minimum", (*all)[r].size());
    limits.push_back(std::move(*theirs));
  }
  return limits;
}

/// The minimum over ranks, per pool, or the override; an error where a rank cannot hold it.
Result<std::vector<std::int64_t>> RankCoordinator::choose(const std::vector<std::vector<std::int64_t>>& limits) const {
  std::vector<std::int64_t> chosen = limits.front();
  for (std::size_t p = 0; p < chosen.size(); ++p) {
    std::size_t lowest = 0;
    for (std::size_t r = 0; r < limits.size(); ++r) {
      if (limits[r][p] < limits[lowest][p]) lowest = r;
    }
    chosen[p] = limits[lowest][p];
    const std::string holds = rank_text(lowest) + " can hold " + std::to_string(std::max<std::int64_t>(chosen[p], 0)) +
                              " blocks in pool " + std::to_string(p);
    const auto refuse = [&](const std::string& why) {
      return Error{ErrorCode::out_of_memory, holds + why, static_cast<int>(lowest)};
    };
    const std::int64_t least = options_.min_blocks.empty() ? 1 : std::max<std::int64_t>(1, options_.min_blocks[p]);
    if (!options_.num_blocks_override.empty()) {
      const std::int64_t wanted = options_.num_blocks_override[p];
      if (chosen[p] < wanted) return refuse(", the override asks for " + std::to_string(wanted));
      chosen[p] = wanted;
    }
    if (chosen[p] < least) {
      if (options_.num_blocks_override.empty()) return refuse(", at least " + std::to_string(least) + " are needed");
      return Error{ErrorCode::invalid_config, "the override of " + std::to_string(chosen[p]) + " blocks in pool " +
                                                  std::to_string(p) + " is below the least useful " +
                                                  std::to_string(least)};
    }
  }
  return chosen;
}

Result<Agreement> RankCoordinator::commit(std::vector<std::vector<std::int64_t>> limits, KVStorage& storage) {
  const auto me = static_cast<std::size_t>(communicator_.rank());
  for (int round = 1;; ++round) {
    auto chosen = choose(limits);
    if (!chosen) return chosen.error();
    CommitMessage mine{guarded([&] { return storage.allocate(*chosen); }), limits[me]};
    if (mine.outcome.ok()) mine.outcome = guarded([&] { return storage.verify(); });
    if (!mine.outcome.ok()) {
      storage.release();
      mine.limits = lowered_limits(storage, *chosen);
    }
    const auto all = communicator_.agree("commit", encode(mine), options_.deadline);
    if (!all) return all.error();

    std::optional<Error> failed;
    for (std::size_t r = 0; r < all->size(); ++r) {
      auto theirs = multigpu::decode_commit((*all)[r], chosen->size());
      if (!theirs) return unreadable(r, "commit", (*all)[r].size());
      if (!theirs->outcome.ok() && !failed) {
        failed = Error{ErrorCode::out_of_memory,
                       rank_text(r) + " could not allocate " + std::to_string(chosen->front()) + " blocks in round " +
                           std::to_string(round) + ": " + theirs->outcome.error().message,
                       static_cast<int>(r)};
      }
      limits[r] = std::move(theirs->limits);
    }
    if (!failed) return Agreement{std::move(*chosen), std::move(limits), round, {}};
    storage.release();
    if (round >= options_.max_commit_rounds || !options_.num_blocks_override.empty()) return *failed;
  }
}

}  // namespace kvpool
