// Every golden op script, found by listing the folders: the answers must be those written in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tools/exec/script_runner.hpp"

namespace kvpool::tools {
namespace {

constexpr std::size_t kBatch = 10;

std::vector<std::string> scripts_in(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(KVPOOL_TEST_DATA) + "/golden/" + folder)) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<std::vector<std::string>> batches(const std::vector<std::string>& paths) {
  std::vector<std::vector<std::string>> result;
  for (std::size_t i = 0; i < paths.size(); i += kBatch) {
    const auto begin = paths.begin() + static_cast<std::ptrdiff_t>(i);
    result.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(std::min(kBatch, paths.size() - i)));
  }
  return result;
}

void expect_all_answers_match(const std::string& path, unsigned threads) {
  InputFile script(path);
  ScriptOptions options;
  options.check = true;
  options.threads = threads;
  const ScriptResult result = run_script(script, options);
  EXPECT_EQ(result.exit_status, 0) << result.message;
  EXPECT_EQ(result.mismatches, 0U);
  EXPECT_GT(result.checked, 0U) << path << " expects nothing";
}

class Scenario : public testing::TestWithParam<std::string> {};
TEST_P(Scenario, AnswersMatch) { expect_all_answers_match(GetParam(), 1); }

class RandomScripts : public testing::TestWithParam<std::vector<std::string>> {};
TEST_P(RandomScripts, AnswersMatch) {
  for (const std::string& path : GetParam()) {
    expect_all_answers_match(path, 1);
  }
}

class Lanes : public testing::TestWithParam<unsigned> {};
TEST_P(Lanes, ScriptWithLanesMatchesOnThreads) {
  for (const std::string& path : scripts_in("scenarios")) {
    if (path.find("lanes") != std::string::npos) {
      expect_all_answers_match(path, GetParam());
    }
  }
}

// Scripts without lanes must not notice how many threads there are.
TEST_P(Lanes, ScriptsWithoutLanesMatchOnThreads) {
  const auto paths = scripts_in("scenarios");
  for (std::size_t i = 0; i < paths.size(); i += kBatch) {
    expect_all_answers_match(paths[i], GetParam());
  }
}

std::string stem(const std::string& path) {
  std::string name = std::filesystem::path(path).filename().string();
  name = name.substr(0, name.find('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Golden, Scenario, testing::ValuesIn(scripts_in("scenarios")),
                         [](const auto& tested) { return stem(tested.param); });
INSTANTIATE_TEST_SUITE_P(Golden, RandomScripts, testing::ValuesIn(batches(scripts_in("random"))),
                         [](const auto& tested) { return "from_" + stem(tested.param.front()); });
INSTANTIATE_TEST_SUITE_P(Golden, Lanes, testing::Values(2U, 4U, 8U),
                         [](const auto& tested) { return std::to_string(tested.param) + "_threads"; });

}  // namespace
}  // namespace kvpool::tools
