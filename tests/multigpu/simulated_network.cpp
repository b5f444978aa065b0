#include "simulated_network.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace kvpool::testing {

namespace {

using std::chrono::microseconds;

/// Unwinds a rank that has died.
struct RankKilled {};

}  // namespace

std::string to_string(MessageFault fault) {
  switch (fault) {
    case MessageFault::lose: return "lose";
    case MessageFault::delay: return "delay";
    case MessageFault::duplicate: return "duplicate";
    case MessageFault::truncate: return "truncate";
    case MessageFault::corrupt: return "corrupt";
  }
  return "?";
}

std::string FaultPlan::describe() const {
  std::string text = "seed " + std::to_string(seed);
  for (const auto& fault : messages) {
    text += ", " + to_string(fault.fault) + " message " + std::to_string(fault.nth) + " of rank " +
            std::to_string(fault.from);
    if (fault.fault == MessageFault::delay) {
      text += " by " + std::to_string(std::chrono::duration_cast<microseconds>(fault.delay).count()) + " us";
    }
    text += " salt " + std::to_string(fault.salt);
  }
  for (const auto& kill : kills) {
    text += ", kill rank " + std::to_string(kill.rank) + " before message " + std::to_string(kill.before_message);
  }
  return text;
}

class SimulatedTransport final : public multigpu::Transport {
 public:
  SimulatedTransport(SimulatedNetwork& network, int rank) : network_(network), rank_(rank) {}
  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return static_cast<int>(network_.nodes_.size()); }
  TimePoint now() const override { return network_.now_; }
  void send(int to, Bytes message) override { network_.send(rank_, to, std::move(message)); }
  std::optional<Arrival> receive(TimePoint until) override { return network_.receive(rank_, until); }
  void flush(TimePoint /*until*/) override {}
  void give_up() noexcept override {}

 private:
  SimulatedNetwork& network_;
  int rank_;
};

SimulatedNetwork::SimulatedNetwork(int world_size, FaultPlan plan)
    : plan_(std::move(plan)), now_(std::chrono::hours(1)), random_state_(plan_.seed * 0x9e37'79b9'7f4a'7c15U + 1) {
  for (int r = 0; r < world_size; ++r) nodes_.push_back(std::make_unique<Node>());
}

std::vector<RankRun> SimulatedNetwork::run(const std::function<void(std::unique_ptr<multigpu::Transport>)>& program) {
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < nodes_.size(); ++r) {
    Node& node = *nodes_[r];
    node.waiting = true;
    node.until = now_ + (plan_.start_delays.empty() ? Duration{} : plan_.start_delays[r]);
    node.started_at = node.until;
  }
  for (int r = 0; r < static_cast<int>(nodes_.size()); ++r) {
    threads.emplace_back([this, r, &program] {
      Node& node = *nodes_[static_cast<std::size_t>(r)];
      {
        std::unique_lock lock(mutex_);
        node.turn.wait(lock, [&] { return running_ == r; });
      }
      try {
        program(std::make_unique<SimulatedTransport>(*this, r));
      } catch (const RankKilled&) {
        node.result.killed = true;
      }
      const std::lock_guard lock(mutex_);
      node.finished = true;
      node.result.returned_at = now_;
      node.result.returned_after = now_ - node.started_at;
      pass_on();
    });
  }
  {
    const std::lock_guard lock(mutex_);
    pass_on();
  }
  for (auto& thread : threads) thread.join();
  std::vector<RankRun> results;
  for (const auto& node : nodes_) results.push_back(node->result);
  return results;
}

/// Chooses who runs next: the waiting rank whose arrival or deadline comes first. Called by the rank that
/// stops running, with the lock held.
void SimulatedNetwork::pass_on() {
  running_ = -1;
  TimePoint earliest = TimePoint::max();
  for (int r = 0; r < static_cast<int>(nodes_.size()); ++r) {
    const Node& node = *nodes_[static_cast<std::size_t>(r)];
    if (!node.waiting || node.finished) continue;
    TimePoint wake = node.until;
    if (!node.inbox.empty() && node.until > node.started_at) wake = std::min(wake, node.inbox.begin()->first);
    if (wake < earliest) {
      earliest = wake;
      running_ = r;
    }
  }
  if (running_ < 0) return;
  now_ = std::max(now_, earliest);
  Node& next = *nodes_[static_cast<std::size_t>(running_)];
  next.waiting = false;
  next.turn.notify_one();
}

void SimulatedNetwork::wait_for_turn(std::unique_lock<std::mutex>& lock, int rank, TimePoint until) {
  Node& node = *nodes_[static_cast<std::size_t>(rank)];
  node.waiting = true;
  node.until = until;
  pass_on();
  node.turn.wait(lock, [&] { return running_ == rank; });
}

std::optional<Arrival> SimulatedNetwork::receive(int rank, TimePoint until) {
  std::unique_lock lock(mutex_);
  Node& node = *nodes_[static_cast<std::size_t>(rank)];
  const auto arrived = [&] { return !node.inbox.empty() && node.inbox.begin()->first <= now_; };
  if (!arrived() && until > now_) wait_for_turn(lock, rank, until);
  if (!arrived()) return std::nullopt;
  Arrival arrival = std::move(node.inbox.begin()->second);
  node.inbox.erase(node.inbox.begin());
  return arrival;
}

void SimulatedNetwork::send(int from, int to, Bytes message) {
  const std::lock_guard lock(mutex_);
  Node& sender = *nodes_[static_cast<std::size_t>(from)];
  const std::uint64_t nth = sender.result.messages_sent++;
  for (const auto& kill : plan_.kills) {
    if (kill.rank == from && kill.before_message <= nth) throw RankKilled{};
  }
  Duration latency = microseconds(5 + random() % 20);
  for (const auto& fault : plan_.messages) {
    if (fault.from != from || fault.nth != nth) continue;
    switch (fault.fault) {
      case MessageFault::lose: return;
      case MessageFault::delay: latency += fault.delay; break;
      case MessageFault::duplicate: deliver(from, to, message, latency + microseconds(fault.salt % 200)); break;
      case MessageFault::truncate: message.resize(fault.salt % message.size()); break;
      case MessageFault::corrupt:
        message[fault.salt % message.size()] ^= static_cast<std::byte>(1U << ((fault.salt >> 32U) % 8U));
        break;
    }
    if (message.empty()) break;
  }
  deliver(from, to, std::move(message), latency);
}

void SimulatedNetwork::deliver(int from, int to, Bytes message, Duration latency) {
  nodes_[static_cast<std::size_t>(to)]->inbox.emplace(now_ + latency, Arrival{from, std::move(message)});
}

std::uint64_t SimulatedNetwork::random() {
  random_state_ ^= random_state_ << 13U;
  random_state_ ^= random_state_ >> 7U;
  random_state_ ^= random_state_ << 17U;
  return random_state_;
}

}  // namespace kvpool::testing
