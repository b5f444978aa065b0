// What a task will read next, as cache lines in the order of memory, to be asked for between the multiply-adds.
//
// Included by the tier files only; see row_kernel.hpp for what that forbids.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/row_task.hpp"

#if defined(__clang__)
#define KVPOOL_UNROLL _Pragma("unroll")
#else
#define KVPOOL_UNROLL _Pragma("GCC unroll 16")
#endif
#define KVPOOL_INLINE inline __attribute__((always_inline))

namespace kvpool::kernels {
namespace {

/// Asks for the line of p in the second-level cache. Written as an instruction, since a compiler may drop a loop that
/// does nothing but call its own prefetch function.
KVPOOL_INLINE void fetch_line(const std::byte* p) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*p));
#elif defined(__aarch64__)
  asm volatile("prfm pldl2keep, %0" : : "Q"(*p));
#else
  __builtin_prefetch(p, 0, 2);
#endif
}

/// The same for the first-level cache.
KVPOOL_INLINE void fetch_near(const std::byte* p) {
#if defined(__x86_64__)
  asm volatile("prefetcht0 %0" : : "m"(*p));
#elif defined(__aarch64__)
  asm volatile("prfm pldl1keep, %0" : : "Q"(*p));
#else
  __builtin_prefetch(p, 0, 3);
#endif
}

/// The stretches of memory that hold the rows of some keys, of all heads of a task: at most a page of the processor
/// each.
class RowRuns {
 public:
  RowRuns() = default;
  RowRuns(const RowTask& t, const HeadRows& rows, std::int64_t row_bytes, std::int64_t first, std::int64_t end)
      : task_(&t), rows_(&rows), key_(first), end_(end) {
    const bool heads_touch = t.heads == 1 || rows.head_bytes == row_bytes;
    heads_ = heads_touch ? 1 : t.heads;
    row_bytes_ = heads_touch ? t.heads * row_bytes : row_bytes;
    tokens_touch_ = heads_ == 1 && rows.token_bytes == row_bytes_;
  }

  /// The next stretch; false when there is none.
  bool next(const std::byte*& at, std::int64_t& bytes) {
    if (left_ == 0 && !open()) return false;
    const std::int64_t room =
        kProcessorPage - static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(run_) % kProcessorPage);
    at = run_;
    bytes = left_ < room ? left_ : room;
    run_ += bytes;
    left_ -= bytes;
    return true;
  }

 private:
  static constexpr std::int64_t kProcessorPage = 4096;

  bool open() {
    if (key_ >= end_) return false;
    const std::int64_t page = key_ / task_->page_size;
    const std::int64_t offset = key_ - page * task_->page_size;
    run_ = rows_->base + static_cast<std::int64_t>(task_->pages[page]) * rows_->page_bytes +
           offset * rows_->token_bytes + head_ * rows_->head_bytes;
    if (tokens_touch_) {
      const std::int64_t rest = task_->page_size - offset;
      const std::int64_t count = rest < end_ - key_ ? rest : end_ - key_;
      left_ = count * row_bytes_;
      key_ += count;
      return true;
    }
    left_ = row_bytes_;
    if (++head_ == heads_) {
      head_ = 0;
      ++key_;
    }
    return true;
  }

  const RowTask* task_ = nullptr;
  const HeadRows* rows_ = nullptr;
  std::int64_t key_ = 0;
  std::int64_t end_ = 0;
  std::int64_t heads_ = 1;
  std::int64_t row_bytes_ = 0;
  bool tokens_touch_ = false;
  std::int64_t head_ = 0;
  const std::byte* run_ = nullptr;
  std::int64_t left_ = 0;
};

/// The lines of two series of stretches, one after the other. The first line of each stretch is touched some
/// stretches early, several at a time, so that addresses are known when lines are asked for and walks of the page table
/// overlap.
class LineFeed {
 public:
  void start(const RowRuns& first, const RowRuns& second) {
    runs_[0] = touch_[0] = first;
    runs_[1] = touch_[1] = second;
    series_ = touched_ = 0;
    left_ = 0;
    opened_ = 0;
    for (int i = 0; i < kTouchAhead; ++i) touch();
  }

  /// Asks for the next N lines, as far as there are any.
  template <int N>
  KVPOOL_INLINE void take() {
    if (left_ >= N) {
      KVPOOL_UNROLL
      for (int i = 0; i < N; ++i) fetch_line(at_ + i * 64);
      at_ += N * 64;
      left_ -= N;
    } else {
      take_slowly(N);
    }
  }

  /// The next N lines, which the caller asks for himself, one here and one there; `nothing` when there are none left
  /// that lie together.
  template <int N>
  KVPOOL_INLINE const std::byte* reserve(const std::byte* nothing) {
    if (left_ < N && !refill(N)) return nothing;
    const std::byte* lines = at_;
    at_ += N * 64;
    left_ -= N;
    return lines;
  }

 private:
  static constexpr int kTouched = 8;  ///< stretches at a time
  static constexpr int kTouchAhead = kTouched + 4;

  /// Opens the next stretch; a rest too short for `count` lines is asked for at once.
  __attribute__((noinline)) bool refill(int count) {
    if (left_ <= 0 && open() && left_ >= count) return true;
    take_slowly(count);
    return false;
  }
  __attribute__((noinline)) void take_slowly(int count) {
    for (int i = 0; i < count; ++i) {
      if (left_ <= 0 && !open()) return;
      fetch_line(at_);
      at_ += 64;
      --left_;
    }
  }
  bool open() {
    std::int64_t bytes = 0;
    while (series_ < 2 && !runs_[series_].next(at_, bytes)) ++series_;
    if (series_ == 2) return false;
    const auto into = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(at_) % 64);
    at_ -= into;
    left_ = (bytes + into + 63) / 64;
    if (++opened_ == kTouched) {
      opened_ = 0;
      for (int i = 0; i < kTouched; ++i) touch();
    }
    return true;
  }
  void touch() {
    const std::byte* at = nullptr;
    std::int64_t bytes = 0;
    while (touched_ < 2 && !touch_[touched_].next(at, bytes)) ++touched_;
    if (touched_ < 2) fetch_line(at);
  }

  RowRuns runs_[2];
  RowRuns touch_[2];
  int opened_ = 0;
  int series_ = 2;
  int touched_ = 2;
  const std::byte* at_ = nullptr;
  std::int64_t left_ = 0;
};

}  // namespace
}  // namespace kvpool::kernels
