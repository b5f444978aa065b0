// The store of exchange_through_tcp: rank 0 collects what all bring, and lets everybody go at the same moment.
#include <poll.h>

#include <algorithm>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "kvpool/multigpu/rendezvous.hpp"
#include "multigpu/byte_order.hpp"
#include "multigpu/tcp_socket.hpp"

namespace kvpool {

namespace {

using multigpu::ByteReader;
using multigpu::MessageStream;
using multigpu::milliseconds_until;
using multigpu::put;
using multigpu::put_text;
using multigpu::Socket;
using multigpu::TcpClock;

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kMaxBytes = std::size_t{64} << 10U;
constexpr std::size_t kMaxText = 4000;
constexpr std::size_t kMaxStrangers = 32;
constexpr int kLongestWaitMs = 1000;
constexpr auto kRetryPause = std::chrono::milliseconds(20);

enum class Answer : std::uint8_t { go = 0, failed = 1, other_job = 2 };

std::string name_of(const TcpPlace& place) { return place.host + ":" + std::to_string(place.port); }

std::string_view as_text(const Bytes& bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Bytes to_bytes(const std::string& text) {
  const auto* data = reinterpret_cast<const std::byte*>(text.data());
  return {data, data + text.size()};
}

struct Hello {
  std::string job;
  std::uint32_t world_size = 0;
  std::uint32_t rank = 0;
  std::string bytes;
};

Bytes encode(const Hello& hello) {
  Bytes out;
  put(out, kVersion);
  put_text(out, hello.job);
  put(out, hello.world_size);
  put(out, hello.rank);
  put_text(out, hello.bytes);
  return out;
}

std::optional<Hello> decode_hello(const Bytes& message) {
  ByteReader reader(message);
  Hello hello;
  std::uint32_t version = 0;
  const bool sound = reader.get(version) && version == kVersion && reader.get_text(hello.job, kMaxText) &&
                     reader.get(hello.world_size) && reader.get(hello.rank) &&
                     reader.get_text(hello.bytes, kMaxBytes) && reader.finished();
  if (!sound) return std::nullopt;
  return hello;
}

Bytes refusal(Answer answer, const Error& error) {
  Bytes out;
  put(out, static_cast<std::uint8_t>(answer));
  put(out, static_cast<std::uint8_t>(error.code));
  put(out, static_cast<std::int32_t>(error.rank));
  put_text(out, std::string_view(error.message).substr(0, kMaxText));
  return out;
}

Result<std::vector<Bytes>> decode_answer(const Bytes& message, int world_size, const std::string& where) {
  ByteReader reader(message);
  const Error garbled{ErrorCode::bad_input, "the store at " + where + " answered with something that cannot be read",
                      0};
  std::uint8_t answer = 0;
  if (!reader.get(answer) || answer > static_cast<std::uint8_t>(Answer::other_job)) return garbled;
  if (answer != static_cast<std::uint8_t>(Answer::go)) {
    Error error;
    std::uint8_t code = 0;
    std::int32_t rank = -1;
    if (!reader.get(code) || code > static_cast<std::uint8_t>(ErrorCode::internal) || !reader.get(rank) ||
        !reader.get_text(error.message, kMaxText) || !reader.finished()) {
      return garbled;
    }
    error.code = static_cast<ErrorCode>(code);
    error.rank = rank;
    return error;
  }
  std::vector<Bytes> all;
  for (int r = 0; r < world_size; ++r) {
    std::string bytes;
    if (!reader.get_text(bytes, kMaxBytes)) return garbled;
    all.push_back(to_bytes(bytes));
  }
  if (!reader.finished()) return garbled;
  return all;
}

/// Rank 0's side. Callers are strangers until they have said a rank of this job.
class Store {
 public:
  Store(const TcpPlace& place, const Bytes& mine, int world_size)
      : place_(place), all_(static_cast<std::size_t>(world_size)), owners_(all_.size(), nullptr) {
    all_[0] = mine;
  }

  Result<std::vector<Bytes>> run(const Socket& listener, TcpClock::time_point until, Timeout timeout) {
    // Some time is left to tell those who came that the others did not.
    const auto collect_until = until - std::min<TcpClock::duration>(timeout / 8, std::chrono::milliseconds(250));
    while (!verdict_ && !complete() && TcpClock::now() < collect_until) wait_and_serve(&listener, collect_until);
    if (!verdict_ && !complete()) verdict_ = missing(timeout);
    Bytes answer;
    if (verdict_) {
      answer = refusal(Answer::failed, *verdict_);
    } else {
      put(answer, static_cast<std::uint8_t>(Answer::go));
      for (const Bytes& bytes : all_) put_text(answer, as_text(bytes));
    }
    for (Caller& caller : callers_) {
      if (caller.rank > 0) caller.stream.send(answer);
    }
    const auto unsent = [](const Caller& caller) { return caller.stream.wants_to_write(); };
    while (std::any_of(callers_.begin(), callers_.end(), unsent) && TcpClock::now() < until) {
      wait_and_serve(nullptr, until);
    }
    if (verdict_) return *verdict_;
    return all_;
  }

 private:
  struct Caller {
    explicit Caller(Socket socket) : stream(std::move(socket)) {}
    MessageStream stream;
    int rank = 0;  ///< 0: not known
    bool leaving = false;
  };

  bool complete() const { return std::count(owners_.begin() + 1, owners_.end(), nullptr) == 0; }

  Error missing(Timeout timeout) const {
    std::string names;
    int first = -1;
    for (std::size_t r = 1; r < owners_.size(); ++r) {
      if (owners_[r] != nullptr) continue;
      if (first < 0) first = static_cast<int>(r);
      names += (names.empty() ? "" : ", ") + std::to_string(r);
    }
    std::string message = "rank " + names + " did not come to the store at " + place_.host + ":" +
                          std::to_string(place_.port) + " within " + std::to_string(timeout.count()) + " ms";
    if (refused_ > 0) message += "; " + std::to_string(refused_) + " connections were no ranks of this job";
    return {ErrorCode::deadline_exceeded, std::move(message), first};
  }

  /// Waits until something can be done, and does it. Without a listener nobody new is let in.
  void wait_and_serve(const Socket* listener, TcpClock::time_point until) {
    std::vector<pollfd> entries;
    for (const Caller& caller : callers_) {
      const int events = POLLIN | (caller.stream.wants_to_write() ? POLLOUT : 0);
      entries.push_back({caller.stream.descriptor(), static_cast<short>(events), 0});
    }
    if (listener != nullptr) entries.push_back({listener->get(), POLLIN, 0});
    if (poll(entries.data(), entries.size(), milliseconds_until(until, kLongestWaitMs)) < 1) return;
    std::size_t i = 0;
    for (Caller& caller : callers_) serve(caller, entries[i++].revents);
    callers_.remove_if([this](const Caller& caller) {
      if (!caller.leaving) return false;
      if (caller.rank > 0) owners_[static_cast<std::size_t>(caller.rank)] = nullptr;
      return true;
    });
    if (listener == nullptr || (entries.back().revents & POLLIN) == 0) return;
    if (Socket socket = multigpu::accept_from(*listener); socket.open()) let_in(std::move(socket));
  }

  void let_in(Socket socket) {
    const auto stranger = [](const Caller& caller) { return caller.rank == 0; };
    if (static_cast<std::size_t>(std::count_if(callers_.begin(), callers_.end(), stranger)) >= kMaxStrangers) {
      callers_.erase(std::find_if(callers_.begin(), callers_.end(), stranger));  // the one that was silent longest
      ++refused_;
    }
    callers_.emplace_back(std::move(socket));
  }

  void serve(Caller& caller, short events) {
    if ((events & POLLOUT) != 0 && !caller.stream.flush()) caller.leaving = true;
    if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return;
    if (!caller.stream.read()) caller.leaving = true;
    if (const auto message = caller.stream.take(); message && caller.rank == 0) {
      greet(caller, *message);
    } else if (message || caller.stream.damaged()) {
      refuse(caller);
    }
  }

  void refuse(Caller& caller) {
    ++refused_;
    caller.leaving = true;
  }

  void greet(Caller& caller, const Bytes& message) {
    const auto hello = decode_hello(message);
    if (!hello) return refuse(caller);
    if (hello->job != place_.job) {
      caller.stream.send(refusal(Answer::other_job, {ErrorCode::bad_input,
                                                     "at " + name_of(place_) + " meets job '" + place_.job +
                                                         "', this rank is of job '" + hello->job + "'",
                                                     static_cast<int>(hello->rank)}));
      return refuse(caller);
    }
    const auto wrong = [&](const std::string& text) {
      verdict_ = Error{ErrorCode::invalid_config, text, static_cast<int>(hello->rank)};
      caller.rank = -1;
      caller.stream.send(refusal(Answer::failed, *verdict_));
    };
    const std::string who = "a process that takes itself for rank " + std::to_string(hello->rank) + " of " +
                            std::to_string(hello->world_size);
    if (hello->world_size != all_.size() || hello->rank == 0 || hello->rank >= all_.size()) {
      return wrong(who + " came to the store of a world of " + std::to_string(all_.size()));
    }
    if (owners_[hello->rank] != nullptr) return wrong("two processes claim rank " + std::to_string(hello->rank));
    caller.rank = static_cast<int>(hello->rank);
    owners_[hello->rank] = &caller;
    all_[hello->rank] = to_bytes(hello->bytes);
  }

  const TcpPlace& place_;
  std::vector<Bytes> all_;
  std::list<Caller> callers_;     ///< in order of arrival; addresses stay
  std::vector<Caller*> owners_;   ///< of each rank; nullptr: has not come, or left again
  std::optional<Error> verdict_;  ///< why the store gives up
  int refused_ = 0;
};

/// Every other rank's side.
class Visitor {
 public:
  Visitor(const TcpPlace& place, const Bytes& mine, int rank, int world_size)
      : where_(name_of(place)), world_size_(world_size) {
    hello_ = encode({place.job, static_cast<std::uint32_t>(world_size), static_cast<std::uint32_t>(rank),
                     std::string(as_text(mine))});
  }

  Result<std::vector<Bytes>> run(const std::vector<multigpu::TcpAddress>& addresses, TcpClock::time_point until,
                                 Timeout timeout) {
    while (true) {
      if (Socket socket = multigpu::connect_to(addresses, until); socket.open()) {
        if (auto answer = visit(std::move(socket), until)) return *std::move(answer);
      }
      if (TcpClock::now() + kRetryPause >= until) return give_up(timeout);
      std::this_thread::sleep_for(kRetryPause);
    }
  }

 private:
  /// Nothing: the connection was closed without an answer, or time is over.
  std::optional<Result<std::vector<Bytes>>> visit(Socket socket, TcpClock::time_point until) {
    MessageStream stream(std::move(socket));
    stream.accept_up_to(MessageStream::kMaxMessage);
    stream.send(hello_);
    closed_ = false;
    connected_ = true;
    while (TcpClock::now() < until) {
      pollfd entry{stream.descriptor(), static_cast<short>(POLLIN | (stream.wants_to_write() ? POLLOUT : 0)), 0};
      if (poll(&entry, 1, milliseconds_until(until, kLongestWaitMs)) < 1) continue;
      if (stream.wants_to_write()) (void)stream.flush();
      const bool open = stream.read();
      if (const auto message = stream.take()) return decode_answer(*message, world_size_, where_);
      if (stream.damaged()) {
        return Result<std::vector<Bytes>>(ErrorCode::bad_input, "what listens at " + where_ + " is no store of ranks",
                                          0);
      }
      if (!open) {
        closed_ = true;
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  Error give_up(Timeout timeout) const {
    std::string what = "nobody listens at " + where_;
    if (connected_) what = "what listens at " + where_ + (closed_ ? " closes connections" : " does not answer");
    return {ErrorCode::deadline_exceeded,
            "rank 0 let nobody go within " + std::to_string(timeout.count()) + " ms: " + what, 0};
  }

  std::string where_;
  int world_size_;
  Bytes hello_;
  bool connected_ = false;
  bool closed_ = false;
};

}  // namespace

Result<std::vector<Bytes>> exchange_through_tcp(const TcpPlace& place, const Bytes& mine, int rank, int world_size,
                                                Timeout timeout) {
  if (rank < 0 || rank >= world_size || mine.size() > kMaxBytes || place.port == 0) {
    return {ErrorCode::invalid_argument,
            "rank " + std::to_string(rank) + " of " + std::to_string(world_size) + ", " + std::to_string(mine.size()) +
                " bytes (at most " + std::to_string(kMaxBytes) + "), port " + std::to_string(place.port),
            rank};
  }
  if (world_size == 1) return std::vector<Bytes>{mine};
  const auto until = TcpClock::now() + timeout;
  const auto addresses = multigpu::resolve(place.host, place.port, until);
  if (!addresses.ok()) return addresses.error();
  if (rank > 0) return Visitor(place, mine, rank, world_size).run(*addresses, until, timeout);
  const auto listener = multigpu::listen_at(*addresses, name_of(place));
  if (!listener.ok()) return Error{listener.error().code, listener.error().message, 0};
  return Store(place, mine, world_size).run(*listener, until, timeout);
}

Status share_through_tcp(const TcpPlace& place, Bytes& bytes, int rank, int world_size, Timeout timeout) {
  auto all = exchange_through_tcp(place, rank == 0 ? bytes : Bytes{}, rank, world_size, timeout);
  if (!all.ok()) return all.status();
  bytes = std::move(all->front());
  return {};
}

}  // namespace kvpool
