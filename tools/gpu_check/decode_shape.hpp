// One measured decode shape: pool, tables and queries on the device, and the time of a step.
#pragma once

#include <string>

#include "kvpool/kernels/paged_attention.hpp"
#include "tools/gpu_check/bandwidth.hpp"
#include "tools/gpu_check/device_memory.hpp"

namespace kvpool::gpu_check {

struct DecodeShape {
  std::string name;
  DType cache = DType::bfloat16;
  kernels::CacheLayout layout = kernels::CacheLayout::nhd;
  std::int64_t page_size = 16;
  std::int64_t kv_heads = 8;
  std::int64_t group = 4;
  std::int64_t dim = 128;
  std::vector<std::int32_t> seq_lens;

  [[nodiscard]] std::int64_t tokens() const;
  [[nodiscard]] double kv_bytes() const;  ///< of K and V
};

/// `sequences` sequences of `len` tokens.
[[nodiscard]] DecodeShape uniform(std::string name, int sequences, int len);

class DecodeBench {
 public:
  explicit DecodeBench(const DecodeShape& shape);

  /// A decode step over one layer, pages in random order, another part of the pool each time.
  [[nodiscard]] Timing time(int repeats = 30);
  void run_once(int turn);
  /// Time of the merge alone, on the partial results of a step.
  [[nodiscard]] Timing time_merge();
  [[nodiscard]] std::int64_t num_work_items() const { return plan_.num_work_items(); }

 private:
  [[nodiscard]] kernels::AttentionProblem problem() const;
  [[nodiscard]] kernels::AttentionArgs args(int turn) const;

  DecodeShape shape_;
  std::int64_t columns_;
  int turns_;  ///< sets of pages in the pool, more than the L2 cache holds together
  std::int64_t pages_;
  kernels::AttentionPlan plan_;
  DeviceBytes k_;
  DeviceBytes v_;
  DeviceBytes tables_;
  DeviceBytes q_;
  DeviceBytes out_;
};

}  // namespace kvpool::gpu_check
