// The program itself, as a person calls it: statuses, messages, the JSON object, Ctrl-C.
#include <nlohmann/json.hpp>

#include "tests/launch/program.hpp"

namespace kvpool::launch {
namespace {

using Json = nlohmann::json;

const std::string kLaunch = std::string(KVPOOL_PROGRAM) + " launch ";

TEST_F(ProgramTest, PrintsExactlyOneJsonObject) {
  const CommandResult result =
      run(kLaunch + "--trace " + trace(6) + " --ranks-as-threads 2 --schedulers 2 --memory 32MiB --verify 2 --json");
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["requests"], 6);
  EXPECT_EQ(json["ranks"].size(), 2U);
  EXPECT_EQ(json["num_blocks"], 2048);  // 32 MiB of 16 KiB a block and rank
  EXPECT_EQ(json["verify"]["requests"], 2);
  EXPECT_EQ(json["verify"]["bitwise_equal"], true);
  EXPECT_EQ(json["divergence_alarms"], 0);
  EXPECT_EQ(json["interrupted"], false);
}

TEST_F(ProgramTest, TheTableSaysWhatMatters) {
  const CommandResult result = run(kLaunch + "--trace " + trace(4) + " --memory 32MiB --verify 1");
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* text : {"agreed num_blocks", "hit ratio", "throughput", "attention verified: 1 requests"}) {
    EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
  }
}

TEST_F(ProgramTest, WrongUsageAndInputAreStatus2WithTheNumbers) {
  const std::string good = "--trace " + trace(2) + " ";
  const auto expect_refused = [&](const std::string& arguments, const std::string& text) {
    const CommandResult result = run(kLaunch + arguments);
    EXPECT_EQ(result.status, 2) << arguments << "\n" << result.out << result.err;
    EXPECT_NE(result.err.find(text), std::string::npos) << arguments << "\n" << result.err;
    EXPECT_EQ(result.out, "") << arguments;
  };
  expect_refused("", "--trace");
  expect_refused(good + "--ranks-as-threads 16", "16 ranks for 8 query heads");
  expect_refused(good + "--block-size 48", "--block-size 48 does not divide the 256 keys");
  expect_refused(good + "--memory 20000", "--memory 20000 bytes: a block of 16 tokens takes 32768 bytes");
  expect_refused(good + "--memory 5parsecs", "5parsecs");
  expect_refused(good + "--transport mpi --ranks-as-threads 2", "exclude each other");
  expect_refused(good + "--deadline 0", "--deadline");
  expect_refused(good + "--schedulers 0", "--schedulers");
  expect_refused("--trace " + write("negative.kvt",
                                    "# kvtrace 1\n# kind ids\n# title x\n# block_size 16\n"
                                    "0 -1 -5 2 0\n"),
                 "negative.kvt:5");
  expect_refused("--trace " + write("cut.kvt.gz", "\x1f\x8b\x08"), "cut.kvt.gz");
  expect_refused("--trace /nonexistent.kvt", "/nonexistent.kvt");
  expect_refused(good + "--model " + write("m.json", "{\"hidden_size\": 0}"), "hidden_size is 0");
}

TEST_F(ProgramTest, AMissingDeviceIsStatus3) {
  const std::string arguments = "--trace " + trace(2);
  for (const std::string option : {"--backend cuda", "--transport nccl"}) {
    const CommandResult result = run(kLaunch + arguments + " " + option);
    EXPECT_EQ(result.status, 3) << result.err;
    EXPECT_NE(result.err.find(option), std::string::npos) << result.err;
  }
}

TEST_F(ProgramTest, ARequestThatCanNeverFitIsRefusedAndTheRestServed) {
  const CommandResult result = run(kLaunch + "--trace " + trace(6) + " --memory 256KiB --json");
  EXPECT_EQ(result.status, 2);
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["num_blocks"], 8);
  EXPECT_GT(json["finished"], 0);
  ASSERT_GT(json["refused"].size(), 0U);
  EXPECT_EQ(json["refused"].size() + json["finished"].get<std::size_t>(), 6U);
  EXPECT_GT(json["refused"][0]["blocks_needed"], 7);
  EXPECT_NE(result.err.find("blocks, the pool has 7"), std::string::npos) << result.err;
}

TEST_F(ProgramTest, CtrlCEndsWithThePartialResult) {
  const std::string command = "exec " + kLaunch + "--trace " + trace(20000) + " --memory 64MiB --json";
  RunningCommand running(command, folder_);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  ASSERT_EQ(kill(running.pid(), SIGINT), 0);
  const CommandResult result = running.wait(std::chrono::seconds(100));
  ASSERT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 130) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["interrupted"], true);
  EXPECT_LT(json["finished"], 20000);
  EXPECT_EQ(json["output_digest"].get<std::string>().size(), 64U);
}

}  // namespace
}  // namespace kvpool::launch
