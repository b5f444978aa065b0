#include "tools/exec/script_machine.hpp"

#include <fmt/core.h>

#include <array>
#include <utility>

#include "tools/exec/token_list.hpp"
#include "tools/trace/input_error.hpp"

namespace kvpool::tools {

struct ScriptMachine::Operation {
  std::string_view name;
  Json (ScriptMachine::*run)(Fields&);
  bool whole_pool;  ///< excludes every other operation
};

const ScriptMachine::Operation* ScriptMachine::find_operation(std::string_view name) {
  static constexpr std::array<Operation, 25> kOperations{{
      {"new_request", &ScriptMachine::new_request, false},
      {"append_tokens", &ScriptMachine::append_tokens, false},
      {"get_computed_blocks", &ScriptMachine::get_computed_blocks, false},
      {"allocate_slots", &ScriptMachine::allocate_slots, false},
      {"set_computed", &ScriptMachine::set_computed, false},
      {"cache_blocks", &ScriptMachine::cache_blocks, false},
      {"free", &ScriptMachine::free_request, false},
      {"preempt", &ScriptMachine::preempt, false},
      {"finish", &ScriptMachine::finish, false},
      {"get_block_ids", &ScriptMachine::get_block_ids, false},
      {"block_hashes", &ScriptMachine::block_hashes, false},
      {"get_num_common_prefix_blocks", &ScriptMachine::get_num_common_prefix_blocks, false},
      {"remove_skipped_blocks", &ScriptMachine::remove_skipped_blocks, false},
      {"new_step", &ScriptMachine::new_step, true},
      {"evict_blocks", &ScriptMachine::evict_blocks, true},
      {"reset_prefix_cache", &ScriptMachine::reset_prefix_cache, true},
      {"usage", &ScriptMachine::usage, false},
      {"free_queue", &ScriptMachine::free_queue, true},
      {"block", &ScriptMachine::block, false},
      {"cached", &ScriptMachine::cached, false},
      {"take_events", &ScriptMachine::take_events, true},
      {"take_block_copies", &ScriptMachine::take_block_copies, true},
      {"pool_get", &ScriptMachine::pool_get, true},
      {"pool_touch", &ScriptMachine::pool_touch, true},
      {"pool_free", &ScriptMachine::pool_free, true},
  }};
  for (const Operation& operation : kOperations) {
    if (operation.name == name) {
      return &operation;
    }
  }
  return nullptr;
}

ScriptMachine::ScriptMachine(Fields& config) : config_(read_script_config(config)) {
  if (config_.manager.enable_caching) {
    hashing_ = std::make_shared<const RequestHashing>(
        RequestHashing{BlockHasher(config_.hash_algorithm, config_.hash_seed), config_.manager.hash_block_size});
  }
  auto created = KVCacheManager::create(config_.cache, config_.manager);
  if (!created) {
    const ScriptPosition& at = config.position();
    throw InputError(at.file, at.line, to_string(created.error().code), created.error().message);
  }
  manager_ = std::move(*created);
  script_references_.assign(static_cast<std::size_t>(config_.cache.num_blocks), 0);
}

ScriptMachine::~ScriptMachine() = default;

Answer ScriptMachine::execute(Fields& operation) {
  const std::string& name = operation.text("op");
  const Operation* found = find_operation(name);
  if (found == nullptr) {
    operation.refuse("op", name == "config" ? "is on the first line only" : "is unknown", name);
  }
  try {
    if (found->whole_pool) {
      const std::unique_lock lock(whole_pool_);
      return {(this->*found->run)(operation), false};
    }
    const std::shared_lock lock(whole_pool_);
    return {(this->*found->run)(operation), false};
  } catch (const Refusal& refusal) {
    return {Json{{"error", to_string(refusal.code)}}, true};
  }
}

ScriptMachine::Locked ScriptMachine::find_request(const std::string& id) {
  std::shared_ptr<Entry> entry;
  {
    const std::lock_guard lock(requests_mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) {
      throw Refusal{ErrorCode::unknown_request};
    }
    entry = found->second;
  }
  std::unique_lock lock(entry->mutex);
  if (entry->finished) {
    throw Refusal{ErrorCode::unknown_request};
  }
  return {std::move(entry), std::move(lock)};
}

std::int64_t ScriptMachine::live_token_room() const {
  return kMaxLiveTokens - live_tokens_.load(std::memory_order_relaxed);
}

void ScriptMachine::drain_copies() {
  for (const BlockCopy& copy : manager_->take_block_copies()) {
    ++script_references_[copy.source.value()];
    ++script_references_[copy.target.value()];
  }
}

Status ScriptMachine::verify() {
  const std::unique_lock lock(whole_pool_);
  BlockPool& pool = manager_->pool();
  if (Status status = pool.check_invariants(); !status) {
    return status;
  }
  drain_copies();  // their references belong to whoever takes them
  std::vector<std::int64_t> expected = script_references_;
  const auto groups = static_cast<std::uint32_t>(config_.cache.groups.size());
  for (const auto& [id, entry] : requests_) {
    for (std::uint32_t group = 0; group < groups; ++group) {
      for (const BlockId block : manager_->block_table(entry->sequence, GroupId{group})) {
        if (block.value() >= expected.size()) {
          return {ErrorCode::internal, fmt::format("request {}, group {}: block {} is outside the pool of {}", id,
                                                   group, block.value(), expected.size())};
        }
        ++expected[block.value()];
      }
    }
  }
  for (std::uint32_t block = 1; block < expected.size(); ++block) {
    const auto references = static_cast<std::int64_t>(pool.ref_count(BlockId{block}));
    if (references != expected[block]) {
      return {ErrorCode::internal,
              fmt::format("block {} has {} references, but block tables and the script account for {}", block,
                          references, expected[block])};
    }
  }
  return {};
}

}  // namespace kvpool::tools
