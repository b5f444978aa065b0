// The programs as a user meets them: exit statuses, messages, JSON shape, Ctrl-C.
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <set>
#include <string>

#include "program.hpp"
#include "tools/cli/json_output.hpp"

namespace kvpool::tools {
namespace {

using testing_support::Folder;
using testing_support::Program;
using testing_support::read_file;
using testing_support::run_program;

std::string data(const std::string& name) { return std::string(KVPOOL_TEST_DATA) + "/" + name; }

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, value] : object.items()) {
    keys.insert(key);
  }
  return keys;
}

TEST(CommandLine, HelpShowsAnExample) {
  for (const char* command : {"exec", "replay"}) {
    const auto result = run_program({command, "--help"});
    EXPECT_EQ(result.status, 0);
    EXPECT_NE(result.out.find("Example:\n  kvpool " + std::string(command)), std::string::npos);
  }
}

TEST(CommandLine, BadUsageIsStatusTwo) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"fly"},
                                             {"exec"},
                                             {"exec", "--threads", "0", "x"},
                                             {"exec", "--unknown", "x"},
                                             {"replay"},
                                             {"replay", "x", "--capacity", "0"},
                                             {"replay", "x", "--capacity", "99999999999"},
                                             {"replay", "x", "--window", "-1"},
                                             {"replay", "x", "--duplicates", "both"},
                                             {"replay", "x", "--order", "lifo"},
                                             {"replay", "x", "--first", "many"}}) {
    const auto result = run_program(arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err, "");
  }
}

TEST(CommandLine, UnknownWordsAreNamedBesideTheSubcommands) {
  const auto word = run_program({"frobnicate", "--json"});
  EXPECT_EQ(word.status, 2);
  EXPECT_NE(word.err.find("'frobnicate' is no subcommand; subcommands:"), std::string::npos) << word.err;
  EXPECT_NE(word.err.find(" replay"), std::string::npos) << word.err;
  const auto option = run_program({"--frobnicate"});
  EXPECT_EQ(option.status, 2);
  EXPECT_NE(option.err.find("'--frobnicate' is no option"), std::string::npos) << option.err;
}

TEST(BenchCommand, AFilterThatMatchesNothingListsTheFamilies) {
  const auto result = run_program({"bench", "--smoke", "--filter", "frobnicate"});
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("'frobnicate'; families:"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(" requests"), std::string::npos) << result.err;
}

