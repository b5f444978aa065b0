// Threads that carry out the lanes of an op script.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kvpool::tools {

/// Tasks of one lane run in the order in which they were posted, on thread `lane mod threads`. Queues are bounded:
/// post() waits for room. Tasks must not throw.
class Lanes {
 public:
  explicit Lanes(std::size_t threads);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  void post(std::size_t lane, std::function<void()> task);

  /// Returns when everything posted so far is done. One caller, the one that posts.
  void join_all();

 private:
  struct Worker {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false;
    bool stop = false;
    std::thread thread;
  };
  static void work(Worker& worker);

  std::vector<Worker> workers_;
};

}  // namespace kvpool::tools
