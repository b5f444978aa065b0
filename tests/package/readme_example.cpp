#include <kvpool/manager/kv_cache_manager.hpp>

#include <cstdio>
#include <numeric>

int main() {
  const kvpool::KVCacheConfig config{.num_blocks = 1024, .groups = {{{"layers.0"}, kvpool::FullAttentionSpec{}}}};
  const kvpool::KVCacheManagerOptions options{.max_model_len = 4096, .scheduler_block_size = 16, .hash_block_size = 16};
  const auto manager = kvpool::KVCacheManager::create(config, options).value();
  const auto hashing = std::make_shared<kvpool::RequestHashing>(
      kvpool::RequestHashing{kvpool::BlockHasher(kvpool::HashAlgorithm::sha256_cbor, "example"), 16});
  std::vector<kvpool::TokenId> prompt(100);
  std::iota(prompt.begin(), prompt.end(), 0);
  for (const char* id : {"first", "second"}) {  // any thread may do this at the same time, each with its own sequence
    auto request = kvpool::Request::create({.id = id, .prompt = prompt}, hashing).value();
    auto sequence = manager->make_sequence();
    const auto hit = manager->get_computed_blocks(request);  // second: 96 tokens of the first are still there
    const auto slots = manager->allocate_slots(request, sequence,
                                               {.num_new_tokens = request.num_tokens() - hit.num_computed_tokens,
                                                .num_new_computed_tokens = hit.num_computed_tokens,
                                                .new_computed_blocks = &hit.blocks});
    std::printf("%s: %lld tokens reused, %zu new blocks\n", id, static_cast<long long>(hit.num_computed_tokens),
                slots.value().new_blocks[0].size());
    manager->free(sequence);  // cached blocks become evictable, not lost
  }
  return 0;
}
