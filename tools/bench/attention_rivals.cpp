#include "tools/bench/attention_rivals.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kvpool::tools {
namespace {

/// A run of bytes to read, and another to fetch meanwhile.
using Reader = std::uint64_t (*)(const std::byte* data, const std::byte* ahead, std::int64_t bytes);

std::uint64_t read_plain(const std::byte* data, const std::byte* ahead, std::int64_t bytes) {
  std::uint64_t sum[8] = {};
  for (std::int64_t at = 0; at < bytes; at += 64) {
    __builtin_prefetch(ahead + at);
    std::uint64_t line[8];
    std::memcpy(line, data + at, sizeof(line));
    for (std::size_t i = 0; i < 8; ++i) {
      sum[i] ^= line[i];
    }
  }
  return sum[0] ^ sum[1] ^ sum[2] ^ sum[3] ^ sum[4] ^ sum[5] ^ sum[6] ^ sum[7];
}

#if defined(__x86_64__)
__attribute__((target("avx512f"))) std::uint64_t read_avx512(const std::byte* data, const std::byte* ahead,
                                                             std::int64_t bytes) {
  __m512i sum[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  for (std::int64_t at = 0; at < bytes; at += 128) {
    asm volatile("prefetcht1 %0" : : "m"(ahead[at]));
    asm volatile("prefetcht1 %0" : : "m"(ahead[at + 64]));
    sum[0] = _mm512_xor_si512(sum[0], _mm512_loadu_si512(data + at));
    sum[1] = _mm512_xor_si512(sum[1], _mm512_loadu_si512(data + at + 64));
  }
  std::uint64_t words[8];
  _mm512_storeu_si512(words, _mm512_xor_si512(sum[0], sum[1]));
  return words[0] ^ words[1] ^ words[2] ^ words[3] ^ words[4] ^ words[5] ^ words[6] ^ words[7];
}
#endif

Reader best_reader() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") != 0) {
    return read_avx512;
  }
#endif
  return read_plain;
}

/// All pages of one sequence: of one head, or of all heads at once.
std::uint64_t read_sequence(const AttentionCache& cache, Reader reader, std::int64_t layer, std::int64_t sequence,
                            std::int64_t head) {
  const CacheShape& shape = cache.shape();
  const bool whole = shape.layout == kernels::CacheLayout::nhd;
  const std::int64_t bytes = whole ? shape.page_bytes() : shape.page_bytes() / shape.kv_heads;
  const std::int64_t pages = shape.length / shape.page_size;
  const std::int32_t* table = cache.table().data() + sequence * pages;
  const auto at = [&](const void* data, std::int64_t i) {
    return static_cast<const std::byte*>(data) + table[std::min(i, pages - 1)] * shape.page_bytes() + head * bytes;
  };
  constexpr std::int64_t kAhead = 4;    // pages
  constexpr std::int64_t kTouched = 8;  // pages whose addresses are looked up early
  const kernels::PagedKvView& view = cache.layer(layer);
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < pages; ++i) {
    __builtin_prefetch(at(view.k.data, i + kTouched));
    __builtin_prefetch(at(view.v.data, i + kTouched));
    sum ^= reader(at(view.k.data, i), at(view.k.data, i + kAhead), bytes);
    sum ^= reader(at(view.v.data, i), at(view.v.data, i + kAhead), bytes);
  }
  return sum;
}

float widened(std::uint16_t bits) {
  const std::uint32_t word = static_cast<std::uint32_t>(bits) << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

const std::uint16_t* row_of(const AttentionCache& cache, const kernels::PagedRows& rows, std::int64_t sequence,
                            std::int64_t key, std::int64_t head) {
  const CacheShape& shape = cache.shape();
  const std::int64_t page =
      cache.table()[static_cast<std::size_t>(sequence * (shape.length / shape.page_size) + key / shape.page_size)];
  return static_cast<const std::uint16_t*>(rows.data) + kernels::row_offset(rows, page, key % shape.page_size, head);
}

void plain_row(AttentionCache& cache, const kernels::PagedKvView& view, std::int64_t sequence, std::int64_t head,
               std::vector<float>& scores) {
  const CacheShape& shape = cache.shape();
  const std::int64_t at = (sequence * shape.kv_heads * shape.group + head) * shape.dim;
  const std::uint16_t* q = cache.queries().data() + at;
  float* out = cache.results().data() + at;
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.dim));
  float top = -INFINITY;
  for (std::int64_t j = 0; j < shape.length; ++j) {
    const std::uint16_t* k = row_of(cache, view.k, sequence, j, head / shape.group);
    float dot = 0;
    for (std::int64_t d = 0; d < shape.dim; ++d) {
      dot += widened(q[d]) * widened(k[d]);
    }
    scores[static_cast<std::size_t>(j)] = dot * scale;
    top = std::max(top, dot * scale);
  }
  std::fill_n(out, shape.dim, 0.0F);
  float sum = 0;
  for (std::int64_t j = 0; j < shape.length; ++j) {
    const float p = std::exp(scores[static_cast<std::size_t>(j)] - top);
    const std::uint16_t* v = row_of(cache, view.v, sequence, j, head / shape.group);
    sum += p;
    for (std::int64_t d = 0; d < shape.dim; ++d) {
      out[d] += p * widened(v[d]);
    }
  }
  for (std::int64_t d = 0; d < shape.dim; ++d) {
    out[d] /= sum;
  }
}

}  // namespace

std::uint64_t read_pages(const AttentionCache& cache, std::int64_t layers, unsigned threads) {
  const CacheShape& shape = cache.shape();
  const Reader reader = best_reader();
  const std::int64_t heads = shape.layout == kernels::CacheLayout::nhd ? 1 : shape.kv_heads;
  const std::int64_t items = layers * shape.sequences * heads;
  std::atomic<std::int64_t> next{0};
  std::atomic<std::uint64_t> sum{0};
  const auto work = [&] {
    std::uint64_t own = 0;
    for (std::int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < items;
         i = next.fetch_add(1, std::memory_order_relaxed)) {
      own ^= read_sequence(cache, reader, i / (shape.sequences * heads), i / heads % shape.sequences, i % heads);
    }
    sum.fetch_xor(own, std::memory_order_relaxed);
  };
  std::vector<std::thread> others;
  for (unsigned t = 1; t < threads; ++t) {
    others.emplace_back(work);
  }
  work();
  for (std::thread& other : others) {
    other.join();
  }
  return sum.load(std::memory_order_relaxed);
}

void plain_decode(AttentionCache& cache, std::int64_t layers) {
  const CacheShape& shape = cache.shape();
  std::vector<float> scores(static_cast<std::size_t>(shape.length));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    for (std::int64_t sequence = 0; sequence < shape.sequences; ++sequence) {
      for (std::int64_t head = 0; head < shape.kv_heads * shape.group; ++head) {
        plain_row(cache, cache.layer(layer), sequence, head, scores);
      }
    }
  }
}

}  // namespace kvpool::tools
