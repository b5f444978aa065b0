#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "kvpool/multigpu/mpi_communicator.hpp"

namespace kvpool {

namespace {

struct LauncherVariables {
  std::string_view launcher;
  std::string_view size;
  std::string_view rank;
  std::string_view local_rank;
  std::string_view local_size;
};

constexpr LauncherVariables kLaunchers[] = {
    {"OpenMPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID", ""},
};

constexpr int kMaxRanks = 1 << 24;
constexpr std::string_view kSlurmTasksPerNode = "SLURM_STEP_TASKS_PER_NODE";

Result<std::optional<int>> read_number(const EnvironmentLookup& lookup, std::string_view name, int limit) {
  if (name.empty()) return std::optional<int>{};
  const auto text = lookup(name);
  if (!text) return std::optional<int>{};
  int value = -1;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc{} || end != text->data() + text->size() || value < 0 || value >= limit) {
    return Error{ErrorCode::environment,
                 std::string(name) + "='" + *text + "' is not a number from 0 to " + std::to_string(limit - 1)};
  }
  return std::optional<int>{value};
}

/// Entry `node` of Slurm's list of tasks per node, as in "4(x2),1": four on the first two nodes, one on the third.
Result<std::optional<int>> slurm_tasks_on_node(const EnvironmentLookup& lookup) {
  const auto node = read_number(lookup, "SLURM_NODEID", kMaxRanks);
  if (!node) return node.error();
  const auto list = lookup(kSlurmTasksPerNode);
  if (!list || !node->has_value()) return std::optional<int>{};
  const auto wrong = [&list] {
    return Error{ErrorCode::environment, std::string(kSlurmTasksPerNode) + "='" + *list + "' is no list of numbers"};
  };
  const char* at = list->data();
  const char* const end = at + list->size();
  const auto number = [&at, end](int& value) {
    const auto [stop, error] = std::from_chars(at, end, value);
    at = stop;
    return error == std::errc{} && value > 0 && value < kMaxRanks;
  };
  int left = **node;
  while (at != end) {
    int tasks = 0;
    int nodes = 1;
    if (!number(tasks)) return wrong();
    if (end - at > 2 && at[0] == '(' && at[1] == 'x') {
      at += 2;
      if (!number(nodes) || at == end || *at++ != ')') return wrong();
    }
    if (left < nodes) return std::optional<int>{tasks};
    left -= nodes;
    if (at != end && *at++ != ',') return wrong();
  }
  return std::optional<int>{};
}

}  // namespace

Result<std::optional<LauncherPlace>> read_launcher_place(const EnvironmentLookup& lookup) {
  for (const LauncherVariables& names : kLaunchers) {
    const auto size = read_number(lookup, names.size, kMaxRanks);
    if (!size) return size.error();
    if (!size->has_value() || **size < 1) continue;
    const auto rank = read_number(lookup, names.rank, **size);
    if (!rank) return rank.error();
    auto local_rank = read_number(lookup, names.local_rank, **size);
    // A PMI of Slurm leaves the place on the host to Slurm's own variables.
    if (local_rank.ok() && !local_rank->has_value()) local_rank = read_number(lookup, "SLURM_LOCALID", **size);
    if (!local_rank) return local_rank.error();
    auto local_size = read_number(lookup, names.local_size, **size + 1);
    if (local_size.ok() && !local_size->has_value()) local_size = slurm_tasks_on_node(lookup);
    if (!local_size) return local_size.error();
    if (!rank->has_value() && **size > 1) {
      return Error{ErrorCode::environment, std::string(names.size) + " is " + std::to_string(**size) + " but " +
                                               std::string(names.rank) + " is not set"};
    }
    return std::optional(
        LauncherPlace{std::string(names.launcher), rank->value_or(0), **size, *local_rank, *local_size});
  }
  return std::optional<LauncherPlace>{};
}

Status check_launcher(const std::optional<LauncherPlace>& place, int world_size) {
  if (!place || place->world_size == world_size) return {};
  std::string message = place->launcher + " started " + std::to_string(place->world_size) +
                        " ranks, but this program sees a world of " + std::to_string(world_size);
  message += built_with_mpi() ? ": it was built for another MPI than the launcher's" : ": it was built without MPI";
  return {ErrorCode::environment, std::move(message), place->rank};
}

void exit_after_rank_failure() noexcept {
  std::fflush(nullptr);
  std::_Exit(kExitStatusEnvironment);
}

}  // namespace kvpool
