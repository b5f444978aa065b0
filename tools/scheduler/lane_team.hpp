// A fixed set of threads that do one thing together and then wait for the next.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvpool::scheduler {

class LaneTeam {
 public:
  explicit LaneTeam(std::size_t threads);
  ~LaneTeam();
  LaneTeam(const LaneTeam&) = delete;
  LaneTeam& operator=(const LaneTeam&) = delete;

  /// Runs job(i) on thread i, all at the same time, and returns when the last one is done. What a thread wrote
  /// in one call it and the caller see in the next. Must not be called from a job; jobs must not throw.
  void run(const std::function<void(std::size_t)>& job);

 private:
  void serve(std::size_t thread);

  std::mutex mutex_;
  std::condition_variable start_;
  std::condition_variable done_;
  const std::function<void(std::size_t)>* job_ = nullptr;  ///< under mutex_
  std::uint64_t round_ = 0;                                ///< under mutex_
  std::size_t busy_ = 0;                                   ///< under mutex_
  bool stop_ = false;                                      ///< under mutex_
  std::vector<std::thread> threads_;
};

}  // namespace kvpool::scheduler
