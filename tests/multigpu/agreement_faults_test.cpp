// The agreement under a network that loses, delays, repeats, cuts and garbles messages and kills ranks:
// no hang, no disagreement, nobody later than the deadlines allow.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>

#include "fake_storage.hpp"
#include "multigpu/message_communicator.hpp"
#include "simulated_network.hpp"
#include "thread_ranks.hpp"

namespace kvpool {
namespace {

using namespace std::chrono_literals;
using multigpu::Duration;
using testing::FakeStorage;
using testing::FaultPlan;
using testing::MessageFault;
using testing::SimulatedNetwork;

constexpr Timeout kDeadline = 1000ms;

/// What the ranks bring with them.
enum class Situation { healthy, other_layout, failed_profile, failed_commit };
constexpr Situation kSituations[] = {Situation::healthy, Situation::other_layout, Situation::failed_profile,
                                     Situation::failed_commit};

struct Outcome {
  std::vector<std::string> texts;  ///< per rank; empty for one that was killed
  std::vector<testing::RankRun> runs;
};

Outcome play(int world, Situation situation, const FaultPlan& plan) {
  Outcome outcome;
  outcome.texts.resize(static_cast<std::size_t>(world));
  SimulatedNetwork network(world, plan);
  outcome.runs = network.run([&](std::unique_ptr<multigpu::Transport> transport) {
    const int rank = transport->rank();
    multigpu::MessageCommunicator communicator(std::move(transport));
    const bool odd_one = rank == world - 1;
    RankView view = testing::view_of(100 + rank);
    if (situation == Situation::other_layout && odd_one) view.layout = testing::small_layout("4096");
    if (situation == Situation::failed_profile && odd_one) view.profiling = {ErrorCode::environment, "no device"};
    FakeStorage storage(situation == Situation::failed_commit && odd_one ? 60 : 1000);
    AgreementOptions options;
    options.deadline = kDeadline;
    const auto agreement = RankCoordinator(communicator, options).agree(view, storage);
    std::string& text = outcome.texts[static_cast<std::size_t>(rank)];
    if (agreement) {
      text = "ok " + std::to_string(agreement->num_blocks[0]) + " round " + std::to_string(agreement->commit_rounds);
      EXPECT_EQ(storage.held, agreement->num_blocks);
    } else {
      text = testing::to_text(agreement.error());
      EXPECT_TRUE(storage.held.empty()) << "a rank keeps memory after " << text;
    }
  });
  return outcome;
}

/// Steps that a run can take at most: hello, layout or minimum, two commits.
constexpr int kMaxSteps = 4;

/// One line per broken promise; empty when all hold.
std::string broken_promises(const Outcome& outcome) {
  std::set<std::string> texts;
  std::string broken;
  for (std::size_t r = 0; r < outcome.texts.size(); ++r) {
    if (outcome.runs[r].killed) continue;
    texts.insert(outcome.texts[r]);
    if (outcome.runs[r].returned_after > kMaxSteps * Duration(kDeadline)) {
      broken += "rank " + std::to_string(r) + " came back late\n";
    }
    if (outcome.texts[r].find("internal") == 0) broken += "internal error\n";
  }
  if (texts.size() > 1) {
    broken += "ranks disagree:\n";
    for (const auto& text : texts) broken += "  " + text + "\n";
  }
  return broken;
}

class Tally {
 public:
  ~Tally() { std::printf("%s: %ld runs, %zu different outcomes\n", name_, runs_, outcomes_.size()); }
  explicit Tally(const char* name) : name_(name) {}

  void check(int world, Situation situation, const FaultPlan& plan) {
    const Outcome outcome = play(world, situation, plan);
    ++runs_;
    for (const auto& text : outcome.texts) outcomes_.insert(text);
    const std::string broken = broken_promises(outcome);
    if (!broken.empty()) {
      ADD_FAILURE() << broken << world << " ranks, situation " << static_cast<int>(situation) << ", "
                    << plan.describe();
    }
  }

