// Ranks as processes under OpenMPI's mpirun: the same outputs for 1, 2 and 4, and a rank that is killed.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/launch/program.hpp"

namespace kvpool::launch {
namespace {

using Json = nlohmann::json;

std::string mpirun(int ranks, const std::string& more = "") {
  return std::string("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " KVPOOL_MPIRUN " --oversubscribe ") +
         more + " -n " + std::to_string(ranks) + " ";
}

const std::string kLaunch = std::string(KVPOOL_PROGRAM) + " launch ";

/// A process that has ended may still be listed until somebody collects it.
bool is_running(int pid) {
  const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  return name_end != std::string::npos && stat.compare(name_end, 3, ") Z") != 0;
}

TEST_F(ProgramTest, OutputsAreTheSameForOneTwoAndFourProcesses) {
  const std::string arguments = "--trace " + trace(12) + " --memory 16MiB --verify 1 --json";
  const CommandResult threads = run(kLaunch + arguments + " --ranks-as-threads 2");
  ASSERT_EQ(threads.status, 0) << threads.err;
  const std::string digest = Json::parse(threads.out)["output_digest"];
  for (const int ranks : {1, 2, 4}) {
    const CommandResult result = run(mpirun(ranks) + kLaunch + arguments);
    ASSERT_EQ(result.status, 0) << result.err;
    const Json json = Json::parse(result.out);
    EXPECT_EQ(json["transport"], "mpi");
    EXPECT_EQ(json["world_size"], ranks);
    EXPECT_EQ(json["output_digest"], digest) << ranks << " ranks";
    EXPECT_EQ(json["verify"]["bitwise_equal"], true);
  }
}

TEST_F(ProgramTest, WrongInputIsSaidOnceByAllRanksTogether) {
  const CommandResult result = run(mpirun(2) + kLaunch + "--trace /nonexistent.kvt");
  EXPECT_EQ(result.status, 2) << result.err;
  const std::string text = "kvpool launch: /nonexistent.kvt";
  const std::size_t first = result.err.find(text);
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find(text, first + 1), std::string::npos) << result.err;
}

TEST_F(ProgramTest, SeveralProcessesThatWouldWorkAloneAreRefused) {
  const CommandResult result = run(mpirun(2) + kLaunch + "--trace " + trace(2) + " --transport threads");
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(result.out.find("output digest"), std::string::npos) << result.out;
}

TEST_F(ProgramTest, AKilledRankIsNamedByAllOthersWithinTheDeadline) {
  constexpr int kRanks = 4;
  constexpr int kVictim = 2;
  const std::string file = folder_.string() + "/";
  // Each rank leaves its process id and its exit status.
  const std::string script =
      write("rank.sh", "#!/bin/sh\n" + kLaunch + "--trace " + trace(20000) + " --memory 16MiB --deadline 8s > " + file +
                           "out.$OMPI_COMM_WORLD_RANK 2> " + file + "err.$OMPI_COMM_WORLD_RANK &\necho $! > " + file +
                           "pid.$OMPI_COMM_WORLD_RANK.tmp\nmv " + file + "pid.$OMPI_COMM_WORLD_RANK.tmp " + file +
                           "pid.$OMPI_COMM_WORLD_RANK\nwait $!\necho $? > " + file + "status.$OMPI_COMM_WORLD_RANK\n");
  RunningCommand running(mpirun(kRanks, "--enable-recovery") + "sh " + script, folder_);
  const std::filesystem::path pid_file = folder_ / ("pid." + std::to_string(kVictim));
  for (int i = 0; i < 3000 && !std::filesystem::exists(pid_file); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const int victim = std::atoi(read_file(pid_file).c_str());
  ASSERT_GT(victim, 0);
  std::this_thread::sleep_for(std::chrono::seconds(3));
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  const auto killed = std::chrono::steady_clock::now();
  const CommandResult result = running.wait(std::chrono::seconds(120));
  ASSERT_FALSE(result.timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(40));
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::string suffix = std::to_string(rank);
    const int status = std::atoi(read_file(folder_ / ("status." + suffix)).c_str());
    const std::string text = read_file(folder_ / ("err." + suffix));
    if (rank == kVictim) {
      EXPECT_EQ(status, 128 + SIGKILL);
    } else {
      EXPECT_EQ(status, 3) << "rank " << rank << ": " << text;
      EXPECT_NE(text.find("rank 2 did not answer"), std::string::npos) << "rank " << rank << ": " << text;
    }
  }
}

TEST_F(ProgramTest, CtrlCAtTheLauncherEndsAllRanksWithThePartialResult) {
  constexpr int kRanks = 2;
  const std::string file = folder_.string() + "/";
  const std::string script =
      write("rank.sh", "#!/bin/sh\necho $$ > " + file + "pid.$OMPI_COMM_WORLD_RANK\nexec " + kLaunch + "--trace " +
                           trace(20000) + " --memory 16MiB --deadline 20s --json --log-dir " + file + "logs > " + file +
                           "out.$OMPI_COMM_WORLD_RANK 2> " + file + "err.$OMPI_COMM_WORLD_RANK\n");
  RunningCommand running("exec env " + mpirun(kRanks) + "sh " + script, folder_);
  for (int i = 0; i < 3000 && read_file(folder_ / "logs/rank-1.log").find("agreed on") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ASSERT_EQ(kill(running.pid(), SIGINT), 0);
  const CommandResult result = running.wait(std::chrono::seconds(60));
  ASSERT_FALSE(result.timed_out);
  EXPECT_NE(result.status, 0);
  for (int rank = 0; rank < kRanks; ++rank) {
    const int pid = std::atoi(read_file(folder_ / ("pid." + std::to_string(rank))).c_str());
    ASSERT_GT(pid, 0);
    for (int i = 0; i < 1000 && is_running(pid); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(is_running(pid)) << "rank " << rank;
  }
  const Json json = Json::parse(read_file(folder_ / "out.0"));
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["error"], nullptr);
  EXPECT_GT(json["steps"], 0);
}

}  // namespace
}  // namespace kvpool::launch
