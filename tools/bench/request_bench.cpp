#include "tools/bench/request_bench.hpp"

#include <stdexcept>

namespace kvpool::tools {

namespace {

std::vector<KVCacheGroup> groups_of(BenchModel model) {
  const KVCacheGroup full{{"full"}, FullAttentionSpec{kBlockTokens, {}, {}, {}, false}};
  const KVCacheGroup window{{"window"}, SlidingWindowSpec{kBlockTokens, {}, 512, 0}};
  switch (model) {
    case BenchModel::full: return {full};
    case BenchModel::window: return {window};
    case BenchModel::chunked: return {{{"chunked"}, ChunkedLocalAttentionSpec{kBlockTokens, {}, 512}}};
    case BenchModel::full_window: return {full, window};
    case BenchModel::full_state: break;
  }
  return {full, {{"state"}, MambaSpec{kBlockTokens, {}, MambaCacheMode::align, 0, {}}}};
}

}  // namespace

RequestBench::RequestBench(std::int64_t num_blocks, std::int64_t max_model_len, BenchModel model, bool events)
    : hashing_(std::make_shared<const RequestHashing>(
          RequestHashing{BlockHasher(HashAlgorithm::xxhash_cbor, "0"), kBlockTokens})) {
  KVCacheConfig config;
  config.num_blocks = num_blocks;
  config.groups = groups_of(model);
  KVCacheManagerOptions options;
  options.max_model_len = max_model_len;
  options.scheduler_block_size = kBlockTokens;
  options.hash_block_size = kBlockTokens;
  options.num_shards = 1;
  options.enable_kv_cache_events = events;
  options.collect_blocks_to_zero = true;
  auto created = KVCacheManager::create(std::move(config), std::move(options));
  if (!created) {
    throw std::runtime_error(created.error().message);
  }
  manager_ = std::move(*created);
}

RequestBench::Entry RequestBench::make(std::uint64_t number, std::int64_t tokens) {
  RequestOptions options;
  options.id = std::to_string(number);
  options.prompt.reserve(static_cast<std::size_t>(tokens) + 64);
  std::uint64_t state = number * 0x9e3779b97f4a7c15ULL;
  for (std::int64_t i = 0; i < tokens; ++i) {
    state = (state * 6364136223846793005ULL) + 1442695040888963407ULL;
    options.prompt.push_back(static_cast<TokenId>((state >> 33U) % 151'936U));
  }
  auto request = Request::create(std::move(options), hashing_);
  if (!request) {
    throw std::runtime_error(request.error().message);
  }
  return Entry(std::move(*request), manager_->make_sequence());
}

bool RequestBench::prefill(Entry& entry) {
  AllocateSlots arguments;
  arguments.num_new_tokens = entry.request.num_tokens() - entry.request.num_computed_tokens;
  const auto slots = manager_->allocate_slots(entry.request, entry.sequence, arguments);
  if (!slots) {
    throw std::runtime_error(slots.error().message);
  }
  if (slots->outcome != AllocateOutcome::allocated) {
    return false;
  }
  entry.request.num_computed_tokens = entry.request.num_tokens();
  return true;
}

}  // namespace kvpool::tools
