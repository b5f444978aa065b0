// Operations on a request's tokens and life.
#include <fmt/core.h>

#include <utility>

#include "tools/exec/script_machine.hpp"
#include "tools/exec/token_list.hpp"

namespace kvpool::tools {

Json ScriptMachine::describe(const Request& request) {
  return Json{{"num_tokens", request.num_tokens()}, {"num_block_hashes", request.block_hashes().size()}};
}

RequestOptions ScriptMachine::read_request(Fields& fields) const {
  RequestOptions options;
  options.id = fields.text("id");
  options.prompt = read_tokens(fields, "tokens", live_token_room());
  options.lora_name = fields.optional_text("lora");
  options.cache_salt = fields.optional_text("cache_salt");
  options.skip_reading_prefix_cache = fields.boolean_or("skip_reading_prefix_cache", false);
  if (fields.has("mm")) {
    const Json& items = fields.list("mm");
    for (std::size_t i = 0; i < items.size(); ++i) {
      Fields item(items[i], fields.position(), fmt::format("mm[{}].", i));
      options.mm_features.push_back({item.text("identifier"), item.integer("offset"), item.integer("length")});
      item.finish();
    }
  }
  fields.finish();
  return options;
}

Json ScriptMachine::new_request(Fields& fields) {
  RequestOptions options = read_request(fields);
  const std::string id = options.id;
  {
    const std::lock_guard lock(requests_mutex_);
    if (requests_.contains(id)) {
      throw Refusal{ErrorCode::duplicate_request};
    }
  }
  auto request = Request::create(std::move(options), hashing_);
  if (!request) {
    throw Refusal{request.error().code};
  }
  Json answer = describe(*request);
  const std::int64_t tokens = request->num_tokens();
  auto entry = std::make_shared<Entry>(std::move(*request), manager_->make_sequence());
  const std::lock_guard lock(requests_mutex_);
  if (!requests_.emplace(id, std::move(entry)).second) {
    throw Refusal{ErrorCode::duplicate_request};  // another lane was faster
  }
  live_tokens_.fetch_add(tokens, std::memory_order_relaxed);
  return answer;
}

Json ScriptMachine::append_tokens(Fields& fields) {
  const std::string& id = fields.text("id");
  const auto tokens = read_tokens(fields, "tokens", live_token_room());
  fields.finish();
  const Locked entry = find_request(id);
  if (tokens.empty()) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  entry->request.append_tokens(tokens);
  live_tokens_.fetch_add(static_cast<std::int64_t>(tokens.size()), std::memory_order_relaxed);
  return describe(entry->request);
}

Json ScriptMachine::set_computed(Fields& fields) {
  const std::string& id = fields.text("id");
  const std::int64_t computed = fields.integer("num_computed_tokens");
  const std::int64_t in_flight = fields.integer_or("num_in_flight_tokens", 0);
  fields.finish();
  const Locked entry = find_request(id);
  if (computed < 0 || in_flight < 0) {
    throw Refusal{ErrorCode::invalid_argument};
  }
  entry->request.num_computed_tokens = computed;
  entry->request.num_in_flight_tokens = in_flight;
  return Json::object();
}

Json ScriptMachine::free_request(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  manager_->free(entry->sequence);
  entry->hit.reset();
  return Json::object();
}

Json ScriptMachine::preempt(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  manager_->free(entry->sequence);
  entry->hit.reset();
  entry->request.num_computed_tokens = 0;
  entry->request.status = RequestStatus::preempted;
  ++entry->request.num_preemptions;
  return Json::object();
}

Json ScriptMachine::finish(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  manager_->free(entry->sequence);
  entry->finished = true;
  live_tokens_.fetch_sub(entry->request.num_tokens(), std::memory_order_relaxed);
  const std::lock_guard lock(requests_mutex_);
  requests_.erase(id);
  return Json::object();
}

Json ScriptMachine::block_hashes(Fields& fields) {
  const std::string& id = fields.text("id");
  fields.finish();
  const Locked entry = find_request(id);
  Json hashes = Json::array();
  for (const BlockHash& hash : entry->request.block_hashes()) {
    hashes.push_back(hash.to_hex());
  }
  return Json{{"block_hashes", std::move(hashes)}};
}

}  // namespace kvpool::tools
