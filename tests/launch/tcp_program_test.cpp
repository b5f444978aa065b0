// Ranks as processes without MPI: numbers from a Slurm-style environment or from options, and what happens to them.
#include <netinet/in.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tests/launch/program.hpp"

namespace kvpool::launch {
namespace {

using Json = nlohmann::json;

const std::string kProgram = KVPOOL_PROGRAM;

std::string free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(socket);
  return std::to_string(ntohs(address.sin_port));
}

class TcpProgramTest : public ProgramTest {
 protected:
  [[nodiscard]] std::string file(const std::string& name) const { return (folder_ / name).string(); }
  [[nodiscard]] std::string text_of(const std::string& name) const { return read_file(folder_ / name); }
  [[nodiscard]] int status_of(int rank) const { return std::stoi("0" + text_of("status." + std::to_string(rank))); }

  /// Starts the ranks of one world as `as_user sh -c '... kvpool launch ...'`; each leaves out.R, err.R, pid.R,
  /// status.R.
  [[nodiscard]] std::string ranks(int count, const std::string& arguments, bool slurm = true,
                                  const std::string& as_user = "") const {
    const std::string meet = " --meet 127.0.0.1:" + free_port();
    std::string script;
    for (int rank = 0; rank < count; ++rank) {
      const std::string number = std::to_string(rank);
      const std::string place = slurm ? "SLURM_STEP_NUM_TASKS=" + std::to_string(count) + " SLURM_PROCID=" + number +
                                            " SLURM_LOCALID=" + number + " SLURM_NTASKS=99 "
                                      : "";
      const std::string options = slurm ? "" : " --rank " + number + " --ranks " + std::to_string(count);
      // The numbers of the launcher that runs this test, if any, say nothing about these processes.
      script += "( env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE " + place + as_user + kProgram + " launch " + arguments +
                meet + options + " > " + file("out." + number) + " 2> " + file("err." + number) + " & echo $! > " +
                file("pid." + number) + "; wait $!; echo $? > " + file("status." + number) + " ) &\n";
    }
    return script + "wait\n";
  }

  void expect_ok(int count) const {
    for (int rank = 0; rank < count; ++rank) {
      EXPECT_EQ(status_of(rank), 0) << text_of("err." + std::to_string(rank));
      EXPECT_EQ(text_of("err." + std::to_string(rank)), "");
      if (rank > 0) {
        EXPECT_EQ(text_of("out." + std::to_string(rank)), "") << "rank 0 speaks for all";
      }
    }
  }

