// What a communicator needs from the wire: whole messages between ranks, and a clock to wait by.
#pragma once

#include <chrono>
#include <optional>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool::multigpu {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

struct Arrival {
  int from = 0;  ///< sender, known to the wire and not to be doubted
  Bytes bytes;
};

/// Unreliable on purpose: messages may be lost, repeated, garbled and late. Used by one thread.
class Transport {
 public:
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  [[nodiscard]] virtual int rank() const noexcept = 0;
  [[nodiscard]] virtual int world_size() const noexcept = 0;
  /// The clock of receive() and flush(); virtual in simulations.
  [[nodiscard]] virtual TimePoint now() const = 0;

  /// Hands a message over. Never waits for the receiver; a message to a dead rank vanishes.
  virtual void send(int to, Bytes message) = 0;
  /// Next message from anyone; nothing when `until` has come. With until <= now: only what is there.
  [[nodiscard]] virtual std::optional<Arrival> receive(TimePoint until) = 0;
  /// Waits until sent messages have left this rank or `until` has come.
  virtual void flush(TimePoint until) = 0;
  /// The communicator has failed: from now on nothing may wait for other ranks.
  virtual void give_up() noexcept = 0;
};

}  // namespace kvpool::multigpu
