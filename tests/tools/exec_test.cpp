// Op scripts: what is refused, what is compared, what is counted.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "folder.hpp"
#include "tools/exec/comparison.hpp"
#include "tools/exec/script_runner.hpp"

namespace kvpool::tools {
namespace {

const std::string kConfig =
    R"({"op":"config","version":1,"num_blocks":9,"hash_block_size":4,"scheduler_block_size":4,"max_model_len":8192,)"
    R"("enable_caching":true,"hash_algo":"sha256_cbor","hash_seed":"s","free_order":"split",)"
    R"("groups":[{"type":"full_attention","block_size":4}]})";

ScriptResult run(const std::string& text, unsigned threads = 1) {
  InputFile file("script", {text.begin(), text.end()});
  ScriptOptions options;
  options.check = true;
  options.threads = threads;
  return run_script(file, options);
}

std::string answer_of(const std::string& last_line, const std::string& before = "") {
  InputFile file("script", [&] {
    const std::string text = kConfig + "\n" + before + last_line + "\n";
    return std::vector<unsigned char>(text.begin(), text.end());
  }());
  std::string answer;
  ScriptOptions options;
  options.answer_sink = [&](std::uint64_t, const std::string&, const Json& value) { answer = to_text(value); };
  const ScriptResult result = run_script(file, options);
  return result.exit_status == 0 ? answer : result.message;
}

std::string config_with(const std::string& key, const std::string& value) {
  const std::size_t at = kConfig.find("\"" + key + "\":");
  if (at == std::string::npos) {
    return kConfig.substr(0, kConfig.size() - 1) + ",\"" + key + "\":" + value + "}";
  }
  const std::size_t begin = at + key.size() + 3;
  const std::size_t end = key == "groups" ? kConfig.size() - 1 : kConfig.find(',', begin);
  return kConfig.substr(0, begin) + value + kConfig.substr(end);
}

struct BadConfig {
  const char* key;
  const char* value;
  const char* named;  ///< what the message must contain
};

TEST(ScriptConfig, BadValuesEndWithStatusTwoAndNameTheKey) {
  for (const BadConfig& bad : std::vector<BadConfig>{
           {"version", "2", "version"},
           {"num_blocks", "0", "num_blocks"},
           {"num_blocks", "-5", "num_blocks"},
           {"num_blocks", "1e3", "num_blocks"},
           {"num_blocks", "99999999999999999999", "num_blocks"},
           {"num_blocks", "4611686018427387904", "num_blocks"},
           {"hash_block_size", "3", "hash_block_size"},
           {"hash_block_size", "0", "hash_block_size"},
           {"scheduler_block_size", "6", "hash_block_size"},
           {"max_model_len", "0", "max_model_len"},
           {"enable_caching", "1", "enable_caching"},
           {"hash_algo", "\"md5\"", "hash_algo"},
           {"free_order", "\"lifo\"", "free_order"},
           {"watermark", "1.0", "watermark"},
           {"watermark", "-0.1", "watermark"},
           {"dcp_world_size", "0", "dcp_world_size"},
           {"max_in_flight_tokens", "0", "max_in_flight_tokens"},
           {"num_prefill_lookahead", "-1", "num_prefill_lookahead"},
           {"retention_interval", "-4", "retention_interval"},
           {"retention_interval", "8", "retention_interval"},
           {"colour", "1", "colour"},
           {"groups", "[]", "groups"},
           {"groups", "7", "groups"},
           {"groups", R"([{"type":"full_attention"}])", "groups[0].block_size"},
           {"groups", R"([{"type":"full_attention","block_size":3}])", "groups[0].block_size"},
           {"groups", R"([{"type":"linear","block_size":4}])", "groups[0].type"},
           {"groups", R"([{"type":"full_attention","block_size":4,"sliding_window":4}])", "groups[0].sliding_window"},
           {"groups", R"([{"type":"sliding_window","block_size":4}])", "groups[0].sliding_window"},
           {"groups", R"([{"type":"sliding_window","block_size":4,"sliding_window":0}])", "groups[0].sliding_window"},
           {"groups", R"([{"type":"mamba","block_size":4,"mamba_cache_mode":"some","num_speculative_blocks":0}])",
            "groups[0].mamba_cache_mode"}}) {
    const ScriptResult result = run(config_with(bad.key, bad.value) + "\n");
    EXPECT_EQ(result.exit_status, 2) << bad.key << " " << bad.value;
    EXPECT_EQ(result.message.find("script:1: "), 0U) << result.message;
    EXPECT_NE(result.message.find(bad.named), std::string::npos) << result.message;
  }
}

TEST(ScriptConfig, LookaheadBeyondTheBlockNeedsDraftGroups) {
  const std::string eagle = config_with("num_prefill_lookahead", "5");
  EXPECT_EQ(run(eagle + "\n").exit_status, 0);
  const ScriptResult refused = run(eagle.substr(0, eagle.size() - 1) + ",\"use_eagle\":true}\n");
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_NE(refused.message.find("num_prefill_lookahead"), std::string::npos) << refused.message;
}

TEST(ScriptConfig, MissingKeysAreNamed) {
  for (const char* key : {"num_blocks", "hash_block_size", "scheduler_block_size", "max_model_len", "enable_caching",
                          "hash_algo", "hash_seed", "free_order", "groups", "version"}) {
    std::string text = kConfig;
    text.replace(text.find("\"" + std::string(key) + "\":"), std::string(key).size() + 3,
                 "\"comment\":0,\"x\":");  // the key is gone, and two unknown ones are there
    const ScriptResult result = run(text + "\n");
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_NE(result.message.find(std::string(key) + ": is missing"), std::string::npos) << result.message;
  }
}

struct BadLine {
  const char* line;
  const char* message;
};

TEST(ScriptLines, BadOnesEndWithStatusTwoAndNameLineFieldAndValue) {
  for (const BadLine& bad : std::vector<BadLine>{
           {R"({"op":"fly"})", "script:2: op: is unknown, got \"fly\""},
           {R"({"op":"config"})", "script:2: op: is on the first line only, got \"config\""},
           {R"({"id":"A"})", "script:2: op: is missing"},
           {R"({"op":7})", "script:2: op: is not a text, got 7"},
           {R"([1,2])", "script:2: is not a JSON object, got [1,2]"},
           {R"({"op":"usage","verbose":true})", "script:2: verbose: is an unknown key, got true"},
           {R"({"op":"usage","expect":7})", "script:2: expect: is not a JSON object, got 7"},
           {R"({"op":"usage","op":"usage"})", "script:2: op: appears twice in one object"},
           {R"({"op":"free"})", "script:2: id: is missing"},
           {R"({"op":"pool_get","n":"3"})", "script:2: n: is not an integer, got \"3\""},
           {R"({"op":"pool_get","n":3.0})", "script:2: n: is not an integer, got 3.0"},
           {R"({"op":"usage","lane":-1})", "script:2: lane: is outside 0..9007199254740992, got -1"},
           {R"({"op":"pool_get","n":18446744073709551615})",
            "script:2: n: is outside -9007199254740992..9007199254740992, got 18446744073709551615"},
           {R"({"op":"new_request","id":"A","tokens":[[0,9223372036854775807]]})",
            "script:2: tokens: makes the live requests longer than 67108864 tokens together, got "
            "[0,9223372036854775807]"},
           {R"({"op":"new_request","id":"A","tokens":[[5,-1]]})",
            "script:2: tokens: has a pair with a negative count or tokens beyond 64 bits, got [5,-1]"},
           {R"({"op":"new_request","id":"A","tokens":[[5,1,2]]})",
            "script:2: tokens: has an item that is neither an integer nor a pair [first, count], got [5,1,2]"},
           {R"({"op":"new_request","id":"A","tokens":[1],"mm":[{"identifier":"i","offset":0}]})",
            "script:2: mm[0].length: is missing"},
           {R"({"op":"allocate_slots","id":"A","num_new_tokens":1,"use_computed":1})",
            "script:2: use_computed: is neither true nor false, got 1"}}) {
    const ScriptResult result = run(kConfig + "\n" + bad.line + "\n");
    EXPECT_EQ(result.exit_status, 2) << bad.line;
    EXPECT_EQ(result.message, bad.message);
    EXPECT_EQ(result.ops, 0U);
  }
  EXPECT_NE(run(kConfig + "\n{\"op\":").message.find("script:2: column"), std::string::npos);
  EXPECT_NE(run(kConfig + "\n" + std::string(10'000, '[') + "\n").message.find("nested"), std::string::npos);
  EXPECT_EQ(run("").message, "script: has no configuration line");
  EXPECT_EQ(run("{\"op\":\"usage\"}\n").message, "script:1: op: of the first line is not config, got \"usage\"");
}

TEST(Refusals, KeepTheirOrder) {
  const std::string a = R"({"op":"new_request","id":"A","tokens":[[0,9]]})"
                        "\n"
                        R"({"op":"get_computed_blocks","id":"A"})"
                        "\n"
                        R"({"op":"allocate_slots","id":"A","num_new_tokens":9,"use_computed":true})"
                        "\n";
  for (const BadLine& refused : std::vector<BadLine>{
           {R"({"op":"allocate_slots","id":"B","num_new_tokens":-1})", "unknown_request"},
           {R"({"op":"new_request","id":"A","tokens":[]})", "duplicate_request"},
           {R"({"op":"new_request","id":"B","tokens":[]})", "invalid_argument"},
           {R"({"op":"append_tokens","id":"A","tokens":[]})", "invalid_argument"},
           {R"({"op":"append_tokens","id":"B","tokens":[]})", "unknown_request"},
           {R"({"op":"allocate_slots","id":"A","num_new_tokens":-1})", "invalid_argument"},
           {R"({"op":"allocate_slots","id":"A","num_new_tokens":1,"reserved_blocks":-1})", "invalid_argument"},
           {R"({"op":"allocate_slots","id":"A","num_new_tokens":1,"num_new_computed_tokens":4})", "invalid_argument"},
           {R"({"op":"set_computed","id":"A","num_computed_tokens":-1})", "invalid_argument"},
           {R"({"op":"set_computed","id":"A","num_computed_tokens":1,"num_in_flight_tokens":-1})", "invalid_argument"},
           {R"({"op":"cache_blocks","id":"A","num_computed_tokens":10})", "invalid_argument"},
           {R"({"op":"remove_skipped_blocks","id":"A","num_computed_tokens":-1})", "invalid_argument"},
           {R"({"op":"pool_get","n":-1})", "invalid_argument"},
           {R"({"op":"pool_get","n":6})", "not_enough_blocks"},
           {R"({"op":"pool_touch","block_ids":[77,0]})", "invalid_argument"},
           {R"({"op":"pool_touch","block_ids":[1,-1]})", "unknown_block"},
           {R"({"op":"pool_free","block_ids":[1,1,9]})", "unknown_block"},
           {R"({"op":"pool_free","block_ids":[1,1]})", "double_free"},
           {R"({"op":"pool_free","block_ids":[0]})", "invalid_argument"},
           {R"({"op":"evict_blocks","ids":[0]})", "invalid_argument"},
           {R"({"op":"evict_blocks","ids":[9]})", "unknown_block"},
           {R"({"op":"block","block_id":9})", "unknown_block"},
           {R"({"op":"cached","hash":"xyz","group":0})", "invalid_argument"},
           {R"({"op":"cached","hash":"00","group":1})", "invalid_argument"}}) {
    EXPECT_EQ(answer_of(refused.line, a), std::string("{\"error\":\"") + refused.message + "\"}") << refused.line;
    // The state is as before: the same blocks are free in the same order, and the invariants hold.
    EXPECT_EQ(answer_of(R"({"op":"free_queue"})", a + refused.line + "\n"), R"({"block_ids":[4,5,6,7,8]})");
  }
}

TEST(Refusals, LookupsEndWithPreemptAndFree) {
  const std::string lookup = R"({"op":"new_request","id":"A","tokens":[[0,9]]})"
                             "\n"
                             R"({"op":"get_computed_blocks","id":"A"})"
                             "\n";
  const std::string allocate = R"({"op":"allocate_slots","id":"A","num_new_tokens":9,"use_computed":true})";
  EXPECT_EQ(answer_of(allocate, lookup), R"({"new_block_ids":[[1,2,3]]})");
  for (const char* op : {"free", "preempt"}) {
    EXPECT_EQ(answer_of(allocate, lookup + R"({"op":")" + op + R"(","id":"A"})" + "\n"),
              R"({"error":"invalid_argument"})");
  }
}

TEST(Expectations, FirstDifferenceStopsTheRunAndIsNamed) {
  const ScriptResult result = run(kConfig + "\n" + R"({"op":"usage","expect":{"num_free_blocks":8,"usage":0}})" + "\n" +
                                  R"({"op":"free_queue","expect":{"block_ids":[1,2,3]}})" + "\n" +
                                  R"({"op":"usage","expect":{"num_free_blocks":7,"usage":0}})" + "\n");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_EQ(result.message, "script:3: block_ids: expected [1,2,3], got [1,2,3,4,5,6,7,8]");
  EXPECT_EQ(result.ops, 2U);
  EXPECT_EQ(result.checked, 2U);
  EXPECT_EQ(result.mismatches, 1U);
}

std::string difference(const std::string& expected, const std::string& actual) {
  const auto found = compare_answers(Json::parse(expected), Json::parse(actual));
  return found ? found->field + ": " + found->expected + " / " + found->actual : "";
}

TEST(Expectations, AreComparedExactly) {
  EXPECT_EQ(difference(R"({"a":1,"b":[1]})", R"({"b":[1],"a":1})"), "");
  EXPECT_EQ(difference(R"({"a":0.1})", R"({"a":0.1000000005})"), "");
  EXPECT_EQ(difference(R"({"a":0})", R"({"a":0.0})"), "");
  EXPECT_EQ(difference(R"({"a":0.1})", R"({"a":0.100000002})"), "a: 0.1 / 0.100000002");
  EXPECT_EQ(difference(R"({"a":null})", R"({})"), "a: null / nothing");
  EXPECT_EQ(difference(R"({})", R"({"a":null})"), "a: nothing / null");
  EXPECT_EQ(difference(R"({"a":-1})", R"({"a":18446744073709551615})"), "a: -1 / 18446744073709551615");
  EXPECT_EQ(difference(R"({"a":[[1,2],[3]]})", R"({"a":[[1,2],[4]]})"), "a[1]: [3] / [4]");
  EXPECT_EQ(difference(R"({"e":[{"t":"x","h":[1]}]})", R"({"e":[{"t":"x","h":[2]}]})"), "e[0].h: [1] / [2]");
  EXPECT_EQ(difference(R"({"e":[{"t":"x"}]})", R"({"e":[]})"), "e[0]: {\"t\":\"x\"} / nothing");
  EXPECT_EQ(difference(R"({"a":true})", R"({"a":1})"), "a: true / 1");
  EXPECT_EQ(difference(R"({"ok":true})", R"({"error":"unknown_block"})"), "ok: true / error \"unknown_block\"");
}

// Any number of a golden script that is changed must be noticed, where it stands.
TEST(Expectations, EveryChangedAnswerIsNoticed) {
  const std::string folder = std::string(KVPOOL_TEST_DATA) + "/golden/scenarios/";
  std::size_t changed = 0;
  for (const char* name : {"01-seed-six-blocks.jsonl", "41-events-stream.jsonl", "44-window-skip.jsonl"}) {
    std::string text = testing_support::read_file(folder + name);
    std::uint64_t line = 1;
    for (std::size_t i = 0; i < text.size(); ++i) {
      line += text[i] == '\n' ? 1U : 0U;
      const std::size_t line_start = text.rfind('\n', i) + 1;
      const bool in_expect =
          text.rfind("\"expect\":", i) != std::string::npos && text.rfind("\"expect\":", i) > line_start;
      const bool digit_after_bracket =
          i + 1 < text.size() && text[i] == '[' && text[i + 1] >= '1' && text[i + 1] <= '8';
      if (!in_expect || !digit_after_bracket) {
        continue;
      }
      std::string wrong = text;
      wrong[i + 1] = '9';
      const ScriptResult result = run(wrong);
      EXPECT_EQ(result.exit_status, 1);
      EXPECT_EQ(result.message.find("script:" + std::to_string(line) + ": "), 0U) << result.message;
      ++changed;
    }
  }
  EXPECT_GT(changed, 30U);
}

TEST(LaneScripts, ErrorsInLanesAreReportedWithTheirLine) {
  std::string text = kConfig + "\n";
  for (int i = 0; i < 40; ++i) {
    text += R"({"op":"usage","lane":)" + std::to_string(i % 4) + "}\n";
  }
  const ScriptResult fine = run(text + "{\"op\":\"barrier\"}\n", 4);
  EXPECT_EQ(fine.exit_status, 0);
  EXPECT_EQ(fine.ops, 41U);
  const ScriptResult wrong = run(text + R"({"op":"usage","lane":1,"expect":{}})" + "\n", 4);
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_EQ(wrong.message.find("script:42: num_free_blocks: expected nothing, got 8"), 0U) << wrong.message;
  const ScriptResult bad = run(text + R"({"op":"usage","lane":1,"x":1})" + "\n", 4);
  EXPECT_EQ(bad.exit_status, 2);
  EXPECT_EQ(bad.message, "script:42: x: is an unknown key, got 1");
}

TEST(LaneScripts, OneRequestInTwoLanesIsSafe) {
  std::string text = kConfig + "\n" + R"({"op":"new_request","id":"A","tokens":[[0,3]]})" + "\n";
  for (int i = 0; i < 200; ++i) {
    const std::string lane = ",\"lane\":" + std::to_string(i % 3) + "}\n";
    text += R"({"op":"allocate_slots","id":"A","num_new_tokens":3)" + lane;
    text += R"({"op":"free","id":"A")" + lane;
  }
  EXPECT_EQ(run(text + R"({"op":"finish","id":"A"})" + "\n" +
                    R"({"op":"usage","expect":{"num_free_blocks":8,"usage":0.0}})" + "\n",
                3)
                .exit_status,
            0);
}

}  // namespace
}  // namespace kvpool::tools
