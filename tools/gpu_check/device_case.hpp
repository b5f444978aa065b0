// An attention case in device memory, run by the cuda backend.
#pragma once

#include "kvpool/kernels/paged_attention.hpp"
#include "tests/kernels/attention_case.hpp"
#include "tools/gpu_check/device_memory.hpp"

namespace kvpool::gpu_check {

class DeviceCase {
 public:
  /// Uploads pool, table and queries of `c`, which must outlive this.
  explicit DeviceCase(const kernels::test::AttentionCase& c);

  /// Arguments with device pointers; results go to out() and lse(), which poison() fills with NaN.
  [[nodiscard]] kernels::AttentionArgs args() const;
  void poison();
  /// What the last run left, waiting for the device.
  [[nodiscard]] kernels::test::Output results() const;
  /// Plan, run and results on the default stream.
  [[nodiscard]] kernels::test::Output run();

  /// Moves the pages to the end of pools of `bytes` of K and about as many of V, with the same strides.
  void spread_over(std::size_t bytes);

 private:
  const kernels::test::AttentionCase& case_;
  DeviceBytes k_;
  DeviceBytes v_;
  DeviceBytes table_;
  DeviceBytes q_;
  DeviceBytes out_;
  DeviceBytes lse_;
  std::int64_t num_pages_;
};

}  // namespace kvpool::gpu_check
