// Ranks that are connected by TCP: the same collectives and the same verdicts as over every other wire.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "fake_storage.hpp"
#include "free_port.hpp"
#include "kvpool/multigpu/tcp_communicator.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using testing::to_bytes;
using testing::to_text;

/// Runs the body on every rank of `ranks` of a world, each with its own communicator.
void on_tcp_ranks(int world_size, const std::function<void(Communicator&)>& body) {
  const TcpPlace place{"127.0.0.1", testing::free_port()};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = make_tcp_communicator(place, rank, world_size, 20s);
      ASSERT_TRUE(communicator.ok()) << communicator.error().message;
      EXPECT_EQ((*communicator)->rank(), rank);
      EXPECT_EQ((*communicator)->world_size(), world_size);
      body(**communicator);
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(TcpCommunicator, CollectivesWorkForEveryWorld) {
  for (const int world : {1, 2, 3, 8}) {
    on_tcp_ranks(world, [&](Communicator& comm) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        const Bytes mine = to_bytes(std::string(static_cast<std::size_t>(comm.rank()) * 1000, 'x') + "end");
        const auto all = comm.all_gather(mine, 20s);
        ASSERT_TRUE(all.ok()) << all.error().message;
        for (int r = 0; r < world; ++r)
          EXPECT_EQ((*all)[static_cast<std::size_t>(r)].size(), 1000U * static_cast<std::size_t>(r) + 3);
        std::vector<float> sums(5000, 1.0F);
        ASSERT_TRUE(comm.all_reduce_sum(sums, SumOrder::fixed_tree, 20s).ok());
        EXPECT_EQ(sums.back(), static_cast<float>(world));
        std::vector<std::int64_t> least{100 - comm.rank()};
        ASSERT_TRUE(comm.all_reduce_min(least, 20s).ok());
        EXPECT_EQ(least[0], 101 - world);
        Bytes text = comm.rank() == world - 1 ? to_bytes("from the last") : Bytes{};
        ASSERT_TRUE(comm.broadcast(text, world - 1, 20s).ok());
        EXPECT_EQ(to_text(text), "from the last");
      }
      ASSERT_TRUE(comm.barrier(20s).ok());
    });
  }
}

TEST(TcpCommunicator, LargeMessagesInBothDirectionsDoNotBlock) {
  on_tcp_ranks(3, [](Communicator& comm) {
    const Bytes mine(9'000'000, static_cast<std::byte>(comm.rank()));
    const auto all = comm.all_gather(mine, 60s);
    ASSERT_TRUE(all.ok()) << all.error().message;
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_EQ((*all)[r].size(), mine.size());
      EXPECT_EQ((*all)[r].back(), static_cast<std::byte>(r));
    }
  });
}

TEST(TcpCommunicator, TheAgreementRunsOverIt) {
  on_tcp_ranks(4, [](Communicator& comm) {
    testing::FakeStorage storage;
    AgreementOptions options;
    options.deadline = 20s;
    const auto agreement = RankCoordinator(comm, options).agree(testing::view_of(100 + comm.rank()), storage);
    ASSERT_TRUE(agreement.ok()) << agreement.error().message;
    EXPECT_EQ(agreement->num_blocks.front(), 100);
  });
}

/// Processes: one of them is killed or stopped after its first barrier, the others must name it and end in time.
TEST(TcpCommunicator, AKilledOrStoppedProcessIsNamedByTheOthersInTime) {
  constexpr int kWorld = 3;
  constexpr int kVictim = 1;
  for (const int signal : {SIGKILL, SIGSTOP}) {
    const TcpPlace place{"127.0.0.1", testing::free_port()};
    std::vector<pid_t> children;
    for (int rank = 0; rank < kWorld; ++rank) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      const auto comm = make_tcp_communicator(place, rank, kWorld, 20s);
      if (!comm.ok() || !(*comm)->barrier(20s).ok()) _exit(10);
      if (rank == kVictim) raise(signal);
      const auto start = std::chrono::steady_clock::now();
      const auto status = (*comm)->barrier(1s);
      const bool in_time = std::chrono::steady_clock::now() - start < 2s;
      _exit(!status.ok() && status.error().rank == kVictim && in_time ? 3 : 11);
    }
    for (int rank = 0; rank < kWorld; ++rank) {
      if (rank == kVictim) continue;
      int status = 0;
      ASSERT_EQ(waitpid(children[static_cast<std::size_t>(rank)], &status, 0),
                children[static_cast<std::size_t>(rank)]);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << "rank " << rank << ", signal " << signal;
    }
    kill(children[kVictim], SIGKILL);
    EXPECT_EQ(waitpid(children[kVictim], nullptr, 0), children[kVictim]);
  }
}

TEST(TcpCommunicator, ARankThatNeverComesIsNamed) {
  const TcpPlace place{"127.0.0.1", testing::free_port()};
  std::vector<std::thread> threads;
  for (const int rank : {0, 2}) {
    threads.emplace_back([&, rank] {
      const auto comm = make_tcp_communicator(place, rank, 3, 500ms);
      ASSERT_FALSE(comm.ok());
      EXPECT_EQ(comm.error().code, ErrorCode::deadline_exceeded);
      EXPECT_EQ(comm.error().rank, 1) << comm.error().message;
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace kvpool
