// A TCP port of this machine that was free a moment ago.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

namespace kvpool::testing {

inline sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

/// A socket bound to a free port; nobody else gets that port while it lives.
class Port {
 public:
  Port() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    auto address = loopback(0);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    number_ = ntohs(address.sin_port);
  }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;
  ~Port() { close(socket_); }
  [[nodiscard]] std::uint16_t number() const { return number_; }
  [[nodiscard]] int socket() const { return socket_; }

 private:
  int socket_;
  std::uint16_t number_ = 0;
};

inline std::uint16_t free_port() { return Port().number(); }

}  // namespace kvpool::testing
