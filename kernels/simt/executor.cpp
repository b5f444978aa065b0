// Launches, and the words a fibre speaks to its runner. Compiled without race checking, like block_runner.cpp.
#include "kernels/simt/executor.hpp"

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/simt/block_runner.hpp"
#include "kernels/simt/fibre.hpp"
#include "kernels/simt/sanitizer_hooks.hpp"

namespace kvpool::kernels::simt {
namespace {

thread_local BlockRunner* g_runner = nullptr;

}  // namespace

LaunchResult launch(const Grid& grid, const std::function<void()>& kernel, const LaunchOptions& options) {
  char end_token = 0;
  LaunchResult result;
  std::mutex mutex;
  std::atomic<int> next{0};
  const int blocks = grid.x * grid.y;
  const auto work = [&] {
    BlockRunner runner(grid, kernel, options, &end_token);
    BlockRunner* const outer = g_runner;
    g_runner = &runner;
    while (true) {
      const int block = next.fetch_add(1, std::memory_order_relaxed);
      if (block >= blocks || !runner.run(block % grid.x, block / grid.x)) break;
    }
    g_runner = outer;
    const std::lock_guard<std::mutex> lock(mutex);
    result.switches += runner.switches();
    if (result.error.empty()) result.error = runner.error();
  };
  if (options.os_threads <= 1) {
    work();
  } else {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(options.os_threads));
    for (int i = 0; i < options.os_threads; ++i) threads.emplace_back(work);
    for (std::thread& thread : threads) thread.join();
  }
  acquire(&end_token);
  return result;
}

int thread_index() noexcept { return g_runner->thread(); }
int block_x() noexcept { return g_runner->x(); }
int block_y() noexcept { return g_runner->y(); }
int block_threads() noexcept { return g_runner->grid().threads; }

void block_barrier(const char* file, int line) { g_runner->barrier({file, line}); }

float shuffle_xor(float value, int mask, const char* file, int line) {
  return g_runner->shuffle(value, mask, {file, line});
}

void multiply_fragments(float* c, const float* a, const float* b, const char* file, int line) {
  g_runner->multiply({c, a, b}, {file, line});
}

void copy_async_issue(volatile std::uint32_t* to, const std::uint32_t* words, int count) {
  PendingCopy copy{to, {}, count};
  for (int i = 0; i < count; ++i) copy.words[i] = words[i];
  g_runner->current().groups.back().push_back(copy);
}

bool early_copies() noexcept { return g_runner->early_copies(); }

void copy_async_commit() { g_runner->current().groups.emplace_back(); }

const PendingCopy* next_landed(int pending) {
  Fibre& self = g_runner->current();
  while (static_cast<int>(self.groups.size()) - 1 > pending) {
    const auto& oldest = self.groups.front();
    if (self.num_landed < oldest.size()) return &oldest[self.num_landed++];
    self.groups.erase(self.groups.begin());
    self.num_landed = 0;
  }
  return nullptr;
}

unsigned char* shared_memory() noexcept { return g_runner->shared(); }

unsigned char* after_array(unsigned char* end) noexcept {
  poison(end, kRedzone);
  return end + kRedzone;
}

}  // namespace kvpool::kernels::simt
