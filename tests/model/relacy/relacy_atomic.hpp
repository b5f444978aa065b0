// std::atomic's interface over Relacy's atomics, so that the shipped templates run under a checker that simulates
// C++ memory orders: a load may return any value that the orders allow, and plain data is checked for races.
#pragma once

#include <atomic>
#include <memory>
#include <sstream>
#include <string>

#include <relacy/relacy.hpp>

// Relacy replaces keywords by macros; the shipped headers must see the language as it is.
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

namespace kvpool::model {

/// `Weaken` turns every order into relaxed: the checks below must then find something.
template <class T, bool Weaken>
class BasicRelacyAtomic {
 public:
  BasicRelacyAtomic() : BasicRelacyAtomic(T{}) {}
  BasicRelacyAtomic(T value) { value_.store(value, rl::mo_relaxed, here()); }  // NOLINT(google-explicit-constructor)
  BasicRelacyAtomic(const BasicRelacyAtomic&) = delete;
  BasicRelacyAtomic& operator=(const BasicRelacyAtomic&) = delete;

  T load(std::memory_order order) const { return value_.load(relacy(order), here()); }
  void store(T value, std::memory_order order) { value_.store(value, relacy(order), here()); }
  T exchange(T value, std::memory_order order) { return value_.exchange(value, relacy(order), here()); }
  T fetch_add(T delta, std::memory_order order) { return value_.fetch_add(delta, relacy(order), here()); }
  T fetch_sub(T delta, std::memory_order order) { return value_.fetch_sub(delta, relacy(order), here()); }
  T fetch_or(T bits, std::memory_order order) { return value_.fetch_or(bits, relacy(order), here()); }
  T fetch_and(T bits, std::memory_order order) { return value_.fetch_and(bits, relacy(order), here()); }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure) {
    return value_.compare_exchange_weak(expected, desired, relacy(success), here(), relacy(failure), here());
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure) {
    return value_.compare_exchange_strong(expected, desired, relacy(success), here(), relacy(failure), here());
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order order) {
    return value_.compare_exchange_weak(expected, desired, relacy(order), here());
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order) {
    return value_.compare_exchange_strong(expected, desired, relacy(order), here());
  }

 private:
  static rl::debug_info here() { return rl::debug_info("atomic", "kvpool", 0); }
  static rl::memory_order relacy(std::memory_order order) {
    if (Weaken) return rl::mo_relaxed;
    switch (order) {
      case std::memory_order_relaxed: return rl::mo_relaxed;
      case std::memory_order_consume: return rl::mo_acquire;
      case std::memory_order_acquire: return rl::mo_acquire;
      case std::memory_order_release: return rl::mo_release;
      case std::memory_order_acq_rel: return rl::mo_acq_rel;
      case std::memory_order_seq_cst: return rl::mo_seq_cst;
    }
    return rl::mo_seq_cst;
  }

  rl::atomic<T> value_;
};

template <class T>
using RelacyAtomic = BasicRelacyAtomic<T, false>;
template <class T>
using WeakRelacyAtomic = BasicRelacyAtomic<T, true>;

}  // namespace kvpool::model
