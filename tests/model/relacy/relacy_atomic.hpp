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

/// What is taken away from the orders that the code asks for: a kernel must fail with each but the first.
enum class Weakened {
  nothing,
  releases,  ///< nothing that is written is handed over
  acquires,  ///< nothing that is read is taken over
  all,
};
inline Weakened weakened = Weakened::nothing;  ///< for the simulations that follow

template <class T>
class RelacyAtomic {
 public:
  RelacyAtomic() : RelacyAtomic(T{}) {}
  RelacyAtomic(T value) { value_.store(value, rl::mo_relaxed, here()); }  // NOLINT(google-explicit-constructor)
  RelacyAtomic(const RelacyAtomic&) = delete;
  RelacyAtomic& operator=(const RelacyAtomic&) = delete;

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
    const bool releases = weakened == Weakened::nothing || weakened == Weakened::acquires;
    const bool acquires = weakened == Weakened::nothing || weakened == Weakened::releases;
    switch (order) {
      case std::memory_order_relaxed: break;
      case std::memory_order_consume:
      case std::memory_order_acquire: return acquires ? rl::mo_acquire : rl::mo_relaxed;
      case std::memory_order_release: return releases ? rl::mo_release : rl::mo_relaxed;
      case std::memory_order_acq_rel:
      case std::memory_order_seq_cst:  // is not used by the shipped code, and not granted to it
        if (releases && acquires) return rl::mo_acq_rel;
        return releases ? rl::mo_release : acquires ? rl::mo_acquire : rl::mo_relaxed;
    }
    return rl::mo_relaxed;
  }

  rl::atomic<T> value_;
};

}  // namespace kvpool::model
