// Layers as the tests of this folder use them: fp32, so that a page of 16 tokens, 2 heads and 64
// elements takes 16,384 bytes.
#pragma once

#include <string>
#include <vector>

#include "kvpool/config/kv_cache_groups.hpp"

namespace kvpool::test {

inline constexpr std::int64_t kPage = 16'384;

inline AttentionShape shape(std::int64_t head_size = 64, std::int64_t heads = 2) {
  AttentionShape result;
  result.num_kv_heads = heads;
  result.head_size = head_size;
  result.dtype = DType::float32;
  return result;
}

inline FullAttentionSpec full(std::int64_t head_size = 64, std::int64_t block_size = 16) {
  FullAttentionSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(head_size);
  return spec;
}

inline SlidingWindowSpec window(std::int64_t width = 1024, std::int64_t head_size = 64, std::int64_t block_size = 16) {
  SlidingWindowSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(head_size);
  spec.sliding_window = width;
  return spec;
}

inline ChunkedLocalAttentionSpec chunked(std::int64_t chunk = 8192) {
  ChunkedLocalAttentionSpec spec;
  spec.shape = shape();
  spec.attention_chunk_size = chunk;
  return spec;
}

inline MlaAttentionSpec latent(std::int64_t width, std::int64_t block_size = 16, std::int64_t ratio = 1) {
  MlaAttentionSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(width, 1);
  spec.compress_ratio = ratio;
  return spec;
}

inline SlidingWindowMlaSpec latent_window(std::int64_t width, std::int64_t head_size, std::int64_t block_size = 16) {
  SlidingWindowMlaSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(head_size, 1);
  spec.sliding_window = width;
  return spec;
}

inline MambaSpec state(std::int64_t floats, std::int64_t block_size = 16) {
  MambaSpec spec;
  spec.block_size = block_size;
  spec.states = {{{floats}, DType::float32}};
  return spec;
}

inline HiddenStateSpec hidden(std::int64_t width, std::int64_t block_size = 16) {
  HiddenStateSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(width, 1);
  return spec;
}

// A model from a pattern, one letter a layer: names are "1", "2", ...
template <class MakeSpec>
std::vector<NamedLayer> model(const std::string& pattern, MakeSpec make_spec) {
  std::vector<NamedLayer> layers;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    layers.push_back({std::to_string(i + 1), make_spec(pattern[i])});
  }
  return layers;
}

// f: full attention, s: sliding window of 1024.
inline std::vector<NamedLayer> full_and_window(const std::string& pattern) {
  return model(pattern, [](char letter) -> LayerSpec {
    if (letter == 'f') return full();
    return window();
  });
}

inline std::vector<std::vector<std::string>> names(const std::vector<KVCacheGroup>& groups) {
  std::vector<std::vector<std::string>> result;
  for (const KVCacheGroup& group : groups) result.push_back(group.layer_names);
  return result;
}

}  // namespace kvpool::test
