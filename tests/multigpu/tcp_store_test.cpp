// The store at which ranks without MPI meet: everybody gets everything or the same reason, in time, whoever else calls.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "free_port.hpp"
#include "kvpool/multigpu/rendezvous.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::free_port;
using testing::loopback;
using testing::Port;
using testing::to_bytes;
using testing::to_text;
using Clock = std::chrono::steady_clock;

/// A client that is no rank. Connects as soon as somebody listens.
class Stranger {
 public:
  explicit Stranger(std::uint16_t port) {
    const auto address = loopback(port);
    const auto until = Clock::now() + 5s;
    while (Clock::now() < until) {
      socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
      if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return;
      close(socket_);
      std::this_thread::sleep_for(2ms);
    }
    socket_ = -1;
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;
  ~Stranger() {
    if (socket_ >= 0) close(socket_);
  }
  void say(const std::string& text) { EXPECT_GE(send(socket_, text.data(), text.size(), MSG_NOSIGNAL), 0); }

 private:
  int socket_ = -1;
};

struct Visit {
  int rank = 0;
  int world_size = 2;
  std::string job = "job";
  std::chrono::milliseconds delay{0};
  std::chrono::milliseconds timeout{10'000};
};

/// What each visit came to: all ranks' bytes joined, or the error. All return within the longest time-out.
std::vector<std::string> meet(std::uint16_t port, const std::vector<Visit>& visits) {
  std::vector<std::string> outcomes(visits.size());
  std::vector<std::thread> threads;
  std::chrono::milliseconds longest{0};
  const auto start = Clock::now();
  for (std::size_t i = 0; i < visits.size(); ++i) {
    longest = std::max(longest, visits[i].delay + visits[i].timeout);
    threads.emplace_back([&, i] {
      const Visit& visit = visits[i];
      std::this_thread::sleep_for(visit.delay);
      const auto all = exchange_through_tcp({"127.0.0.1", port, visit.job}, to_bytes("r" + std::to_string(visit.rank)),
                                            visit.rank, visit.world_size, visit.timeout);
      if (!all.ok()) {
        outcomes[i] = to_text(all.error());
        return;
      }
      for (const Bytes& bytes : *all) outcomes[i] += to_text(bytes);
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_LT(Clock::now() - start, longest + 2s);
  return outcomes;
}

std::vector<Visit> everyone(int world_size) {
  std::vector<Visit> visits;
  for (int rank = 0; rank < world_size; ++rank) visits.push_back({rank, world_size});
  return visits;
}

TEST(TcpStore, EveryRankGetsWhatAllBring) {
  for (const int world : {1, 2, 3, 8, 40}) {
    std::string expected;
    for (int rank = 0; rank < world; ++rank) expected += "r" + std::to_string(rank);
    for (const auto& outcome : meet(free_port(), everyone(world))) EXPECT_EQ(outcome, expected);
  }
}

TEST(TcpStore, RanksComeInAnyOrderAndARepeatIsAnotherMeeting) {
  const std::uint16_t port = free_port();
  for (int repeat = 0; repeat < 3; ++repeat) {
    auto visits = everyone(3);
    visits[0].delay = 60ms;  // the others call before anybody listens
    visits[1].delay = 30ms;
    for (const auto& outcome : meet(port, visits)) EXPECT_EQ(outcome, "r0r1r2");
  }
}

TEST(TcpStore, CarriesTheUniqueIdAndLargeTexts) {
  const std::uint16_t port = free_port();
  const Bytes id(128, std::byte{0xa5});
  const Bytes large(60'000, std::byte{7});
  testing::on_thread_ranks(4, [&](Communicator& comm) {
    Bytes bytes = comm.rank() == 0 ? id : Bytes{};
    EXPECT_TRUE(share_through_tcp({"localhost", port}, bytes, comm.rank(), 4, 10s).ok());
    EXPECT_EQ(bytes, id);
  });
  testing::on_thread_ranks(4, [&](Communicator& comm) {
    const auto all = exchange_through_tcp({"127.0.0.1", port}, large, comm.rank(), 4, 10s);
    ASSERT_TRUE(all.ok()) << all.error().message;
    for (const auto& bytes : *all) EXPECT_EQ(bytes, large);
  });
}

TEST(TcpStore, ARankThatNeverComesIsNamedToAllWhoDid) {
  const std::uint16_t port = free_port();
  auto visits = everyone(5);
  for (auto& visit : visits) visit.timeout = 700ms;
  visits.erase(visits.begin() + 2);
  visits.pop_back();
  const std::string text =
      "deadline_exceeded 2 rank 2, 4 did not come to the store at 127.0.0.1:" + std::to_string(port) + " within 700 ms";
  for (const auto& outcome : meet(port, visits)) EXPECT_EQ(outcome, text);
}

TEST(TcpStore, WithoutRankZeroTheOthersSayWhatTheyFound) {
  const std::uint16_t port = free_port();
  for (const auto& outcome : meet(port, {{1, 3, "job", 0ms, 200ms}, {2, 3, "job", 0ms, 200ms}})) {
    EXPECT_EQ(outcome, "deadline_exceeded 0 rank 0 let nobody go within 200 ms: nobody listens at 127.0.0.1:" +
                           std::to_string(port));
  }
  Port silent;  // accepts by its backlog, answers nothing
  ASSERT_EQ(listen(silent.socket(), 4), 0);
  const auto outcome = meet(silent.number(), {{1, 2, "job", 0ms, 200ms}})[0];
  EXPECT_NE(outcome.find("does not answer"), std::string::npos) << outcome;
}

TEST(TcpStore, SomethingElseAtTheAddressIsNoStore) {
  Port other;
  ASSERT_EQ(listen(other.socket(), 4), 0);
  std::thread server([&] {
    const int client = accept(other.socket(), nullptr, nullptr);
    const std::string text = "SSH-2.0-something\r\n";
    EXPECT_EQ(send(client, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    std::this_thread::sleep_for(200ms);
    close(client);
  });
  const auto outcome = meet(other.number(), {{1, 2, "job", 0ms, 5000ms}})[0];
  server.join();
  EXPECT_EQ(outcome,
            "bad_input 0 what listens at 127.0.0.1:" + std::to_string(other.number()) + " is no store of ranks");
}

TEST(TcpStore, APortThatIsTakenAndAWrongAddressAreErrorsAtOnce) {
  Port taken;
  ASSERT_EQ(listen(taken.socket(), 4), 0);
  const auto start = Clock::now();
  const auto outcome = meet(taken.number(), {{0, 2, "job", 0ms, 20'000ms}})[0];
  EXPECT_NE(outcome.find("environment 0 cannot listen at 127.0.0.1:"), std::string::npos) << outcome;
  EXPECT_NE(outcome.find("in use"), std::string::npos) << outcome;
  // 192.0.2.0/24 belongs to nobody.
  const auto elsewhere = exchange_through_tcp({"192.0.2.7", 4711}, {}, 0, 2, 20s);
  ASSERT_FALSE(elsewhere.ok());
  EXPECT_EQ(elsewhere.error().code, ErrorCode::environment);
  const auto nowhere = exchange_through_tcp({"256.1.1.1.invalid", 4711}, {}, 1, 2, 5s);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_NE(nowhere.error().message.find("256.1.1.1.invalid"), std::string::npos) << nowhere.error().message;
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(exchange_through_tcp({"127.0.0.1", 0}, {}, 0, 2, 1s).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(exchange_through_tcp({"127.0.0.1", 1}, {}, 2, 2, 1s).error().code, ErrorCode::invalid_argument);
}

TEST(TcpStore, NoiseAndSilenceDisturbNobody) {
  const std::uint16_t port = free_port();
  auto visits = everyone(3);
  visits[2].delay = 300ms;
  std::thread noise([port] {
    std::vector<std::unique_ptr<Stranger>> strangers;
    const std::string magic = "CTVK";  // little-endian
    const std::vector<std::string> texts = {"GET / HTTP/1.1\r\n\r\n",
                                            std::string(3000, '\0'),
                                            magic + std::string("\xff\xff\xff\x7f", 4),
                                            magic + std::string("\x03\0\0\0abc", 7),
                                            magic.substr(0, 2),
                                            ""};
    for (int i = 0; i < 60; ++i) {
      strangers.push_back(std::make_unique<Stranger>(port));
      strangers.back()->say(texts[static_cast<std::size_t>(i) % texts.size()]);
      if (i % 5 == 0) strangers.erase(strangers.begin());
    }
    std::this_thread::sleep_for(100ms);
  });
  for (const auto& outcome : meet(port, visits)) EXPECT_EQ(outcome, "r0r1r2");
  noise.join();
}

TEST(TcpStore, AnotherJobIsSentAwayAndThisOneGoesOn) {
  const std::uint16_t port = free_port();
  const auto outcomes = meet(port, {{0, 2, "a"}, {1, 2, "b", 20ms}, {1, 2, "a", 200ms}});
  EXPECT_EQ(outcomes[0], "r0r1");
  EXPECT_EQ(outcomes[1],
            "bad_input 1 at 127.0.0.1:" + std::to_string(port) + " meets job 'a', this rank is of job 'b'");
  EXPECT_EQ(outcomes[2], "r0r1");
}

TEST(TcpStore, TwoProcessesOfOneRankAndOtherWorldsAreTheErrorOfAll) {
  for (const auto& outcome : meet(free_port(), {{0, 3}, {1, 3, "job", 30ms}, {1, 3, "job", 90ms}})) {
    EXPECT_EQ(outcome, "invalid_config 1 two processes claim rank 1");
  }
  for (const auto& outcome : meet(free_port(), {{0, 3}, {1, 3, "job", 30ms}, {2, 4, "job", 90ms}})) {
    EXPECT_EQ(outcome,
              "invalid_config 2 a process that takes itself for rank 2 of 4 came to the store of a world of 3");
  }
}

/// Children of this process; what each came to is its exit status.
TEST(TcpStore, AProcessThatDiesWhileItWaitsMayBeReplaced) {
  const std::uint16_t port = free_port();
  const pid_t victim = fork();
  if (victim == 0) {
    (void)exchange_through_tcp({"127.0.0.1", port}, {}, 1, 3, 20s);
    _exit(1);
  }
  std::optional<Result<std::vector<Bytes>>> store;
  std::thread rank_0([&] { store.emplace(exchange_through_tcp({"127.0.0.1", port}, to_bytes("a"), 0, 3, 20s)); });
  std::this_thread::sleep_for(150ms);
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(waitpid(victim, &status, 0), victim);
  EXPECT_TRUE(WIFSIGNALED(status));
  std::this_thread::sleep_for(50ms);
  std::thread rank_1([&] { EXPECT_TRUE(exchange_through_tcp({"127.0.0.1", port}, to_bytes("b"), 1, 3, 20s).ok()); });
  std::thread rank_2([&] { EXPECT_TRUE(exchange_through_tcp({"127.0.0.1", port}, to_bytes("c"), 2, 3, 20s).ok()); });
  for (auto* thread : {&rank_0, &rank_1, &rank_2}) thread->join();
  ASSERT_TRUE(store && store->ok());
  EXPECT_EQ(to_text((**store)[1]), "b");
}

}  // namespace
}  // namespace kvpool
