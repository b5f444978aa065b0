// Stands in for std::atomic in the templates under test: every access asks the scheduler first.
#pragma once

#include <atomic>

#include "tests/model/scheduler.hpp"

namespace kvpool::model {

template <class T>
class Atomic {
 public:
  static constexpr bool is_always_lock_free = true;

  constexpr Atomic() noexcept = default;
  constexpr Atomic(T value) noexcept : value_(value) {}  // NOLINT(google-explicit-constructor): as std::atomic
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order /*order*/ = std::memory_order_seq_cst) const noexcept {
    Scheduler::yield_point();
    return value_;
  }
  void store(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    Scheduler::yield_point();
    value_ = value;
  }
  T exchange(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    Scheduler::yield_point();
    const T former = value_;
    value_ = value;
    return former;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order /*success*/ = std::memory_order_seq_cst,
                               std::memory_order /*failure*/ = std::memory_order_seq_cst) noexcept {
    Scheduler::yield_point();
    if (value_ == expected) {
      value_ = desired;
      return true;
    }
    expected = value_;
    return false;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success = std::memory_order_seq_cst,
                             std::memory_order failure = std::memory_order_seq_cst) noexcept {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  T fetch_add(T delta, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    return update([delta](T value) { return static_cast<T>(value + delta); });
  }
  T fetch_sub(T delta, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    return update([delta](T value) { return static_cast<T>(value - delta); });
  }
  T fetch_or(T bits, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    return update([bits](T value) { return static_cast<T>(value | bits); });
  }
  T fetch_and(T bits, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    return update([bits](T value) { return static_cast<T>(value & bits); });
  }

 private:
  template <class Function>
  T update(Function function) noexcept {
    Scheduler::yield_point();
    const T former = value_;
    value_ = function(former);
    return former;
  }

  T value_{};
};

}  // namespace kvpool::model
