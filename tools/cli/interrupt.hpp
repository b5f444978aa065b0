// Ctrl-C ends a program at the next convenient point, with the result so far.
#pragma once

#include <csignal>

namespace kvpool::tools {

/// While one of these lives, the first SIGINT or SIGTERM only sets a flag; the second one ends the process as
/// usual. One at a time per process.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  struct sigaction previous_int_ {};
  struct sigaction previous_term_ {};
};

/// Whether a signal came since the guard was made. Wait-free, any thread.
[[nodiscard]] bool interrupt_requested() noexcept;

}  // namespace kvpool::tools
