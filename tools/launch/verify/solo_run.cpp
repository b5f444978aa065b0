#include "tools/launch/verify/solo_run.hpp"

#include <algorithm>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"
#include "kvpool/config/memory_plan.hpp"
#include "kvpool/multigpu/thread_communicator.hpp"

namespace kvpool::launch {
namespace {

/// Blocks num_blocks - 1, num_blocks - 2, ...: every group takes what the others left.
StepMessage chunk_message(std::span<const TokenId> tokens, std::size_t begin, std::size_t end, std::size_t rows,
                          std::vector<std::vector<std::uint32_t>>& tables, std::uint32_t& next_block,
                          std::span<const std::int64_t> block_sizes) {
  StepMessage message;
  message.num_groups = static_cast<std::uint32_t>(block_sizes.size());
  StepSequence sequence;
  sequence.num_computed = static_cast<std::uint32_t>(begin);
  sequence.tokens.assign(tokens.begin() + static_cast<std::ptrdiff_t>(begin),
                         tokens.begin() + static_cast<std::ptrdiff_t>(end));
  const std::size_t first_output = std::max(begin, tokens.size() - rows);
  sequence.num_outputs = static_cast<std::uint32_t>(end > first_output ? end - first_output : 0);
  for (std::size_t g = 0; g < block_sizes.size(); ++g) {
    const auto size = static_cast<std::size_t>(block_sizes[g]);
    std::vector<std::uint32_t> table = tables[g];
    while (table.size() * size < end) table.push_back(next_block--);
    sequence.tables.push_back(table_changes(tables[g], table));
    std::vector<std::int64_t> slots;
    for (std::size_t i = begin; i < end; ++i)
      slots.push_back(static_cast<std::int64_t>(table[i / size] * size + i % size));
    sequence.slots.push_back(std::move(slots));
    tables[g] = std::move(table);
  }
  message.sequences.push_back(std::move(sequence));
  return message;
}

}  // namespace

HeadSlice all_heads(const ModelConfig& model) {
  HeadSlice slice;
  slice.num_query_heads = model.num_query_heads;
  slice.num_kv_heads = model.num_kv_heads;
  return slice;
}

Result<GatheredOutputs> run_alone(const TinyModel& model, const SoloOptions& options, const ExecutorOptions& executor,
                                  std::span<const TokenId> tokens, std::size_t rows) {
  const auto groups = get_kv_cache_groups(layer_specs(model.config(), model.slice(), options.block_size));
  if (!groups.ok()) return groups.error();
  const auto length = static_cast<std::int64_t>(tokens.size());
  PlanOptions plan;
  plan.num_gpu_blocks_override =
      1 + (length + options.block_size - 1) / options.block_size * static_cast<std::int64_t>(groups->size());
  const auto config = get_kv_cache_config_from_groups(*groups, 0, plan);
  if (!config.ok()) return config.error();
  auto storage = KvStorage::allocate(model.config(), model.slice(), *config, *executor.device);
  if (!storage.ok()) return storage.error();
  const auto communicators = make_thread_communicators(1);
  RankStep step(model, *storage, *communicators[0], executor);
  std::vector<std::vector<std::uint32_t>> tables(groups->size());
  auto next_block = static_cast<std::uint32_t>(config->num_blocks - 1);
  GatheredOutputs all;
  const auto chunk = static_cast<std::size_t>(options.chunk);
  for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
    const std::size_t end = std::min(tokens.size(), begin + chunk);
    GatheredOutputs part;
    const StepMessage message = chunk_message(tokens, begin, end, rows, tables, next_block, storage->block_sizes());
    if (Status status = step.run(message, part); !status.ok()) return status.error();
    all.rows += part.rows;
    all.heads.insert(all.heads.end(), part.heads.begin(), part.heads.end());
    all.hidden.insert(all.hidden.end(), part.hidden.begin(), part.hidden.end());
  }
  return all;
}

}  // namespace kvpool::launch
