#include "manager/step_key_set.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace kvpool {
namespace {

/// 1 .. 0xffff: an untouched slot belongs to no step.
std::uint64_t step_mark(std::uint64_t step) noexcept { return step % 0xffff + 1; }

std::uint64_t word_at(const BlockHash& hash, std::size_t offset) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, hash.bytes.data() + offset, sizeof word);
  return word;
}

}  // namespace

StepKeySet::StepKeySet(std::size_t expected_keys)
    : slots_(std::bit_ceil(std::clamp<std::size_t>(2 * expected_keys, 64, std::size_t{1} << 20))) {}

std::uint64_t StepKeySet::tag(std::uint64_t step, const BlockKey& key) const noexcept {
  return (step_mark(step) << (64 - kStepBits)) | (word_at(key.hash, 8) >> kStepBits);
}

std::size_t StepKeySet::first_slot(const BlockKey& key) const noexcept {
  return static_cast<std::size_t>(word_at(key.hash, 0)) & (slots_.size() - 1);
}

void StepKeySet::insert(const BlockKey& key) noexcept {
  const std::uint64_t step = step_.load(std::memory_order_acquire);
  const std::uint64_t mine = tag(step, key);
  std::size_t slot = first_slot(key);
  for (std::size_t probe = 0; probe < kMaxProbes; ++probe, slot = (slot + 1) & (slots_.size() - 1)) {
    std::uint64_t seen = slots_[slot].load(std::memory_order_acquire);
    while (seen != mine && (seen >> (64 - kStepBits)) != step_mark(step)) {
      if (slots_[slot].compare_exchange_weak(seen, mine, std::memory_order_acq_rel, std::memory_order_acquire)) {
        return;
      }
    }
    if (seen == mine) return;
  }
  crowded_step_.store(step, std::memory_order_release);
}

bool StepKeySet::contains(const BlockKey& key) const noexcept {
  const std::uint64_t step = step_.load(std::memory_order_acquire);
  if (crowded_step_.load(std::memory_order_acquire) == step) return true;
  const std::uint64_t wanted = tag(step, key);
  std::size_t slot = first_slot(key);
  for (std::size_t probe = 0; probe < kMaxProbes; ++probe, slot = (slot + 1) & (slots_.size() - 1)) {
    const std::uint64_t seen = slots_[slot].load(std::memory_order_acquire);
    if (seen == wanted) return true;
    if ((seen >> (64 - kStepBits)) != step_mark(step)) return false;
  }
  return false;
}

}  // namespace kvpool
