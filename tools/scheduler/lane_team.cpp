#include "tools/scheduler/lane_team.hpp"

namespace kvpool::scheduler {

LaneTeam::LaneTeam(std::size_t threads) {
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
}

LaneTeam::~LaneTeam() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void LaneTeam::run(const std::function<void(std::size_t)>& job) {
  std::unique_lock lock(mutex_);
  job_ = &job;
  busy_ = threads_.size();
  ++round_;
  start_.notify_all();
  done_.wait(lock, [this] { return busy_ == 0; });
  job_ = nullptr;
}

void LaneTeam::serve(std::size_t thread) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
    start_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const auto* job = job_;
    lock.unlock();
    (*job)(thread);
    lock.lock();
    if (--busy_ == 0) done_.notify_one();
  }
}

}  // namespace kvpool::scheduler
