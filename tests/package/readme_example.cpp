#include <kvpool/manager/kv_cache_manager.hpp>

#include <cstdio>

int main() {
  const kvpool::KVCacheConfig config{.num_blocks = 1024, .groups = {{{"layers.0"}, kvpool::FullAttentionSpec{}}}};
  const auto manager = kvpool::KVCacheManager::create(config, {.max_model_len = 4096}).value();
  const auto hashing = kvpool::RequestHashing::shared(kvpool::HashAlgorithm::sha256_cbor, "example");
  for (const char* id : {"first", "second"}) {  // any thread may do this at the same time, each with its own request
    auto request = kvpool::Request::create({.id = id, .prompt = std::vector<kvpool::TokenId>(100, 7)}, hashing).value();
    const auto hit = manager->get_computed_blocks(request);  // second: 96 tokens of the first are still there
    const auto slots = manager->allocate_slots(request, kvpool::AllocateSlots::for_rest_of(request, hit)).value();
    std::printf("%s: %d tokens reused, %zu new blocks\n", id, int(hit.num_computed_tokens), slots.new_blocks[0].size());
    manager->free(request);  // cached blocks become evictable, not lost
  }
}
