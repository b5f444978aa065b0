// Several scheduler threads replay one trace on one pool.
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tools/cli/interrupt.hpp"
#include "tools/replay/replayer.hpp"

namespace kvpool::tools {
namespace {

/// A session stays on one thread, so that its requests keep their order.
std::size_t thread_of(const TraceRequest& request, std::size_t index, std::size_t threads) {
  return request.session < 0 ? index % threads : static_cast<std::size_t>(request.session) % threads;
}

}  // namespace

void replay_in_parallel(const Trace& trace, const ReplayOptions& options, BlockPool& pool, Progress& progress,
                        ReplayResult& result) {
  const std::size_t threads = options.threads;
  std::vector<std::vector<std::size_t>> work(threads);
  for (std::size_t index = 0; index < trace.size(); ++index) {
    work[thread_of(trace[index], index, threads)].push_back(index);
  }
  SharedLoad load;
  std::mutex failure_mutex;
  std::exception_ptr failure;  // under failure_mutex
  std::vector<std::unique_ptr<ReplayLane>> lanes;
  for (std::size_t t = 0; t < threads; ++t) {
    lanes.push_back(std::make_unique<ReplayLane>(trace, options, pool, load));
  }
  const auto run_lane = [&](std::size_t t) {
    try {
      for (std::size_t i = 0; i < work[t].size() && !interrupt_requested(); ++i) {
        (void)lanes[t]->admit(work[t][i]);
        progress.advance();
      }
    } catch (...) {
      const std::lock_guard lock(failure_mutex);
      failure = std::current_exception();
    }
    lanes[t]->free_all();
  };
  {
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t) {
      running.emplace_back(run_lane, t);
    }
    for (std::thread& thread : running) {
      thread.join();
    }
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  for (const auto& lane : lanes) {
    collect(*lane, result);
  }
  result.interrupted = interrupt_requested();
}

}  // namespace kvpool::tools
