// The TCP adapter: one connection for each pair of ranks, nothing but calls that return at once.
#include "kvpool/multigpu/tcp_communicator.hpp"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "multigpu/byte_order.hpp"
#include "multigpu/message_communicator.hpp"
#include "multigpu/tcp_socket.hpp"
#include "multigpu/transport.hpp"

namespace kvpool {

namespace {

using multigpu::Arrival;
using multigpu::ByteReader;
using multigpu::MessageStream;
using multigpu::milliseconds_until;
using multigpu::put;
using multigpu::put_text;
using multigpu::Socket;
using multigpu::TcpClock;
using multigpu::TimePoint;

constexpr std::size_t kMaxHost = 256;
constexpr std::size_t kMaxStrangers = 32;
constexpr int kLongestWaitMs = 1000;

/// Where a rank listens, and the number of this start (rank 0's counts).
struct Door {
  std::string host;
  std::uint16_t port = 0;
  std::uint64_t start = 0;
};

Bytes encode(const Door& door) {
  Bytes out;
  put(out, door.port);
  put(out, door.start);
  put_text(out, door.host);
  return out;
}

std::optional<Door> decode_door(const Bytes& bytes) {
  ByteReader reader(bytes);
  Door door;
  if (!reader.get(door.port) || !reader.get(door.start) || !reader.get_text(door.host, kMaxHost)) return std::nullopt;
  if (!reader.finished()) return std::nullopt;
  return door;
}

Bytes greeting(std::uint64_t start, int rank) {
  Bytes out;
  put(out, start);
  put(out, static_cast<std::int32_t>(rank));
  return out;
}

using Streams = std::vector<std::optional<MessageStream>>;  // by rank

class TcpTransport final : public multigpu::Transport {
 public:
  TcpTransport(Streams streams, int rank) : streams_(std::move(streams)), rank_(rank) {
    // A fast rank's first messages may have come together with its greeting.
    for (std::size_t r = 0; r < streams_.size(); ++r) {
      if (streams_[r]) take_messages(r);
    }
  }

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return static_cast<int>(streams_.size()); }
  TimePoint now() const override { return TcpClock::now(); }

  void send(int to, Bytes message) override {
    if (to == rank_) {
      arrivals_.push_back({rank_, std::move(message)});
    } else if (auto& stream = streams_[static_cast<std::size_t>(to)]; stream) {
      stream->send(message);
    }
  }

  std::optional<Arrival> receive(TimePoint until) override {
    do {
      if (arrivals_.empty()) move_bytes(until);
    } while (arrivals_.empty() && now() < until);
    if (arrivals_.empty()) return std::nullopt;
    Arrival arrival = std::move(arrivals_.front());
    arrivals_.pop_front();
    return arrival;
  }

  void flush(TimePoint until) override {
    const auto unsent = [](const auto& stream) { return stream && stream->wants_to_write(); };
    while (std::any_of(streams_.begin(), streams_.end(), unsent) && now() < until) move_bytes(until);
  }

  void give_up() noexcept override {}

 private:
  /// Reads and writes what can be; waits for the first such thing, until `until` at most.
  void move_bytes(TimePoint until) {
    std::vector<pollfd> entries;
    std::vector<std::size_t> ranks;
    for (std::size_t r = 0; r < streams_.size(); ++r) {
      if (!streams_[r]) continue;
      const int events = POLLIN | (streams_[r]->wants_to_write() ? POLLOUT : 0);
      entries.push_back({streams_[r]->descriptor(), static_cast<short>(events), 0});
      ranks.push_back(r);
    }
    if (poll(entries.data(), entries.size(), milliseconds_until(until, kLongestWaitMs)) < 1) return;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0) serve(ranks[i], entries[i].revents);
    }
  }

  /// A connection that breaks, or carries something else than messages, is one of a rank that is silent from now on.
  void serve(std::size_t rank, short events) {
    auto& stream = streams_[rank];
    bool open = (events & POLLOUT) == 0 || stream->flush();
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0) open = stream->read() && open;
    take_messages(rank);
    if (!open || stream->damaged()) stream.reset();
  }

  void take_messages(std::size_t rank) {
    while (auto message = streams_[rank]->take()) arrivals_.push_back({static_cast<int>(rank), *std::move(message)});
  }

  Streams streams_;
  int rank_;
  std::deque<Arrival> arrivals_;
};

/// Connects to all ranks below this one, and lets in all above it.
class Mesh {
 public:
  Mesh(std::vector<Door> doors, int rank) : doors_(std::move(doors)), rank_(rank), streams_(doors_.size()) {}

