// KV storage of a test rank: holds a number of blocks, fails as told.
#pragma once

#include <functional>
#include <vector>

#include "kvpool/multigpu/rank_coordinator.hpp"

namespace kvpool::testing {

class FakeStorage final : public KVStorage {
 public:
  /// Can hold `capacity` blocks in every pool, whatever it said before.
  explicit FakeStorage(std::int64_t capacity = std::int64_t{1} << 62U) : capacity_(capacity) {}

  Status allocate(std::span<const std::int64_t> num_blocks) override {
    ++attempts;
    if (on_allocate) on_allocate();
    for (const std::int64_t blocks : num_blocks) {
      if (blocks > capacity_) {
        return {ErrorCode::out_of_memory, "only " + std::to_string(capacity_) + " blocks fit"};
      }
    }
    held.assign(num_blocks.begin(), num_blocks.end());
    return {};
  }
  Status verify() override { return on_verify ? on_verify() : Status{}; }
  void release() noexcept override { held.clear(); }
  std::vector<std::int64_t> limits() override { return {capacity_}; }

  std::vector<std::int64_t> held;
  int attempts = 0;
  std::function<void()> on_allocate;
  std::function<Status()> on_verify;

 private:
  std::int64_t capacity_;
};

inline std::vector<LayoutLine> small_layout(const std::string& window = "1024") {
  return {{"version", "1"}, {"group 0 kind", "full_attention"}, {"group 1 sliding_window", window}};
}

/// A healthy rank with one pool.
inline RankView view_of(std::int64_t limit) { return {{}, {}, small_layout(), {limit}}; }

}  // namespace kvpool::testing
