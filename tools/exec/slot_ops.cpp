// Operations between a request and its block tables.
#include <algorithm>
#include <utility>

#include "tools/exec/script_machine.hpp"

namespace kvpool::tools {
namespace {

Json ids_to_json(const std::vector<std::vector<BlockId>>& groups) {
  Json list = Json::array();
  for (const auto& blocks : groups) {
    Json ids = Json::array();
    for (const BlockId block : blocks) {
      ids.push_back(block.value());
    }
    list.push_back(std::move(ids));
  }
  return list;
}

AllocateSlots read_arguments(Fields& fields) {
  AllocateSlots arguments;
  arguments.num_new_tokens = fields.integer("num_new_tokens");
  arguments.num_new_computed_tokens = fields.integer_or("num_new_computed_tokens", 0);
  arguments.num_lookahead_tokens = fields.integer_or("num_lookahead_tokens", 0);
  arguments.num_external_computed_tokens = fields.integer_or("num_external_computed_tokens", 0);
  arguments.delay_cache_blocks = fields.boolean_or("delay_cache_blocks", false);
  arguments.num_encoder_tokens = fields.integer_or("num_encoder_tokens", 0);
  arguments.full_sequence_must_fit = fields.boolean_or("full_sequence_must_fit", false);
  arguments.reserved_blocks = fields.integer_or("reserved_blocks", 0);
  arguments.has_scheduled_reqs = fields.boolean_or("has_scheduled_reqs", true);
  return arguments;
}

}  // namespace

Json ScriptMachine::get_computed_blocks(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  PrefixHit hit = manager_->get_computed_blocks(entry->request);
  entry->request.shared_prefix_boundary = hit.shared_prefix_boundary;
  Json answer{{"num_computed_tokens", hit.num_computed_tokens}, {"block_ids", ids_to_json(hit.blocks.block_ids())}};
  entry->hit = std::move(hit);
  return answer;
}

// The part of the manager's contract that a script can break by its numbers alone.
void ScriptMachine::check_arguments(const Entry& entry, const AllocateSlots& arguments, bool use_computed) const {
  const bool negative =
      std::min({arguments.num_new_tokens, arguments.num_new_computed_tokens, arguments.num_lookahead_tokens,
                arguments.num_external_computed_tokens, arguments.num_encoder_tokens, arguments.reserved_blocks}) < 0;
  const bool nothing = arguments.num_new_tokens == 0 && arguments.num_external_computed_tokens == 0;
  const bool no_lookup = use_computed && !entry.hit;
  // The blocks and their number of tokens come from one look-up; other pairs describe no prefix.
  const std::int64_t looked_up = use_computed && entry.hit ? entry.hit->num_computed_tokens : 0;
  if (negative || nothing || no_lookup || arguments.num_new_computed_tokens != looked_up) {
    throw Refusal{ErrorCode::invalid_argument};
  }
}

Json ScriptMachine::allocate_slots(Fields& fields) {
  const std::string& id = fields.text("id");
  AllocateSlots arguments = read_arguments(fields);
  const bool use_computed = fields.boolean_or("use_computed", false);
  fields.finish();
  const Locked entry = find_request(id);
  check_arguments(*entry, arguments, use_computed);
  if (use_computed) {
    arguments.new_computed_blocks = &entry->hit->blocks;
  }
  auto slots = manager_->allocate_slots(entry->request, entry->sequence, arguments);
  if (!slots) {
    throw Refusal{slots.error().code};
  }
  if (slots->outcome != AllocateOutcome::allocated) {
    return Json{{"new_block_ids", nullptr}};
  }
  if (arguments.num_new_tokens > 0) {
    entry->request.status = RequestStatus::running;
  }
  return Json{{"new_block_ids", ids_to_json(slots->new_blocks)}};
}

Json ScriptMachine::cache_blocks(Fields& fields) {
  const std::string& id = fields.text("id");
  const std::int64_t tokens = fields.integer("num_computed_tokens");
  fields.finish();
  const Locked entry = find_request(id);
  if (tokens < 0 || tokens > entry->request.num_tokens()) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  manager_->cache_blocks(entry->request, entry->sequence, tokens);
  return Json::object();
}

Json ScriptMachine::get_block_ids(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  return Json{{"block_ids", ids_to_json(manager_->get_block_ids(entry->sequence))}};
}

Json ScriptMachine::get_num_common_prefix_blocks(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  return Json{{"num_blocks", manager_->get_num_common_prefix_blocks(entry->sequence)}};
}

Json ScriptMachine::remove_skipped_blocks(Fields& fields) {
  const std::string& id = fields.text("id");
  const std::int64_t tokens = fields.integer("num_computed_tokens");
  fields.finish();
  const Locked entry = find_request(id);
  if (tokens < 0) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  manager_->remove_skipped_blocks(entry->request, entry->sequence, tokens);
  return Json::object();
}

Json ScriptMachine::new_step(Fields& fields) {
  fields.finish();
  manager_->new_step_starts();
  return Json::object();
}

}  // namespace kvpool::tools
