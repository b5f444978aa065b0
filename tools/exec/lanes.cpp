#include "tools/exec/lanes.hpp"

#include <utility>

namespace kvpool::tools {
namespace {

constexpr std::size_t kMostQueued = 256;

}  // namespace

Lanes::Lanes(std::size_t threads) : workers_(threads) {
  for (Worker& worker : workers_) {
    worker.thread = std::thread([&worker] { work(worker); });
  }
}

Lanes::~Lanes() {
  for (Worker& worker : workers_) {
    {
      const std::lock_guard lock(worker.mutex);
      worker.stop = true;
    }
    worker.changed.notify_all();
  }
  for (Worker& worker : workers_) {
    worker.thread.join();
  }
}

void Lanes::work(Worker& worker) {
  std::unique_lock lock(worker.mutex);
  while (true) {
    worker.changed.wait(lock, [&worker] { return worker.stop || !worker.queue.empty(); });
    if (worker.queue.empty()) {
      return;
    }
    const std::function<void()> task = std::move(worker.queue.front());
    worker.queue.pop_front();
    worker.busy = true;
    lock.unlock();
    worker.changed.notify_all();
    task();
    lock.lock();
    worker.busy = false;
    worker.changed.notify_all();
  }
}

void Lanes::post(std::size_t lane, std::function<void()> task) {
  Worker& worker = workers_[lane % workers_.size()];
  std::unique_lock lock(worker.mutex);
  worker.changed.wait(lock, [&worker] { return worker.queue.size() < kMostQueued; });
  worker.queue.push_back(std::move(task));
  lock.unlock();
  worker.changed.notify_all();
}

void Lanes::join_all() {
  for (Worker& worker : workers_) {
    std::unique_lock lock(worker.mutex);
    worker.changed.wait(lock, [&worker] { return worker.queue.empty() && !worker.busy; });
  }
}

}  // namespace kvpool::tools
