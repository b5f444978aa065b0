// Stands in for std::atomic in the templates under test: every access asks the scheduler first.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "tests/model/scheduler.hpp"

namespace kvpool::model {

/// What an addition answers. Only who looks at it depends on the order of additions.
template <class T>
class Fetched {
 public:
  Fetched(T value, std::uint64_t location) : value_(value), location_(location) {}
  operator T() const {  // NOLINT(google-explicit-constructor): as the value itself
    if (StateWatch* const watch = Scheduler::watch()) {
      watch->result_used(Scheduler::current_index(), location_, static_cast<std::uint64_t>(value_));
    }
    return value_;
  }

 private:
  T value_;
  std::uint64_t location_;
};

template <class T>
class Atomic {
 public:
  static constexpr bool is_always_lock_free = true;

  Atomic() noexcept : Atomic(T{}) {}
  Atomic(T value) noexcept : value_(value) {  // NOLINT(google-explicit-constructor): as std::atomic
    if (StateWatch* const watch = Scheduler::watch()) watch->appeared(location_, word(value_));
  }
  ~Atomic() {
    if (StateWatch* const watch = Scheduler::watch()) watch->vanished(location_, word(value_));
  }
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load(std::memory_order /*order*/ = std::memory_order_seq_cst) const noexcept {
    Scheduler::yield_point(location_, Intent::read);
    return seen();
  }
  void store(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    Scheduler::yield_point(location_, Intent::change);
    set(value);
  }
  T exchange(T value, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    Scheduler::yield_point(location_, Intent::change);
    const T former = seen();
    set(value);
    return former;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order /*success*/ = std::memory_order_seq_cst,
                               std::memory_order /*failure*/ = std::memory_order_seq_cst) noexcept {
    Scheduler::yield_point(location_, Intent::change);
    const T former = seen();
    if (former == expected) {
      set(desired);
      return true;
    }
    expected = former;
    return false;
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success = std::memory_order_seq_cst,
                             std::memory_order failure = std::memory_order_seq_cst) noexcept {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  Fetched<T> fetch_add(T delta, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept { return add(delta); }
  Fetched<T> fetch_sub(T delta, std::memory_order /*order*/ = std::memory_order_seq_cst) noexcept {
    return add(static_cast<T>(T{} - delta));
  }

 private:
  static std::uint64_t word(T value) noexcept {
    if constexpr (std::is_pointer_v<T>) {
      return value != nullptr ? 1 : 0;  // what it leads to is told apart by the words there
    } else {
      return static_cast<std::uint64_t>(value);
    }
  }
  T seen() const noexcept {
    if (StateWatch* const watch = Scheduler::watch()) watch->read(Scheduler::current_index(), location_, word(value_));
    return value_;
  }
  void set(T value) noexcept {
    if (StateWatch* const watch = Scheduler::watch()) {
      watch->wrote(Scheduler::current_index(), location_, word(value_), word(value));
    }
    value_ = value;
  }
  Fetched<T> add(T delta) noexcept {
    Scheduler::yield_point(location_, Intent::change);
    const T former = value_;
    value_ = static_cast<T>(former + delta);
    if (StateWatch* const watch = Scheduler::watch()) {
      watch->added(Scheduler::current_index(), location_, word(former), word(value_));
    }
    return {former, location_};
  }

  T value_{};
  std::uint64_t location_ = Scheduler::new_location();
};

}  // namespace kvpool::model