TEST(BenchCommand, AFamilyIsFoundByItsName) {
  const auto result = run_program({"bench", "--smoke", "--json", "--filter", "requests"});
  EXPECT_EQ(result.status, 0) << result.err;
  std::set<std::string> names;
  const Json object = Json::parse(result.out);
  for (const Json& row : object["rows"]) {
    names.insert(row["name"].get<std::string>());
  }
  for (const char* name : {"lookup_2000_blocks", "decode_long_window", "decode_long_full_state", "free_512_blocks"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

TEST(CommandLine, MissingFileIsStatusTwoAndNamed) {
  for (const char* command : {"exec", "replay"}) {
    const auto result = run_program({command, "/nowhere/file"});
    EXPECT_EQ(result.status, 2);
    EXPECT_NE(result.err.find("/nowhere/file: cannot be opened"), std::string::npos) << result.err;
  }
}

TEST(ExecCommand, JsonIsOneObjectOnStdout) {
  const std::string script = data("golden/scenarios/83-refusals.jsonl");
  const auto result = run_program({"exec", "--check", "--json", script});
  EXPECT_EQ(result.status, 0) << result.err;
  const Json object = Json::parse(result.out);
  EXPECT_EQ(keys_of(object), (std::set<std::string>{"script", "ops", "refused", "checked", "mismatches"}));
  EXPECT_EQ(object["script"], script);
  EXPECT_EQ(object["ops"], 29);
  EXPECT_EQ(object["checked"], 29);
  EXPECT_EQ(object["mismatches"], 0);
  EXPECT_EQ(result.err, "");
}

TEST(ExecCommand, AnswersAreListed) {
  const std::string script = data("golden/scenarios/08-pool-one-block.jsonl");
  const auto table = run_program({"exec", "--answers", script});
  EXPECT_EQ(table.status, 0);
  EXPECT_NE(table.out.find("usage                        {\"num_free_blocks\":0,\"usage\":0.0}\n"), std::string::npos)
      << table.out;
  const auto json = run_program({"exec", "--answers", "--json", script});
  const Json object = Json::parse(json.out);
  EXPECT_EQ(object["answers"].size(), object["ops"].get<std::size_t>());
  EXPECT_EQ(object["answers"][0]["line"], 2);
}

TEST(ExecCommand, MismatchIsStatusOneWithItsPlace) {
  const Folder folder;
  const std::string script =
      folder.write_gzip("script.gz", read_file(data("golden/scenarios/07-pool-basics.jsonl")) +
                                         R"({"op":"usage","expect":{"num_free_blocks":-1,"usage":0}})" + "\n");
  for (const bool json : {false, true}) {
    const auto result =
        json ? run_program({"exec", "--check", "--json", script}) : run_program({"exec", "--check", script});
    EXPECT_EQ(result.status, 1);
    EXPECT_EQ(result.err.find(script + ":21: num_free_blocks: expected -1, got "), 0U) << result.err;
    if (json) {
      EXPECT_EQ(Json::parse(result.out)["mismatches"], 1);
    }
  }
  EXPECT_EQ(run_program({"exec", script}).status, 0) << "without --check nothing is compared";
}

TEST(ExecCommand, CutAndCorruptScriptsAreStatusTwo) {
  const Folder folder;
  const std::string packed = read_file(data("golden/random/001-full16.jsonl.gz"));
  for (const std::size_t length : {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{11}, std::size_t{500},
                                   packed.size() / 2, packed.size() - 8, packed.size() - 1}) {
    const auto result = run_program({"exec", "--json", folder.write("cut.gz", packed.substr(0, length))});
    EXPECT_EQ(result.status, 2) << length;
    EXPECT_NE(result.err.find("cut.gz"), std::string::npos) << result.err;
    EXPECT_TRUE(Json::accept(result.out)) << result.out;
  }
  EXPECT_EQ(run_program({"exec", folder.write("empty", "")}).status, 2);
}

TEST(ReplayCommand, JsonHasTheRowAndTheTimes) {
  const auto result = run_program({"replay", data("traces/mooncake-conversation.kvt.gz"), "--capacity", "500",
                                   "--window", "8", "--first", "1000", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json object = Json::parse(result.out);
  const Json expected = Json::parse(read_file(data("traces/golden/mooncake-conversation.json")));
  for (const Json& row : expected["rows"]) {
    if (row["capacity"] == 500 && row["window"] == 8 && row["first_requests"] == 1000) {
      for (const auto& [field, value] : row.items()) {
        EXPECT_EQ(object[field], value) << field;
      }
    }
  }
  EXPECT_GT(object["seconds"].get<double>(), 0.0);
  EXPECT_GT(object["block_ops_per_second"].get<double>(), 0.0);
  EXPECT_EQ(keys_of(object["latency_us"]), (std::set<std::string>{"lookup", "allocate", "free"}));
  for (const auto& [name, times] : object["latency_us"].items()) {
    EXPECT_EQ(keys_of(times), (std::set<std::string>{"p50", "p99", "p999", "max"})) << name;
  }
}

TEST(ReplayCommand, ThreadsGiveNoDigest) {
  const auto result = run_program({"replay", data("traces/agent-tokens-a.kvt.gz"), "--first", "100", "--threads", "4",
                                   "--capacity", "400", "--order", "append", "--duplicates", "skip", "--json"});
  ASSERT_EQ(result.status, 0) << result.err;
  const Json object = Json::parse(result.out);
  EXPECT_TRUE(object["digest"].is_null());
  EXPECT_EQ(object["requests"], 100);
  EXPECT_EQ(object["invariants_hold"], true);
}

TEST(ReplayCommand, TableForPeople) {
  const auto result = run_program({"replay", data("traces/agent-tokens-a.kvt.gz"), "--first", "10"});
  EXPECT_EQ(result.status, 0);
  EXPECT_NE(result.out.find("hit_ratio_tokens"), std::string::npos);
  EXPECT_NE(result.out.find("p99.9"), std::string::npos);
}

TEST(ReplayCommand, OperationLogsAreRecognised) {
  const std::string log = data("traces/golden/ops-small.txt.gz");
  const auto result = run_program({"replay", log, "--json"});
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(Json::parse(result.out)["mismatches"], 0);
  const Folder folder;
  const std::string wrong = folder.write("log", "# kvtrace-ops 1\n# capacity 2\n# block_size 2\ninit\n= ok\nq 2 1\n");
  const auto refused = run_program({"replay", wrong});
  EXPECT_EQ(refused.status, 1);
  EXPECT_EQ(refused.err, wrong + ":6: queue: expected 2 1, got 1 2\n");
}

TEST(ReplayCommand, BadTracesAreStatusTwoWithPlaceAndValue) {
  const Folder folder;
  const std::string head = "# kvtrace 1\n# kind ids\n# title t\n# block_size 64\n";
  const auto negative = run_program({"replay", folder.write("negative", head + "0 0 64 -7 0\n")});
  EXPECT_EQ(negative.status, 2);
  EXPECT_NE(negative.err.find("negative:5: out: is outside 0..1073741824, got -7"), std::string::npos) << negative.err;
  const auto block = run_program({"replay", folder.write("block", head + "0 0 64 7 0\n"), "--block-size", "48"});
  EXPECT_EQ(block.status, 2);
  EXPECT_NE(block.err.find("block size 48 does not divide the 64 tokens"), std::string::npos) << block.err;
  const std::string packed = read_file(data("traces/mooncake-conversation.kvt.gz"));
  for (const std::size_t length : {std::size_t{3}, std::size_t{60}, packed.size() / 3, packed.size() - 4}) {
    EXPECT_EQ(run_program({"replay", folder.write("cut.gz", packed.substr(0, length))}).status, 2) << length;
  }
}

// The program opens the pipe only after it has set its handler, so the signal cannot come too early.
void interrupt_while_reading(const std::vector<std::string>& arguments, const std::string& pipe,
                             const std::string& before, const std::string& after, Json& object) {
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  Program program(arguments);
  {
    std::ofstream writer(pipe);
    writer << before << std::flush;
    ASSERT_EQ(kill(program.pid(), SIGINT), 0);
    writer << after << std::flush;
  }
  EXPECT_EQ(program.wait(), 130) << program.err;
  object = Json::parse(program.out);
  EXPECT_EQ(object["interrupted"], true);
}

TEST(Interrupt, ExecEndsWithTheResultSoFar) {
  const Folder folder;
  const std::string script = read_file(data("golden/scenarios/84-lanes-script.jsonl"));
  const std::size_t half = script.find('\n', script.size() / 2) + 1;
  Json object;
  interrupt_while_reading({"exec", "--check", "--json", folder.path("pipe")}, folder.path("pipe"),
                          script.substr(0, half), script.substr(half), object);
  EXPECT_LT(object["ops"].get<int>(), 391);
  EXPECT_EQ(object["mismatches"], 0);
}

TEST(Interrupt, ReplayEndsWithTheResultSoFar) {
  const Folder folder;
  std::string trace = "# kvtrace 1\n# kind ids\n# title t\n# block_size 64\n";
  std::string rest;
  for (int i = 0; i < 1000; ++i) {
    rest += "0 0 64 7 1 " + std::to_string(i) + " 1\n";
  }
  Json object;
  interrupt_while_reading({"replay", "--json", folder.path("pipe")}, folder.path("pipe"), trace, rest, object);
  EXPECT_LT(object["requests"].get<int>(), 1000);
  EXPECT_TRUE(object["digest"].is_null());
  EXPECT_EQ(object["invariants_hold"], true);
}

}  // namespace
}  // namespace kvpool::tools
