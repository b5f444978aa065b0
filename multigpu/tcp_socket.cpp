#include "multigpu/tcp_socket.hpp"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <system_error>
#include <thread>
#include <utility>

#include "multigpu/byte_order.hpp"

namespace kvpool::multigpu {

namespace {

constexpr std::uint32_t kMagic = 0x4b565443U;  // every message starts with it
constexpr std::size_t kHeader = 8;             // magic, length
constexpr int kBacklog = 128;

std::string reason(int error) { return std::generic_category().message(error); }

const sockaddr* as_sockaddr(const TcpAddress& address) {
  return reinterpret_cast<const sockaddr*>(address.bytes.data());
}

Socket new_socket(int family) {
  Socket socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (socket.open()) (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

/// What the resolver found, or its error.
struct Lookup {
  std::mutex mutex;
  std::condition_variable done_changed;
  bool done = false;
  int error = 0;
  std::vector<TcpAddress> addresses;
};

void look_up(const std::string& host, const std::string& port, Lookup& lookup) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  std::vector<TcpAddress> addresses;
  for (const addrinfo* entry = found; error == 0 && entry != nullptr; entry = entry->ai_next) {
    const auto* bytes = reinterpret_cast<const std::byte*>(entry->ai_addr);
    addresses.push_back({entry->ai_family, {bytes, bytes + entry->ai_addrlen}});
  }
  if (found != nullptr) freeaddrinfo(found);
  const std::lock_guard lock(lookup.mutex);
  lookup.error = error;
  lookup.addresses = std::move(addresses);
  lookup.done = true;
  lookup.done_changed.notify_all();
}

bool finish_connecting(const Socket& socket, TcpClock::time_point until) {
  pollfd poll_entry{socket.get(), POLLOUT, 0};
  if (poll(&poll_entry, 1, milliseconds_until(until, 60'000)) != 1) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

/// Trying a port of one's own machine again and again can meet oneself, when the system picks that very port to call
/// from.
bool met_itself(const Socket& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_size = sizeof(here);
  socklen_t there_size = sizeof(there);
  return getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
         getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &there_size) == 0 && here_size == there_size &&
         std::memcmp(&here, &there, here_size) == 0;
}

}  // namespace

Socket::Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

Socket& Socket::operator=(Socket&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

Socket::~Socket() {
  if (descriptor_ >= 0) (void)close(descriptor_);
}

Result<std::vector<TcpAddress>> resolve(const std::string& host, std::uint16_t port, TcpClock::time_point until) {
  // The resolver cannot be interrupted; a thread that outlives its time ends by itself and touches only what it shares.
  const auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host, port] { look_up(host, std::to_string(port), *lookup); }).detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->done_changed.wait_until(lock, until, [&] { return lookup->done; })) {
    return {ErrorCode::deadline_exceeded, "nobody says in time which address '" + host + "' has"};
  }
  if (lookup->error != 0) {
    return {ErrorCode::environment, "'" + host + "' has no address: " + gai_strerror(lookup->error)};
  }
  return lookup->addresses;
}

Result<Socket> listen_at(const std::vector<TcpAddress>& addresses, const std::string& name) {
  int error = EADDRNOTAVAIL;
  for (const TcpAddress& address : addresses) {
    Socket socket = new_socket(address.family);
    const int on = 1;
    // A port whose last connections are still closing is free; one that somebody listens at is not.
    const bool listening =
        socket.open() && setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(socket.get(), as_sockaddr(address), static_cast<socklen_t>(address.bytes.size())) == 0 &&
        listen(socket.get(), kBacklog) == 0;
    if (listening) return socket;
    error = errno;
  }
  return {ErrorCode::environment, "cannot listen at " + name + ": " + reason(error)};
}

Socket connect_to(const std::vector<TcpAddress>& addresses, TcpClock::time_point until) {
  for (const TcpAddress& address : addresses) {
    Socket socket = new_socket(address.family);
    if (!socket.open()) continue;
    const int result = connect(socket.get(), as_sockaddr(address), static_cast<socklen_t>(address.bytes.size()));
    const bool connected = result == 0 || (errno == EINPROGRESS && finish_connecting(socket, until));
    if (connected && !met_itself(socket)) return socket;
  }
  return {};
}

std::uint16_t port_of(const Socket& listener) noexcept {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

Result<std::string> own_address_towards(const std::vector<TcpAddress>& addresses) {
  for (const TcpAddress& address : addresses) {
    // Connecting a datagram socket only chooses the route.
    const Socket socket(::socket(address.family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    std::array<char, NI_MAXHOST> text{};
    if (socket.open() &&
        connect(socket.get(), as_sockaddr(address), static_cast<socklen_t>(address.bytes.size())) == 0 &&
        getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      return std::string(text.data());
    }
  }
  return {ErrorCode::environment, "this machine has no route to the place where ranks meet"};
}

int milliseconds_until(TcpClock::time_point until, int longest) {
  const TcpClock::time_point now = TcpClock::now();
  if (until <= now) return 0;  // nothing can be subtracted from the earliest time there is
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now).count();
  return static_cast<int>(std::min<std::int64_t>(left, longest));
}

Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int on = 1;
  if (socket.open()) (void)setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

void MessageStream::send(const Bytes& message) {
  put(out_, kMagic);
  put(out_, static_cast<std::uint32_t>(message.size()));
  out_.insert(out_.end(), message.begin(), message.end());
  (void)flush();
}

bool MessageStream::flush() {
  while (sent_ < out_.size()) {
    const auto written = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (written < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    sent_ += static_cast<std::size_t>(written);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

bool MessageStream::read() {
  std::array<std::byte, 16384> buffer{};
  while (true) {
    const auto got = recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    if (got == 0) return false;
    in_.insert(in_.end(), buffer.begin(), buffer.begin() + got);
    // Nobody makes this side keep more than one message it would accept and a little of the next.
    if (in_.size() > longest_ + buffer.size()) return true;
  }
}

std::optional<Bytes> MessageStream::take() {
  // Even a first byte tells whether it may be ours.
  Bytes expected;
  put(expected, kMagic);
  const std::size_t known = std::min(in_.size(), expected.size());
  damaged_ =
      damaged_ || !std::equal(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(known), in_.begin());
  if (damaged_ || in_.size() < kHeader) return std::nullopt;
  ByteReader reader(std::span<const std::byte>(in_).subspan(expected.size()));
  std::uint32_t length = 0;
  (void)reader.get(length);
  damaged_ = length > longest_;
  if (damaged_ || in_.size() < kHeader + length) return std::nullopt;
  const auto begin = in_.begin() + kHeader;
  Bytes message(begin, begin + length);
  in_.erase(in_.begin(), begin + length);
  return message;
}

}  // namespace kvpool::multigpu
