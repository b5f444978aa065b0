// Operations on the pool as a whole and on single blocks.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "tools/exec/event_json.hpp"
#include "tools/exec/script_machine.hpp"

namespace kvpool::tools {
namespace {

Json ids_to_json(const std::vector<BlockId>& blocks) {
  Json ids = Json::array();
  for (const BlockId block : blocks) {
    ids.push_back(block.value());
  }
  return ids;
}

}  // namespace

// Refuses the null block before ids outside the pool, wherever they stand in the list.
std::vector<BlockId> ScriptMachine::read_blocks(Fields& fields, std::string_view name) const {
  const std::vector<std::int64_t> numbers = fields.integers(name);
  fields.finish();
  if (std::find(numbers.begin(), numbers.end(), 0) != numbers.end()) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  std::vector<BlockId> blocks;
  blocks.reserve(numbers.size());
  for (const std::int64_t number : numbers) {
    if (number < 0 || number >= config_.cache.num_blocks) {
      throw Refusal{ErrorCode::unknown_block};
    }
    blocks.emplace_back(static_cast<std::uint32_t>(number));
  }
  return blocks;
}

Json ScriptMachine::evict_blocks(Fields& fields) {
  (void)manager_->evict_blocks(read_blocks(fields, "ids"));
  return Json::object();
}

Json ScriptMachine::reset_prefix_cache(Fields& fields) {
  fields.finish();
  return Json{{"ok", manager_->reset_prefix_cache()}};
}

Json ScriptMachine::usage(Fields& fields) {
  fields.finish();
  const BlockPool& pool = manager_->pool();
  return Json{{"num_free_blocks", pool.num_free_blocks()}, {"usage", pool.usage()}};
}

Json ScriptMachine::free_queue(Fields& fields) {
  fields.finish();
  return Json{{"block_ids", ids_to_json(manager_->pool().free_order())}};
}

Json ScriptMachine::block(Fields& fields) {
  const std::int64_t number = fields.integer("block_id");
  fields.finish();
  if (number < 0 || number >= config_.cache.num_blocks) {
    throw Refusal{ErrorCode::unknown_block};
  }
  const BlockId id{static_cast<std::uint32_t>(number)};
  const auto key = manager_->pool().primary_key(id);
  return Json{{"ref_cnt", manager_->pool().ref_count(id)}, {"hash", key ? Json(key->to_hex()) : Json(nullptr)}};
}

Json ScriptMachine::cached(Fields& fields) {
  const auto hash = BlockHash::from_hex(fields.text("hash"));
  const std::int64_t group = fields.integer("group");
  fields.finish();
  if (!hash || group < 0 || group >= static_cast<std::int64_t>(config_.cache.groups.size())) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  const auto found = manager_->pool().find({*hash, GroupId{static_cast<std::uint32_t>(group)}});
  return Json{{"block_id", found ? Json(found->id.value()) : Json(nullptr)}};
}

Json ScriptMachine::take_events(Fields& fields) {
  fields.finish();
  Json events = Json::array();
  for (const KVEvent& event : manager_->take_events()) {
    events.push_back(to_json(event));
  }
  return Json{{"events", std::move(events)}};
}

Json ScriptMachine::take_block_copies(Fields& fields) {
  fields.finish();
  Json copies = Json::array();
  for (const BlockCopy& copy : manager_->take_block_copies()) {
    // From now on the script owns the reference of either end.
    ++script_references_[copy.source.value()];
    ++script_references_[copy.target.value()];
    copies.push_back(Json::array({copy.source.value(), copy.target.value()}));
  }
  return Json{{"copies", std::move(copies)}};
}

Json ScriptMachine::pool_get(Fields& fields) {
  const std::int64_t count = fields.integer("n");
  fields.finish();
  BlockPool& pool = manager_->pool();
  if (count < 0) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  if (count > static_cast<std::int64_t>(pool.num_free_blocks())) {
    throw Refusal{ErrorCode::not_enough_blocks};
  }
  std::vector<BlockId> blocks(static_cast<std::size_t>(count));
  if (!pool.get_new_blocks(blocks)) {
    throw Refusal{ErrorCode::not_enough_blocks};
  }
  for (const BlockId block : blocks) {
    ++script_references_[block.value()];
  }
  return Json{{"block_ids", ids_to_json(blocks)}};
}

Json ScriptMachine::pool_touch(Fields& fields) {
  const auto blocks = read_blocks(fields, "block_ids");
  if (!manager_->pool().touch(blocks)) {
    throw Refusal{ErrorCode::not_enough_blocks};
  }
  for (const BlockId block : blocks) {
    ++script_references_[block.value()];
  }
  return Json::object();
}

Json ScriptMachine::pool_free(Fields& fields) {
  const auto blocks = read_blocks(fields, "block_ids");
  BlockPool& pool = manager_->pool();
  std::unordered_map<std::uint32_t, std::uint32_t> listed;
  for (const BlockId block : blocks) {
    if (++listed[block.value()] > pool.ref_count(block)) {
      throw Refusal{ErrorCode::double_free};
    }
  }
  if (!pool.free_blocks(blocks)) {
    throw Refusal{ErrorCode::double_free};
  }
  for (const BlockId block : blocks) {
    --script_references_[block.value()];
  }
  return Json::object();
}

}  // namespace kvpool::tools
