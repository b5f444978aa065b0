#include "kvpool/manager/deferred_frees.hpp"

#include <algorithm>
#include <utility>

namespace kvpool {

DeferredFrees::~DeferredFrees() {
  while (!waiting_.empty()) release_front();
}

void DeferredFrees::enqueue(std::int64_t fence, std::vector<BlockId> eviction_order) {
  if (eviction_order.empty()) return;
  num_waiting_ += eviction_order.size();
  waiting_.push_back({fence, std::move(eviction_order)});
}

void DeferredFrees::release_front() {
  const Entry entry = std::move(waiting_.front());
  waiting_.pop_front();
  num_waiting_ -= entry.eviction_order.size();
  pool_->free_blocks(entry.eviction_order);
}

// In order: an entry behind one that still waits waits too, although its fence may be older.
void DeferredFrees::step_processed() {
  ++processed_;
  while (!waiting_.empty() && waiting_.front().fence <= processed_) release_front();
}

void DeferredFrees::free(std::vector<BlockId> blocks, std::int64_t last_step_of_request) {
  std::reverse(blocks.begin(), blocks.end());
  if (last_step_of_request > processed_) {
    enqueue(scheduled_, std::move(blocks));
  } else if (!blocks.empty()) {
    pool_->free_blocks(blocks);
  }
}

void DeferredFrees::free_after_copy(std::span<const BlockCopy> copies) {
  std::vector<BlockId> ends;
  for (const BlockCopy& copy : copies) {
    ends.push_back(copy.source);
    ends.push_back(copy.target);
  }
  enqueue(scheduled_ + 1, std::move(ends));
}

}  // namespace kvpool
