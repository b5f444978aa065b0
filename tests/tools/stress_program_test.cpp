// kvpool_stress as a user meets it: what it prints first and last, exit statuses, bad usage, Ctrl-C.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "program.hpp"

namespace kvpool::tools {
namespace {

using testing_support::Program;
using testing_support::run_program;

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
}

TEST(StressProgram, SeedFirstVerdictLastInEveryWorkload) {
  for (const std::string workload : {"mixed", "prefix", "pressure", "fence"}) {
    const auto result = run_program({"--threads", "3", "--blocks", "33", "--seconds", "0.1", "--seed",
                                     "18446744073709551615", "--workload", workload});
    EXPECT_EQ(result.status, 0) << result.out << result.err;
    EXPECT_EQ(
        result.out.rfind("seed 18446744073709551615, workload " + workload + ", 3 threads, 33 blocks, 0.1 s\n", 0), 0U)
        << result.out;
    EXPECT_EQ(last_line(result.out).rfind("ok: ", 0), 0U) << result.out;
    EXPECT_EQ(result.err, "");
  }
}

TEST(StressProgram, StalledThreadsAreReportedByKindOfOperation) {
  const auto result = run_program({"--threads", "3", "--seconds", "400ms", "--stall"});
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  const std::size_t stalls = result.out.find("\nstalls ");
  ASSERT_NE(stalls, std::string::npos) << result.out;
  EXPECT_NE(result.out.find(", frozen 0,", stalls), std::string::npos) << result.out;
  const std::size_t fewest = result.out.find("fewest operations of the others in one stall:", stalls);
  ASSERT_NE(fewest, std::string::npos) << result.out;
  for (const std::string kind : {"allocate", "touch", "pin", "pin_prefix", "publish", "publish_chain", "release",
                                 "unpublish", "evict", "move", "look_up", "find_prefix", "advance_fence"}) {
    EXPECT_NE(result.out.find(" " + kind + " ", fewest), std::string::npos) << kind;
  }
}

TEST(StressProgram, BadUsageIsStatusTwoAndNamesTheValue) {
  const std::vector<std::vector<std::string>> commands{{"--threads", "0"},
                                                       {"--threads", "257"},
                                                       {"--threads", "many"},
                                                       {"--blocks", "1"},
                                                       {"--blocks", "16777217"},
                                                       {"--seconds", "0"},
                                                       {"--seconds", "nan"},
                                                       {"--seconds", "5weeks"},
                                                       {"--seconds", "-1"},
                                                       {"--seconds", "301h"},
                                                       {"--seed", "-1"},
                                                       {"--seed", "1x"},
                                                       {"--seed", "18446744073709551616"},
                                                       {"--workload", "idle"}};
  for (const auto& command : commands) {
    const auto result = run_program(command);
    EXPECT_EQ(result.status, 2) << command[0] << " " << command[1];
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(command[0]), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(command[1]), std::string::npos) << result.err;
  }
  EXPECT_EQ(run_program({"--threads", "1", "--stall"}).status, 2);
  EXPECT_EQ(run_program({"--unknown"}).status, 2);
  EXPECT_EQ(run_program({"extra"}).status, 2);
}

TEST(StressProgram, HelpShowsAnExample) {
  const auto result = run_program({"--help"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("Example: kvpool_stress --threads"), std::string::npos) << result.out;
}

TEST(StressProgram, CtrlCEndsWithTheVerdictSoFar) {
  for (const bool stall : {false, true}) {
    std::vector<std::string> arguments{"--threads", "2", "--blocks", "65", "--seconds", "1h"};
    if (stall) arguments.emplace_back("--stall");
    Program program(arguments);
    // The handler is set before the first line is printed.
    while (testing_support::read_file(program.out_path()).empty()) usleep(1'000);
    ASSERT_EQ(kill(program.pid(), SIGINT), 0);
    EXPECT_EQ(program.wait(), 130) << program.out << program.err;
    EXPECT_EQ(last_line(program.out).rfind("interrupted: ", 0), 0U) << program.out;
  }
}

}  // namespace
}  // namespace kvpool::tools
