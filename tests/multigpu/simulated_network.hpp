// A network of thread ranks in virtual time, with faults at chosen messages: deterministic and fast.
//
// One thread runs at a time. When it waits, the clock jumps to the next arrival or deadline and the rank
// concerned goes on, so a run depends on nothing but its plan, and an hour of time-outs costs nothing.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "multigpu/transport.hpp"

namespace kvpool::testing {

using multigpu::Arrival;
using multigpu::Duration;
using multigpu::TimePoint;

enum class MessageFault { lose, delay, duplicate, truncate, corrupt };
inline constexpr MessageFault kMessageFaults[] = {MessageFault::lose, MessageFault::delay, MessageFault::duplicate,
                                                  MessageFault::truncate, MessageFault::corrupt};
std::string to_string(MessageFault fault);

/// What goes wrong in one run.
struct FaultPlan {
  struct OnMessage {
    int from = 0;
    std::uint64_t nth = 0;  ///< counted over all messages of the sender
    MessageFault fault = MessageFault::lose;
    Duration delay{};        ///< for `delay`
    std::uint64_t salt = 0;  ///< which byte is hit, where the message is cut
  };
  struct Kill {
    int rank = 0;
    std::uint64_t before_message = 0;  ///< dies instead of sending its nth message
  };
  std::vector<OnMessage> messages;
  std::vector<Kill> kills;
  std::uint64_t seed = 1;              ///< of the latencies
  std::vector<Duration> start_delays;  ///< per rank; empty: all start together
  [[nodiscard]] std::string describe() const;
};

struct RankRun {
  bool killed = false;
  Duration returned_after{};  ///< since the rank started
  TimePoint returned_at{};
  std::uint64_t messages_sent = 0;
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(int world_size, FaultPlan plan);

  /// Runs `program` for every rank, each on a thread of its own, until all have returned or were killed.
  std::vector<RankRun> run(const std::function<void(std::unique_ptr<multigpu::Transport>)>& program);

 private:
  friend class SimulatedTransport;

  struct Node {
    bool waiting = false;
    bool finished = false;
    TimePoint until{};
    std::multimap<TimePoint, Arrival> inbox;
    std::condition_variable turn;
    RankRun result;
    TimePoint started_at{};
  };

  void send(int from, int to, Bytes message);
  std::optional<Arrival> receive(int rank, TimePoint until);
  void wait_for_turn(std::unique_lock<std::mutex>& lock, int rank, TimePoint until);
  void pass_on();
  void deliver(int from, int to, Bytes message, Duration latency);
  std::uint64_t random();

  FaultPlan plan_;
  std::mutex mutex_;
  TimePoint now_{};
  int running_ = -1;
  std::uint64_t random_state_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace kvpool::testing
