// Sockets that never wait longer than they are told, and whole messages over them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"

namespace kvpool::multigpu {

using TcpClock = std::chrono::steady_clock;

/// Owns a descriptor. Movable.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) noexcept : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  [[nodiscard]] int get() const noexcept { return descriptor_; }
  [[nodiscard]] bool open() const noexcept { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

/// One address of a host, ready for bind and connect.
struct TcpAddress {
  int family = 0;
  std::vector<std::byte> bytes;
};

/// Addresses of `host` in order of preference. Name services may take long: waits until `until` at most.
/// Errors: environment, with the resolver's reason; deadline_exceeded.
[[nodiscard]] Result<std::vector<TcpAddress>> resolve(const std::string& host, std::uint16_t port,
                                                      TcpClock::time_point until);

/// Listens at the first of `addresses` that the system grants. Error: environment, with its reason.
[[nodiscard]] Result<Socket> listen_at(const std::vector<TcpAddress>& addresses, const std::string& name);

/// Connects to the first address that answers; not open when none does before `until`.
[[nodiscard]] Socket connect_to(const std::vector<TcpAddress>& addresses, TcpClock::time_point until);

/// The port at which a socket listens.
[[nodiscard]] std::uint16_t port_of(const Socket& listener) noexcept;

/// This machine's address on the way to `addresses`, as a number. Sends nothing. Error: environment.
[[nodiscard]] Result<std::string> own_address_towards(const std::vector<TcpAddress>& addresses);

/// For poll(): what is left until `until`, in [0, longest]. `until` may be as far in the past as can be.
[[nodiscard]] int milliseconds_until(TcpClock::time_point until, int longest);

/// A caller if one waits; not open otherwise.
[[nodiscard]] Socket accept_from(const Socket& listener);

/// Bytes in both directions over one non-blocking socket, cut into messages of a length and that many bytes.
class MessageStream {
 public:
  static constexpr std::size_t kMaxMessage = std::size_t{1} << 30U;

  explicit MessageStream(Socket socket) noexcept : socket_(std::move(socket)) {}

  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  [[nodiscard]] bool wants_to_write() const noexcept { return sent_ < out_.size(); }

  /// Queues a message and writes what the system takes at once.
  void send(const Bytes& message);
  /// Writes more of what is queued. False: the connection is broken.
  bool flush();
  /// Reads what is there. False: the other side has closed, or the connection is broken.
  bool read();
  /// The next whole message that was read. Empty: none yet, or damaged().
  [[nodiscard]] std::optional<Bytes> take();
  /// What was read cannot be the beginning of a message: not our magic, or longer than `longest`.
  [[nodiscard]] bool damaged() const noexcept { return damaged_; }
  /// Longest message that is accepted; the default before the other side has shown who it is is small.
  void accept_up_to(std::size_t longest) noexcept { longest_ = longest; }

 private:
  Socket socket_;
  Bytes in_;
  Bytes out_;
  std::size_t sent_ = 0;
  std::size_t longest_ = std::size_t{1} << 17U;
  bool damaged_ = false;
};

}  // namespace kvpool::multigpu
