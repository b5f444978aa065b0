// Under ThreadSanitizer this file is compiled without race checking: oneTBB's library is not instrumented, so its
// templates must not be either, or every task it hands to another thread would look like a race. What oneTBB
// guarantees, that starting a call comes before the call and its end before the return, is told to the checker in so
// many words.
#include "kernels/cpu/tbb_workers.hpp"

#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

#include <algorithm>

#if defined(KVPOOL_RACE_CHECKED)
#include <sanitizer/tsan_interface.h>
#endif

namespace kvpool::kernels {
namespace {

#if defined(KVPOOL_RACE_CHECKED)
void arrives(void* token) { __tsan_acquire(token); }
void departs(void* token) { __tsan_release(token); }
#else
void arrives(void* /*token*/) {}
void departs(void* /*token*/) {}
#endif

}  // namespace

int arena_threads() { return tbb::this_task_arena::max_concurrency(); }

void run_on_workers(int threads, void (*work)(void*), void* context) {
  const auto spread = [=](int count) {
    const auto task = [=](int) {
      arrives(context);
      work(context);
      departs(context);
    };
    departs(context);
    tbb::parallel_for(0, count, task, tbb::simple_partitioner{});
    arrives(context);
  };
  if (threads == 0) {
    spread(arena_threads());
    return;
  }
  const int count = std::min(threads, tbb::info::default_concurrency());
  tbb::task_arena arena(count);
  arena.execute([=] { spread(count); });
}

}  // namespace kvpool::kernels
