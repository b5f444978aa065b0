#include "kvpool/multigpu/thread_communicator.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "multigpu/message_communicator.hpp"
#include "multigpu/transport.hpp"

namespace kvpool {

namespace {

using multigpu::Arrival;
using multigpu::TimePoint;

/// What was sent to one rank and not yet received.
class Mailbox {
 public:
  void post(Arrival arrival) {
    {
      const std::lock_guard lock(mutex_);
      arrivals_.push_back(std::move(arrival));
    }
    came_.notify_one();
  }

  std::optional<Arrival> take(TimePoint until) {
    std::unique_lock lock(mutex_);
    if (arrivals_.empty() && until > std::chrono::steady_clock::now()) {
      came_.wait_until(lock, until, [&] { return !arrivals_.empty(); });
    }
    if (arrivals_.empty()) return std::nullopt;
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    return arrival;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Arrival> arrivals_;
};

/// The mailboxes outlive every rank, so that a message to a rank that has left is harmless.
using PostOffice = std::vector<Mailbox>;

class ThreadTransport final : public multigpu::Transport {
 public:
  ThreadTransport(std::shared_ptr<PostOffice> office, int rank) : office_(std::move(office)), rank_(rank) {}

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return static_cast<int>(office_->size()); }
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
  void send(int to, Bytes message) override {
    (*office_)[static_cast<std::size_t>(to)].post({rank_, std::move(message)});
  }
  std::optional<Arrival> receive(TimePoint until) override {
    return (*office_)[static_cast<std::size_t>(rank_)].take(until);
  }
  void flush(TimePoint /*until*/) override {}
  void give_up() noexcept override {}

 private:
  std::shared_ptr<PostOffice> office_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int world_size) {
  if (world_size < 1) throw std::invalid_argument("a world of " + std::to_string(world_size) + " ranks");
  const auto office = std::make_shared<PostOffice>(static_cast<std::size_t>(world_size));
  std::vector<std::unique_ptr<Communicator>> ranks;
  ranks.reserve(static_cast<std::size_t>(world_size));
  for (int r = 0; r < world_size; ++r) {
    ranks.push_back(std::make_unique<multigpu::MessageCommunicator>(std::make_unique<ThreadTransport>(office, r)));
  }
  return ranks;
}

}  // namespace kvpool
