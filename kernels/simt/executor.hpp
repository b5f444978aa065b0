// Runs a CUDA kernel on the CPU, thread by thread, to find its synchronisation bugs.
//
// Each thread of a block is a fibre; one block at a time per OS thread. A fibre runs until it reaches a barrier or a
// warp collective. The order in which runnable fibres get their turn is forward, reverse or random: a correct kernel
// gives the same bits under all of them. What it says nothing about: speed, and misorderings between threads that never
// synchronise; for the latter run it under ThreadSanitizer, to which every fibre is a thread of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace kvpool::kernels::simt {

enum class Schedule { forward, reverse, random };

struct LaunchOptions {
  Schedule schedule = Schedule::forward;
  std::uint32_t seed = 1;     ///< of the random schedule
  bool early_copies = false;  ///< asynchronous copies land at once, as they may on a device
  int os_threads = 1;
};

struct Grid {
  int x = 1;
  int y = 1;
  int threads = 128;  ///< in a block, a multiple of 32
  std::size_t shared_bytes = 0;
};

struct LaunchResult {
  std::string error;  ///< empty: every thread of every block came to its end
  std::int64_t switches = 0;

  [[nodiscard]] bool ok() const noexcept { return error.empty(); }
};

/// Calls kernel() once in every thread of the grid. A divergent barrier or collective ends the launch with an error
/// that names both lines and a thread at each. Blocking; several launches may run at the same time.
[[nodiscard]] LaunchResult launch(const Grid& grid, const std::function<void()>& kernel,
                                  const LaunchOptions& options = {});

}  // namespace kvpool::kernels::simt
