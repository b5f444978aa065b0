// Real processes under a real launcher: a rank is killed, stopped, or brings something that does not fit.
// What counts is what each surviving rank did: message, status, time; a launcher's own status says little.
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

extern char** environ;

namespace kvpool {
namespace {

using namespace std::chrono_literals;

constexpr int kDeadlineMs = 1500;
constexpr auto kOuterTimeout = 60s;

struct RankReport {
  int status = -1;
  std::int64_t returned_ns = 0;
  std::string message;
};

struct RunReport {
  std::map<int, RankReport> ranks;
  int victim_pid = 0;
  std::int64_t struck_ns = 0;
  int launcher_status = -1;  ///< exit status; -1: had to be ended
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

class Job {
 public:
  Job(int world, const std::string& misfortune, const std::string& step, int victim) : world_(world) {
    directory_ = std::filesystem::temp_directory_path() /
                 ("kvpool_mpi_" + std::to_string(getpid()) + "_" + std::to_string(counter_++));
    std::filesystem::create_directories(directory_);
    std::vector<std::string> args = {KVPOOL_MPIEXEC, "-n", std::to_string(world), "--oversubscribe",
                                     "--enable-recovery"};
    if (geteuid() == 0) args.emplace_back("--allow-run-as-root");
    args.insert(args.end(), {KVPOOL_RANK_PROGRAM, directory_.string(), std::to_string(kDeadlineMs), misfortune, step,
                             std::to_string(victim)});
    std::vector<char*> argv;
    for (auto& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    spawned_ = posix_spawn(&launcher_, KVPOOL_MPIEXEC, nullptr, &attributes, argv.data(), environ) == 0;
    posix_spawnattr_destroy(&attributes);
  }

  ~Job() { std::filesystem::remove_all(directory_); }

  RunReport wait(int expected_survivors) {
    RunReport report;
    if (!spawned_) return report;
    const auto limit = std::chrono::steady_clock::now() + kOuterTimeout;
    while (std::chrono::steady_clock::now() < limit && survivors() < expected_survivors) {
      std::this_thread::sleep_for(10ms);
    }
    read_reports(report);
    // A stopped rank keeps the launcher waiting for ever: it has been seen, now it may go.
    if (report.victim_pid > 0) kill(report.victim_pid, SIGKILL);
    report.launcher_status = reap();
    return report;
  }

 private:
  int survivors() const {
    int count = 0;
    for (int r = 0; r < world_; ++r) {
      count += std::filesystem::exists(directory_ / ("rank" + std::to_string(r))) ? 1 : 0;
    }
    return count;
  }

  void read_reports(RunReport& report) const {
    for (int r = 0; r < world_; ++r) {
      std::istringstream text(read_file(directory_ / ("rank" + std::to_string(r))));
      RankReport rank;
      if (!(text >> rank.status >> rank.returned_ns)) continue;
      std::getline(text >> std::ws, rank.message);
      report.ranks[r] = rank;
    }
    std::istringstream victim(read_file(directory_ / "victim"));
    victim >> report.victim_pid >> report.struck_ns;
  }

  int reap() const {
    int status = 0;
    for (int i = 0; i < 500; ++i) {
      if (waitpid(launcher_, &status, WNOHANG) == launcher_) return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
      std::this_thread::sleep_for(20ms);
    }
    kill(-launcher_, SIGKILL);
    waitpid(launcher_, &status, 0);
    return -1;
  }

  static inline int counter_ = 0;
  int world_;
  bool spawned_ = false;
  pid_t launcher_ = 0;
  std::filesystem::path directory_;
};

void expect_same_failure(const RunReport& report, int survivors, const std::string& expected) {
  ASSERT_EQ(report.ranks.size(), static_cast<std::size_t>(survivors));
  for (const auto& [rank, outcome] : report.ranks) {
    EXPECT_EQ(outcome.status, 3) << "rank " << rank;
    EXPECT_NE(outcome.message.find(expected), std::string::npos) << "rank " << rank << ": " << outcome.message;
    EXPECT_EQ(outcome.message, report.ranks.begin()->second.message);
  }
}

class HealthyMpi : public ::testing::TestWithParam<int> {};

TEST_P(HealthyMpi, RanksAgreeAndServe) {
  const RunReport report = Job(GetParam(), "none", "-", 0).wait(GetParam());
  ASSERT_EQ(report.ranks.size(), static_cast<std::size_t>(GetParam()));
  for (const auto& [rank, outcome] : report.ranks) EXPECT_EQ(outcome.status, 0) << rank << ": " << outcome.message;
  EXPECT_EQ(report.launcher_status, 0) << "MPI was finalised in order";
}

INSTANTIATE_TEST_SUITE_P(Worlds, HealthyMpi, ::testing::Values(1, 2, 4));

struct Strike {
  int world;
  const char* misfortune;
  const char* step;
  int victim;
};

class StruckMpi : public ::testing::TestWithParam<Strike> {};

TEST_P(StruckMpi, SurvivorsNameTheVictimInTime) {
  const auto [world, misfortune, step, victim] = GetParam();
  const RunReport report = Job(world, misfortune, step, victim).wait(world - 1);
  ASSERT_GT(report.victim_pid, 0) << "nobody was struck";
  expect_same_failure(report, world - 1, "rank " + std::to_string(victim) + " did not answer");
  for (const auto& [rank, outcome] : report.ranks) {
    const double after_ms = static_cast<double>(outcome.returned_ns - report.struck_ns) / 1e6;
    std::printf("%d ranks, %s before %s: rank %d returned %.0f ms after, deadline %d ms\n", world, misfortune, step,
                rank, after_ms, kDeadlineMs);
    EXPECT_LT(after_ms, kDeadlineMs + 1000.0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Steps, StruckMpi,
    ::testing::Values(Strike{4, "kill", "hello", 1}, Strike{4, "kill", "minimum", 2}, Strike{4, "kill", "commit", 0},
                      Strike{4, "kill", "sum", 3}, Strike{4, "kill", "serve", 1}, Strike{4, "stop", "hello", 2},
                      Strike{4, "stop", "minimum", 0}, Strike{4, "stop", "commit", 1}, Strike{4, "stop", "sum", 1},
                      Strike{4, "stop", "serve", 3}, Strike{2, "kill", "hello", 0}, Strike{2, "kill", "minimum", 1},
                      Strike{2, "kill", "commit", 1}, Strike{2, "stop", "hello", 1}, Strike{2, "stop", "minimum", 0},
                      Strike{2, "stop", "commit", 0}, Strike{2, "kill", "sum", 0}, Strike{2, "kill", "serve", 1},
                      Strike{2, "stop", "sum", 1}, Strike{2, "stop", "serve", 0}));

class UnfitMpi : public ::testing::TestWithParam<int> {};

TEST_P(UnfitMpi, EveryRankReportsWhatOneBrought) {
  const int world = GetParam();
  const std::string last = "rank " + std::to_string(world - 1);
  const std::map<std::string, std::string> cases = {
      {"layout", last + ": group 1 sliding_window 4096, rank 0: 1024"},
      {"memory", last + " can hold 0 blocks in pool 0"},
      {"throw", last + ": profiling failed: the profile run fell over"},
      {"override", "rank 0 can hold 1000 blocks in pool 0, the override asks for 1001"}};
  for (const auto& [misfortune, expected] : cases) {
    expect_same_failure(Job(world, misfortune, "-", world - 1).wait(world), world, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, UnfitMpi, ::testing::Values(2, 4));

}  // namespace
}  // namespace kvpool