 private:
  const char* name_;
  long runs_ = 0;
  std::set<std::string> outcomes_;
};

bool long_run() {
  const char* scale = std::getenv("KVPOOL_TEST_SCALE");
  return scale != nullptr && std::string(scale) == "long";
}

/// Sanitizers make every step slow; they look for races, which a few runs show as well as many.
#if defined(KVPOOL_SANITIZED_BUILD)
constexpr long kShare = 4;
#else
constexpr long kShare = 1;
#endif

std::vector<std::uint64_t> messages_without_fault(int world, Situation situation) {
  std::vector<std::uint64_t> counts;
  for (const auto& run : play(world, situation, {}).runs) counts.push_back(run.messages_sent);
  return counts;
}

TEST(AgreementFaults, WithoutFaultsTheOutcomesAreTheExpectedOnes) {
  for (const int world : {1, 2, 3, 8, 16}) {
    const Outcome healthy = play(world, Situation::healthy, {});
    EXPECT_EQ(healthy.texts.front(), "ok 100 round 1");
    EXPECT_EQ(broken_promises(healthy), "");
    const Outcome retried = play(world, Situation::failed_commit, {});
    EXPECT_EQ(retried.texts.front(), "ok 60 round 2");
    EXPECT_EQ(broken_promises(retried), "");
    const std::string last = std::to_string(world - 1);
    const Outcome no_profile = play(world, Situation::failed_profile, {});
    EXPECT_EQ(no_profile.texts.front(), "rank_failed " + last + " rank " + last + ": profiling failed: no device");
    if (world < 2) continue;
    const Outcome other = play(world, Situation::other_layout, {});
    EXPECT_EQ(other.texts.front(),
              "layout_mismatch " + last + " rank " + last + ": group 1 sliding_window 4096, rank 0: 1024");
    EXPECT_EQ(broken_promises(other), "");
  }
}

TEST(AgreementFaults, EverySingleFaultOnEveryMessageOfTwoToFourRanks) {
  Tally tally("single message faults");
  for (const int world : {2, 3, 4}) {
    for (const Situation situation : kSituations) {
      if (world == 4 && situation != Situation::healthy && !long_run()) continue;
      const auto counts = messages_without_fault(world, situation);
      for (int rank = 0; rank < world; ++rank) {
        for (std::uint64_t nth = 0; nth < counts[static_cast<std::size_t>(rank)]; ++nth) {
          for (const MessageFault fault : testing::kMessageFaults) {
            for (const Duration delay : {Duration(0ms), Duration(30ms), Duration(400ms), Duration(5s)}) {
              if ((fault == MessageFault::delay) == (delay == Duration::zero())) continue;
              FaultPlan plan;
              plan.messages = {{rank, nth, fault, delay, nth * 0x9e37'79b9'7f4a'7c15U + 7}};
              tally.check(world, situation, plan);
            }
          }
        }
      }
    }
  }
}

TEST(AgreementFaults, ARankKilledBeforeEachOfItsMessages) {
  Tally tally("single kills");
  for (const int world : {2, 3, 4, 8}) {
    for (const Situation situation : kSituations) {
      if (world == 8 && situation != Situation::healthy) continue;
      const auto counts = messages_without_fault(world, situation);
      for (const int rank : {0, 1, world - 1}) {
        const std::uint64_t stride = world == 8 && !long_run() ? 5 : 1;
        for (std::uint64_t nth = 0; nth < counts[static_cast<std::size_t>(rank)]; nth += stride) {
          FaultPlan plan;
          plan.kills = {{rank, nth}};
          tally.check(world, situation, plan);
        }
      }
    }
  }
}

FaultPlan random_plan(std::mt19937_64& random, int world, std::uint64_t messages, bool skewed) {
  const auto below = [&](std::uint64_t n) { return random() % n; };
  FaultPlan plan;
  plan.seed = random();
  for (int i = 0; i < 2; ++i) {
    const int rank = static_cast<int>(below(static_cast<std::uint64_t>(world)));
    if (below(4) == 0) {
      plan.kills.push_back({rank, below(messages)});
    } else {
      const auto delay = std::chrono::milliseconds(1 + below(below(2) == 0 ? 60 : 3000));
      plan.messages.push_back({rank, below(messages), testing::kMessageFaults[below(5)], delay, random()});
    }
  }
  if (skewed) {
    for (int r = 0; r < world; ++r) plan.start_delays.push_back(std::chrono::milliseconds(below(500)));
  }
  return plan;
}

TEST(AgreementFaults, RandomPairsOfFaults) {
  Tally tally("pairs of faults");
  std::mt19937_64 random(20260930);
  const long scale = long_run() ? 50 : 1;
  for (const auto& [world, runs] : {std::pair{2, 1500}, {3, 1500}, {4, 1000}, {5, 500}, {8, 200}, {16, 20}}) {
    for (const Situation situation : kSituations) {
      const auto messages = messages_without_fault(world, situation).front();
      for (long i = 0; i < runs * scale / (4 * kShare); ++i) {
        tally.check(world, situation, random_plan(random, world, messages, i % 2 == 1));
      }
    }
  }
}

TEST(AgreementFaults, SixtyFourRanks) {
  Tally tally("64 ranks");
  std::mt19937_64 random(64);
  tally.check(64, Situation::healthy, {});
  for (int i = 0; i < (long_run() ? 100 : 4) / kShare; ++i) {
    tally.check(64, Situation::healthy, random_plan(random, 64, 900, i % 2 == 1));
  }
}

}  // namespace
}  // namespace kvpool
