#include "tools/bench/attention_cache.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <random>
#include <stdexcept>

namespace kvpool::tools {
namespace {

/// One megabyte of numbers between 1/16 and 1 in size, of random sign, in the cache's type.
std::vector<unsigned char> random_content(DType type) {
  std::mt19937 random(11);
  std::vector<unsigned char> bytes(std::size_t{1} << 20);
  const auto fill = [&](auto make) {
    using T = decltype(make(0U));
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(T)) {
      const T value = make(static_cast<std::uint32_t>(random()));
      std::memcpy(bytes.data() + i, &value, sizeof(T));
    }
  };
  switch (type) {
    case DType::float32:
      fill([](std::uint32_t r) { return (r & 0x807FFFFFU) | ((123U + (r >> 23) % 4) << 23); });
      break;
    case DType::float16:
      fill([](std::uint32_t r) { return static_cast<std::uint16_t>((r & 0x83FFU) | ((11U + (r >> 16) % 4) << 10)); });
      break;
    case DType::bfloat16:
      fill([](std::uint32_t r) { return static_cast<std::uint16_t>((r & 0x807FU) | ((123U + (r >> 16) % 4) << 7)); });
      break;
    default: fill([](std::uint32_t r) { return static_cast<std::uint8_t>((r & 0x87U) | ((4U + (r >> 8) % 4) << 3)); });
  }
  return bytes;
}

kernels::HostMemory filled_memory(std::int64_t bytes, const std::vector<unsigned char>& content) {
  auto memory = kernels::HostMemory::allocate(static_cast<std::size_t>(bytes));
  if (!memory) {
    throw std::bad_alloc();
  }
  auto* data = static_cast<unsigned char*>(memory->data());
  for (std::size_t at = 0; at < memory->size(); at += content.size()) {
    std::memcpy(data + at, content.data(), std::min(content.size(), memory->size() - at));
  }
  return std::move(*memory);
}

}  // namespace

AttentionCache::AttentionCache(const CacheShape& shape) : shape_(shape) {
  const std::vector<unsigned char> content = random_content(shape.dtype);
  const kernels::KvShape pool{shape.dtype, shape.pages(), shape.page_size, shape.kv_heads, shape.dim, shape.dim};
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    memory_.push_back(filled_memory(shape.pages() * shape.page_bytes(), content));
    void* k = memory_.back().data();
    memory_.push_back(filled_memory(shape.pages() * shape.page_bytes(), content));
    views_.push_back(kernels::contiguous_kv_view(pool, shape.layout, k, memory_.back().data()));
  }
  table_.resize(static_cast<std::size_t>(shape.pages()));
  std::iota(table_.begin(), table_.end(), 0);
  std::shuffle(table_.begin(), table_.end(), std::mt19937(5));
  const auto rows = static_cast<std::size_t>(shape.sequences * shape.kv_heads * shape.group * shape.dim);
  const std::vector<unsigned char> bf16 = random_content(DType::bfloat16);
  queries_.resize(rows);
  for (std::size_t at = 0; at < rows * sizeof(std::uint16_t); at += bf16.size()) {
    std::memcpy(reinterpret_cast<unsigned char*>(queries_.data()) + at, bf16.data(),
                std::min(bf16.size(), rows * sizeof(std::uint16_t) - at));
  }
  results_.resize(rows);
}

void AttentionCache::decode(const kernels::ExecOptions& exec, std::int64_t layers) {
  kernels::AttentionProblem problem;
  problem.num_query_heads = shape_.kv_heads * shape_.group;
  problem.num_kv_heads = shape_.kv_heads;
  problem.head_dim = problem.head_dim_v = shape_.dim;
  problem.page_size = shape_.page_size;
  const std::vector<std::int32_t> lens(static_cast<std::size_t>(shape_.sequences),
                                       static_cast<std::int32_t>(shape_.length));
  auto plan = kernels::AttentionPlan::make(problem, lens, {}, exec);
  if (!plan) {
    throw std::runtime_error(plan.error().message);
  }
  kernels::AttentionArgs args;
  args.table = {table_.data(), shape_.length / shape_.page_size, shape_.length / shape_.page_size};
  args.q = kernels::dense_queries(queries_.data(), DType::bfloat16, problem.num_query_heads, shape_.dim);
  args.out = kernels::dense_output(results_.data(), DType::float32, problem.num_query_heads, shape_.dim);
  for (std::int64_t i = 0; i < layers; ++i) {
    args.kv = layer(i);
    if (const Status status = plan->run(args); !status) {
      throw std::runtime_error(status.error().message);
    }
  }
}

}  // namespace kvpool::tools