  Status connect(TimePoint until) {
    for (std::size_t r = 0; r < static_cast<std::size_t>(rank_); ++r) {
      const auto addresses = multigpu::resolve(doors_[r].host, doors_[r].port, until);
      if (!addresses.ok()) return {addresses.error().code, addresses.error().message, static_cast<int>(r)};
      Socket socket = multigpu::connect_to(*addresses, until);
      if (!socket.open()) {
        return {ErrorCode::deadline_exceeded,
                "rank " + std::to_string(r) + " does not answer at " + doors_[r].host + ":" +
                    std::to_string(doors_[r].port),
                static_cast<int>(r)};
      }
      admit(r, MessageStream(std::move(socket)));
      streams_[r]->send(greeting(doors_[0].start, rank_));
    }
    return {};
  }

  Status let_in(const Socket& listener, TimePoint until) {
    while (const std::size_t missing = first_missing()) {
      if (TcpClock::now() >= until) {
        return {ErrorCode::deadline_exceeded, "rank " + std::to_string(missing) + " did not connect",
                static_cast<int>(missing)};
      }
      std::vector<pollfd> entries{{listener.get(), POLLIN, 0}};
      for (const MessageStream& stranger : strangers_) entries.push_back({stranger.descriptor(), POLLIN, 0});
      if (poll(entries.data(), entries.size(), milliseconds_until(until, kLongestWaitMs)) < 1) continue;
      for (std::size_t i = strangers_.size(); i > 0; --i) {
        if (entries[i].revents != 0) greet(i - 1);
      }
      if ((entries[0].revents & POLLIN) == 0) continue;
      if (Socket socket = multigpu::accept_from(listener); socket.open()) {
        if (strangers_.size() >= kMaxStrangers) strangers_.erase(strangers_.begin());
        strangers_.emplace_back(std::move(socket));
      }
    }
    return {};
  }

  Streams take() { return std::move(streams_); }

 private:
  void admit(std::size_t rank, MessageStream stream) {
    stream.accept_up_to(MessageStream::kMaxMessage);
    streams_[rank].emplace(std::move(stream));
  }

  void greet(std::size_t index) {
    MessageStream& stranger = strangers_[index];
    const bool open = stranger.read();
    const auto message = stranger.take();
    if (!message && open && !stranger.damaged()) return;
    if (message) {
      ByteReader reader(*message);
      std::uint64_t start = 0;
      std::int32_t rank = 0;
      const bool known = reader.get(start) && reader.get(rank) && reader.finished() && start == doors_[0].start &&
                         rank > rank_ && rank < static_cast<int>(streams_.size());
      if (known && !streams_[static_cast<std::size_t>(rank)])
        admit(static_cast<std::size_t>(rank), std::move(stranger));
    }
    strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  /// 0: all ranks above this one are there.
  std::size_t first_missing() const {
    for (std::size_t r = static_cast<std::size_t>(rank_) + 1; r < streams_.size(); ++r) {
      if (!streams_[r]) return r;
    }
    return 0;
  }

  std::vector<Door> doors_;
  int rank_;
  Streams streams_;
  std::vector<MessageStream> strangers_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_tcp_communicator(const TcpPlace& place, int rank, int world_size,
                                                            Timeout timeout) {
  const TimePoint until = TcpClock::now() + timeout;
  const auto place_addresses = multigpu::resolve(place.host, place.port, until);
  if (!place_addresses.ok()) return place_addresses.error();
  const auto own = multigpu::own_address_towards(*place_addresses);
  if (!own.ok()) return own.error();
  const auto own_addresses = multigpu::resolve(*own, 0, until);
  if (!own_addresses.ok()) return own_addresses.error();
  const auto listener = multigpu::listen_at(*own_addresses, *own);
  if (!listener.ok()) return listener.error();
  std::random_device random;
  const Door mine{*own, multigpu::port_of(*listener), std::uint64_t{random()} << 32U | random()};
  const auto all = exchange_through_tcp(place, encode(mine), rank, world_size, timeout);
  if (!all.ok()) return all.error();
  std::vector<Door> doors;
  for (std::size_t r = 0; r < all->size(); ++r) {
    auto door = decode_door((*all)[r]);
    if (!door) return {ErrorCode::bad_input, "rank " + std::to_string(r) + " names no address", static_cast<int>(r)};
    doors.push_back(*std::move(door));
  }
  Mesh mesh(std::move(doors), rank);
  if (Status status = mesh.connect(until); !status.ok()) return status.error();
  if (Status status = mesh.let_in(*listener, until); !status.ok()) return status.error();
  return std::unique_ptr<Communicator>(
      std::make_unique<multigpu::MessageCommunicator>(std::make_unique<TcpTransport>(mesh.take(), rank)));
}

}  // namespace kvpool