  void wait_for(const std::string& name) const {
    for (int i = 0; i < 3000 && text_of(name).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
};

TEST_F(TcpProgramTest, SlurmStyleRanksGiveTheOutputsOfThreads) {
  const std::string arguments = "--trace " + trace(8) + " --memory 16MiB --json";
  const CommandResult threads = run(kProgram + " launch " + arguments + " --ranks-as-threads 2");
  ASSERT_EQ(threads.status, 0) << threads.err;
  for (const bool slurm : {true, false}) {
    (void)run(ranks(2, arguments, slurm));
    expect_ok(2);
    const Json json = Json::parse(text_of("out.0"));
    EXPECT_EQ(json["transport"], "tcp");
    EXPECT_EQ(json["world_size"], 2);
    EXPECT_EQ(json["divergence_checks"], 1) << "a run of a few steps is compared at its end";
    EXPECT_EQ(json["output_digest"], Json::parse(threads.out)["output_digest"]);
  }
}

/// As nobody when the test runs as root and others may enter the folder of the program; else as who runs the test.
TEST_F(TcpProgramTest, WorksForAnotherUserThanRoot) {
  std::string as_user = "setpriv --reuid 65534 --regid 65534 --clear-groups ";
  if (geteuid() != 0 || run(as_user + "test -x " + kProgram).status != 0) as_user.clear();
  const std::string path = trace(4);
  std::filesystem::permissions(folder_, std::filesystem::perms::all);
  (void)run(ranks(2, "--trace " + path + " --memory 16MiB --json --log-dir " + file("logs"), true, as_user));
  expect_ok(2);
  EXPECT_EQ(Json::parse(text_of("out.0"))["finished"], 4);
}

TEST_F(TcpProgramTest, EachRankKeepsALogOfItsOwn) {
  (void)run(ranks(2, "--trace " + trace(4) + " --log-dir " + file("logs/deep") + " --json"));
  expect_ok(2);
  for (const std::string rank : {"0", "1"}) {
    const std::string log = text_of("logs/deep/rank-" + rank + ".log");
    for (const std::string& text :
         {"rank " + rank + " of 2 over tcp", std::string("peak_activations"), std::string("kv_pool"),
          std::string("agreed on"), std::string("steps executed, done")}) {
      EXPECT_NE(log.find(text), std::string::npos) << text << "\n" << log;
    }
  }
  const CommandResult refused = run(kProgram + " launch --trace " + trace(2) + " --log-dir /proc/nowhere");
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find("/proc/nowhere/rank-0.log"), std::string::npos) << refused.err;
}

TEST_F(TcpProgramTest, SurvivorsOfAKilledRankSayHowFarTheyCame) {
  RunningCommand running(ranks(3, "--trace " + trace(20000) + " --model " + six_heads() +
                                      " --memory 16MiB --deadline 2s --json --log-dir " + file("logs")),
                         folder_);
  wait_for("pid.1");
  wait_for("logs/rank-1.log");
  for (int i = 0; i < 1000 && text_of("logs/rank-1.log").find("agreed on") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  ASSERT_EQ(kill(std::stoi(text_of("pid.1")), SIGKILL), 0);
  const auto killed = std::chrono::steady_clock::now();
  const CommandResult result = running.wait(std::chrono::seconds(60));
  ASSERT_FALSE(result.timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(20));
  for (const int survivor : {0, 2}) {
    const std::string text = text_of("err." + std::to_string(survivor));
    EXPECT_EQ(status_of(survivor), 3) << text;
    EXPECT_NE(text.find("rank 1 did not answer"), std::string::npos) << text;
    EXPECT_NE(text.find("steps on this rank)"), std::string::npos) << text;
  }
  const Json json = Json::parse(text_of("out.0"));
  EXPECT_EQ(json["error"]["rank"], 1);
  EXPECT_GT(json["steps"], 0);
  EXPECT_LT(json["finished"], 20000);
  EXPECT_EQ(json["ranks"].size(), 3U);
  EXPECT_NE(text_of("logs/rank-2.log").find("ended by: rank 1 did not answer"), std::string::npos);
}

TEST_F(TcpProgramTest, CtrlCEndsAllRanksWithThePartialResult) {
  RunningCommand running(ranks(2, "--trace " + trace(20000) + " --memory 64MiB --json --log-dir " + file("logs")),
                         folder_);
  for (int i = 0; i < 1500 && text_of("logs/rank-1.log").find("agreed on") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (const std::string rank : {"0", "1"}) ASSERT_EQ(kill(std::stoi(text_of("pid." + rank)), SIGINT), 0);
  const CommandResult result = running.wait(std::chrono::seconds(60));
  ASSERT_FALSE(result.timed_out);
  for (const int rank : {0, 1}) EXPECT_EQ(status_of(rank), 130) << text_of("err." + std::to_string(rank));
  const Json json = Json::parse(text_of("out.0"));
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_EQ(json["error"], nullptr);
}

TEST_F(TcpProgramTest, WrongMeetingPlacesAreNamed) {
  const std::string start = kProgram + " launch --trace " + trace(2) + " --deadline 1s ";
  const auto expect = [&](const std::string& arguments, int status, const std::string& text) {
    const CommandResult result =
        run("env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE -u SLURM_STEP_NUM_TASKS " + start + arguments);
    EXPECT_EQ(result.status, status) << arguments << "\n" << result.err;
    EXPECT_NE(result.err.find(text), std::string::npos) << arguments << "\n" << result.err;
  };
  expect("--meet nowhere", 2, "'nowhere' is not HOST:PORT");
  expect("--meet here:0 --rank 0 --ranks 2", 2, "'here:0' is not HOST:PORT");
  expect("--meet 127.0.0.1:70000 --rank 0 --ranks 2", 2, "is not HOST:PORT");
  expect("--meet 127.0.0.1:5000", 2, "no launcher says which rank this is");
  expect("--meet 127.0.0.1:5000 --rank 2 --ranks 2", 2, "--rank 2 of --ranks 2");
  expect("--transport tcp --rank 0 --ranks 2", 2, "'' is not HOST:PORT");
  expect("--meet 127.0.0.1:" + free_port() + " --rank 1 --ranks 2", 3, "nobody listens");
  expect("--meet 127.0.0.1:" + free_port() + " --rank 0 --ranks 2", 3, "rank 1 did not come");
}

}  // namespace
}  // namespace kvpool::launch
