#include "tools/exec/event_json.hpp"

#include <fmt/core.h>

#include <string>
#include <variant>

namespace kvpool::tools {
namespace {

struct ExtraKeyToJson {
  Json operator()(const LoraKey& key) const { return key.name; }
  Json operator()(const SaltKey& key) const { return key.salt; }
  Json operator()(const MultimodalKey& key) const { return Json::array({key.identifier, key.offset}); }
  Json operator()(const PromptEmbedsKey& key) const {
    std::string hex;
    for (const std::uint8_t byte : key.sha256) {
      hex += fmt::format("{:02x}", byte);
    }
    return Json{{"bytes", hex}};
  }
};

Json hashes_to_json(const std::vector<BlockHash>& hashes) {
  Json list = Json::array();
  for (const BlockHash& hash : hashes) {
    list.push_back(hash.event_id());
  }
  return list;
}

Json extra_keys_to_json(const std::vector<ExtraKeys>& per_unit) {
  Json list = Json::array();
  for (const ExtraKeys& keys : per_unit) {
    Json unit;  // null when there are none
    for (const ExtraKey& key : keys) {
      unit.push_back(std::visit(ExtraKeyToJson{}, key));
    }
    list.push_back(std::move(unit));
  }
  return list;
}

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

template <class T>
void add_if_set(Json& object, const char* name, const std::optional<T>& value) {
  if (value) {
    object[name] = *value;
  }
}

struct EventToJson {
  Json operator()(const BlockStoredEvent& event) const {
    Json object;
    object["type"] = "BlockStored";
    object["block_hashes"] = hashes_to_json(event.block_hashes);
    object["parent_block_hash"] = event.parent_block_hash ? Json(event.parent_block_hash->event_id()) : Json(nullptr);
    object["token_ids"] = event.token_ids;
    object["block_size"] = event.block_size;
    object["lora_id"] = value_or_null(event.lora_id);
    object["medium"] = event.medium;
    object["lora_name"] = value_or_null(event.lora_name);
    if (event.extra_keys) {
      object["extra_keys"] = extra_keys_to_json(*event.extra_keys);
    }
    add_if_set(object, "group_idx", event.group_idx);
    add_if_set(object, "kv_cache_spec_kind", event.kv_cache_spec_kind);
    add_if_set(object, "kv_cache_spec_sliding_window", event.kv_cache_spec_sliding_window);
    add_if_set(object, "session_id", event.session_id);
    return object;
  }
  Json operator()(const BlockRemovedEvent& event) const {
    Json object;
    object["type"] = "BlockRemoved";
    object["block_hashes"] = hashes_to_json(event.block_hashes);
    object["medium"] = event.medium;
    add_if_set(object, "group_idx", event.group_idx);
    return object;
  }
  Json operator()(const AllBlocksClearedEvent&) const { return Json{{"type", "AllBlocksCleared"}}; }
};

}  // namespace

Json to_json(const KVEvent& event) { return std::visit(EventToJson{}, event); }

}  // namespace kvpool::tools
