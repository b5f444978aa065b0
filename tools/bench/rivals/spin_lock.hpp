// A spinlock that gives the processor away when the owner may have lost its own.
#pragma once

#include <sched.h>

#include <atomic>

namespace kvpool::tools {

class SpinLock {
 public:
  void lock() noexcept {
    while (locked_.exchange(true, std::memory_order_acquire)) {
      for (int spins = 0; locked_.load(std::memory_order_relaxed); ++spins) {
        if (spins < kSpinsBeforeYield) {
          pause();
        } else {
          sched_yield();
          spins = 0;
        }
      }
    }
  }
  void unlock() noexcept { locked_.store(false, std::memory_order_release); }

 private:
  static void pause() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static constexpr int kSpinsBeforeYield = 100;
  std::atomic<bool> locked_{false};
};

}  // namespace kvpool::tools
