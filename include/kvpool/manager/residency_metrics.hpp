// How long blocks stay resident, measured on a sample.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kvpool/block/block_id.hpp"

namespace kvpool {

/// Life of one sampled block, told when it was recycled or evicted.
struct ResidencyRecord {
  double lifetime_seconds = 0;            ///< since it was allocated
  double idle_seconds = 0;                ///< since it was allocated or last reused, whatever was later
  std::vector<double> reuse_gap_seconds;  ///< between consecutive reuses, the last three at most
};

/// Samples a fraction of all allocations. Calls may come from any thread; a block that is not sampled
/// costs one atomic load, a sampled one takes a lock of its table bucket.
class ResidencyMetrics {
 public:
  using Clock = std::function<std::chrono::nanoseconds()>;

  /// `sample_rate` in (0, 1]: probability that an allocation is followed. `clock` empty: a monotonic clock;
  /// `seed` makes the sample reproducible. Throws std::invalid_argument for a rate outside its range.
  explicit ResidencyMetrics(double sample_rate = 0.01, Clock clock = {}, std::uint64_t seed = 0);
  ~ResidencyMetrics();
  ResidencyMetrics(const ResidencyMetrics&) = delete;
  ResidencyMetrics& operator=(const ResidencyMetrics&) = delete;

  /// Tells the blocks' numbers; called by the manager that uses the collector.
  void attach(std::uint32_t num_blocks);

  /// `recycled`: with caching on, the block's former life ends here.
  void on_block_allocated(BlockId block, bool recycled);
  void on_block_accessed(BlockId block);
  void on_block_evicted(BlockId block);

  /// Takes the records since the last call.
  [[nodiscard]] std::vector<ResidencyRecord> drain();

  /// Forgets blocks in observation and records. Excludes others: call it alone.
  void reset();

  [[nodiscard]] double sample_rate() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvpool
