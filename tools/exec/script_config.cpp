#include "tools/exec/script_config.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <variant>

namespace kvpool::tools {
namespace {

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 24;
constexpr std::int64_t kMaxModelLength = std::int64_t{1} << 27;
constexpr std::int64_t kMaxBlockSize = std::int64_t{1} << 24;
constexpr std::int64_t kMaxRanks = 1024;
constexpr std::int64_t kMaxSpeculativeBlocks = 1024;

bool is_attention(const KVCacheSpec& spec) { return !std::holds_alternative<MambaSpec>(spec); }

bool is_sparse(const KVCacheSpec& spec) {
  return std::holds_alternative<SlidingWindowSpec>(spec) || std::holds_alternative<MambaSpec>(spec);
}

MambaCacheMode read_cache_mode(Fields& fields) {
  const std::string& name = fields.text("mamba_cache_mode");
  for (const MambaCacheMode mode : {MambaCacheMode::none, MambaCacheMode::all, MambaCacheMode::align}) {
    if (name == to_string(mode)) {
      return mode;
    }
  }
  fields.refuse("mamba_cache_mode", "is none of none, all, align", name);
}

KVCacheSpec read_spec(Fields& fields) {
  const std::string& type = fields.text("type");
  const std::int64_t block_size = fields.integer("block_size", 1, kMaxBlockSize);
  if (type == "full_attention") {
    return FullAttentionSpec{.block_size = block_size, .shape = {}, .sliding_window = {}, .attention_chunk_size = {}};
  }
  if (type == "mla") {
    return MlaAttentionSpec{.block_size = block_size, .shape = {}, .compress_ratio = 1, .alignment = {}};
  }
  if (type == "sliding_window") {
    return SlidingWindowSpec{.block_size = block_size,
                             .shape = {},
                             .sliding_window = fields.integer("sliding_window", 1),
                             .extra_retained_tokens = 0};
  }
  if (type == "chunked_local_attention") {
    return ChunkedLocalAttentionSpec{
        .block_size = block_size, .shape = {}, .attention_chunk_size = fields.integer("attention_chunk_size", 1)};
  }
  if (type == "mamba") {
    MambaSpec spec;
    spec.block_size = block_size;
    spec.states = {MambaStateTensor{.shape = {1}, .dtype = DType::float32}};
    spec.cache_mode = read_cache_mode(fields);
    spec.num_speculative_blocks = fields.integer("num_speculative_blocks", 0, kMaxSpeculativeBlocks);
    return spec;
  }
  if (type == "cross_attention") {
    return CrossAttentionSpec{.block_size = block_size, .shape = {}};
  }
  fields.refuse("type", "is an unknown group type", type);
}

void read_groups(Fields& fields, KVCacheConfig& cache) {
  const Json& groups = fields.list("groups");
  if (groups.empty()) {
    fields.refuse("groups", "is empty");
  }
  constexpr std::size_t kMaxGroups = 256;
  if (groups.size() > kMaxGroups) {
    fields.refuse("groups", fmt::format("has {} groups, at most {} are possible", groups.size(), kMaxGroups));
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    Fields group(groups[i], fields.position(), fmt::format("groups[{}].", i));
    KVCacheSpec spec = read_spec(group);
    const bool is_eagle_group = group.boolean_or("is_eagle_group", false);
    group.finish();
    cache.groups.push_back({{fmt::format("layer.{}", i)}, std::move(spec), is_eagle_group});
  }
}

FreeOrder read_free_order(Fields& fields) {
  const std::string& name = fields.text("free_order");
  if (name != "split" && name != "append") {
    fields.refuse("free_order", "is neither split nor append", name);
  }
  return name == "split" ? FreeOrder::split : FreeOrder::append;
}

void read_hashing(Fields& fields, ScriptConfig& config) {
  const std::string& name = fields.text("hash_algo");
  const auto algorithm = hash_algorithm_from_string(name);
  if (!algorithm) {
    fields.refuse("hash_algo", "is none of sha256, sha256_cbor, xxhash, xxhash_cbor", name);
  }
  config.hash_algorithm = *algorithm;
  config.hash_seed = fields.text("hash_seed");
}

void read_options(Fields& fields, KVCacheManagerOptions& options) {
  options.scheduler_block_size = fields.integer("scheduler_block_size", 1, kMaxBlockSize);
  options.hash_block_size = fields.integer("hash_block_size", 1, kMaxBlockSize);
  options.max_model_len = fields.integer("max_model_len", 1, kMaxModelLength);
  if (fields.has_value("max_in_flight_tokens")) {
    options.max_in_flight_tokens = fields.integer("max_in_flight_tokens", 1);
  }
  options.enable_caching = fields.boolean("enable_caching");
  options.free_order = read_free_order(fields);
  options.use_eagle = fields.boolean_or("use_eagle", false);
  options.num_prefill_lookahead = fields.integer_or("num_prefill_lookahead", 0, 0);
  options.watermark = fields.number_or("watermark", 0.0);
  if (!(options.watermark >= 0.0 && options.watermark < 1.0)) {
    fields.refuse("watermark", "is outside [0, 1)", options.watermark);
  }
  options.dcp_world_size = fields.integer_or("dcp_world_size", 1, 1, kMaxRanks);
  options.enable_kv_cache_events = fields.boolean_or("events", false);
  options.num_shards = 1;
}

// Rules that tie several keys together; each names the key that a user would change.
void check_combination(const Fields& fields, const ScriptConfig& config) {
  const KVCacheManagerOptions& options = config.manager;
  const std::int64_t common = options.scheduler_block_size;
  if (common % options.hash_block_size != 0) {
    fields.refuse("hash_block_size", fmt::format("does not divide scheduler_block_size {}", common),
                  options.hash_block_size);
  }
  for (std::size_t i = 0; i < config.cache.groups.size(); ++i) {
    const KVCacheSpec& spec = config.cache.groups[i].spec;
    const std::int64_t size = block_size(spec) * (is_attention(spec) ? options.dcp_world_size : 1);
    if (common % size != 0) {
      fields.refuse(
          fmt::format("groups[{}].block_size", i),
          fmt::format("with dcp_world_size {} does not divide scheduler_block_size {}", options.dcp_world_size, common),
          block_size(spec));
    }
  }
  const bool sparse = std::any_of(config.cache.groups.begin(), config.cache.groups.end(),
                                  [](const KVCacheGroup& group) { return is_sparse(group.spec); });
  if (const auto& interval = config.cache.prefix_cache_retention_interval; interval.has_value() && *interval != 0) {
    if (!sparse) {
      fields.refuse("retention_interval", "needs a sliding_window or mamba group", *interval);
    }
    if (*interval % common != 0) {
      fields.refuse("retention_interval", fmt::format("is no multiple of scheduler_block_size {}", common), *interval);
    }
  }
  const bool eagle = options.use_eagle || std::any_of(config.cache.groups.begin(), config.cache.groups.end(),
                                                      [](const KVCacheGroup& group) { return group.is_eagle_group; });
  if (options.enable_caching && eagle && options.num_prefill_lookahead > common) {
    fields.refuse("num_prefill_lookahead", fmt::format("is more than scheduler_block_size {}", common),
                  options.num_prefill_lookahead);
  }
}

}  // namespace

ScriptConfig read_script_config(Fields& fields) {
  ScriptConfig config;
  if (fields.text("op") != "config") {
    fields.refuse("op", "of the first line is not config", fields.text("op"));
  }
  if (fields.integer("version") != 1) {
    fields.refuse("version", "is not 1", fields.integer("version"));
  }
  config.cache.num_blocks = fields.integer("num_blocks", 1, kMaxBlocks);
  read_options(fields, config.manager);
  read_hashing(fields, config);
  if (fields.has_value("retention_interval")) {
    config.cache.prefix_cache_retention_interval = fields.integer("retention_interval", 0);
  }
  read_groups(fields, config.cache);
  fields.finish();
  check_combination(fields, config);
  return config;
}

}  // namespace kvpool::tools
