// Whole runs in one process: a small model, a small trace, ranks as threads.
#pragma once

#include <gtest/gtest.h>

#include <unistd.h>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kvpool/multigpu/thread_communicator.hpp"
#include "tools/launch/rank_main.hpp"

namespace kvpool::launch {

/// Files that live as long as the fixture.
class ServeTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("kvpool-launch-" + std::to_string(getpid()) + "-" +
                                                        testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  [[nodiscard]] std::string small_model(const std::string& more = "") const {
    return write("model.json", R"({"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 8,
                                   "num_key_value_heads": 2, "head_dim": 16)" +
                                   more + "}");
  }

  /// Prompts of a few families that share their beginnings, 16 tokens an id, sessions now and then.
  [[nodiscard]] std::string family_trace(int requests) const {
    std::string text = "# kvtrace 1\n# kind ids\n# title families\n# block_size 16\n";
    std::mt19937 random(17);
    int next_id = 1000;
    for (int i = 0; i < requests; ++i) {
      const int family = static_cast<int>(random() % 3);
      const int shared = static_cast<int>(random() % 6);
      const int own = static_cast<int>(1 + random() % 8);
      const int tail = static_cast<int>(random() % 16);
      const int tokens = (shared + own) * 16 + tail;
      const int session = i % 4 == 0 ? family : -1;
      text += std::to_string(i * 10) + " " + std::to_string(session) + " " + std::to_string(tokens) + " " +
              std::to_string(1 + random() % 12) + " " + (shared > 0 ? "2" : "1");
      if (shared > 0) text += " " + std::to_string(family * 100) + " " + std::to_string(shared);
      text += " " + std::to_string(next_id) + " " + std::to_string(own) + "\n";
      next_id += own;
    }
    return write("families.kvt", text);
  }

  [[nodiscard]] LaunchOptions small_options(int requests = 24) const {
    LaunchOptions options;
    options.trace = family_trace(requests);
    options.model = small_model();
    options.schedulers = 1;
    options.step_tokens = 64;
    options.max_running = 12;
    options.compute_threads = 1;  // ThreadSanitizer sees nothing of the thread library's synchronisation
    options.memory = 4 << 20;
    options.deadline = std::chrono::seconds(60);
    return options;
  }

 private:
  std::filesystem::path folder_;
};

inline ServeHooks quiet_hooks() {
  return {[](std::int64_t) {}, [] { return false; }, [](std::int64_t) {}};
}

inline std::vector<RankOutcome> run_ranks(const LaunchOptions& options, int ranks,
                                          const ServeHooks& hooks = quiet_hooks()) {
  auto communicators = make_thread_communicators(ranks);
  std::vector<RankOutcome> outcomes(static_cast<std::size_t>(ranks));
  const RankEnvironment environment{"threads", ranks};
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = run_rank(options, *communicators[rank], environment, hooks); });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

/// The report of a run in which no rank failed.
inline LaunchReport successful_run(const LaunchOptions& options, int ranks) {
  std::vector<RankOutcome> outcomes = run_ranks(options, ranks);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_FALSE(outcomes[rank].error) << "rank " << rank << ": " << outcomes[rank].error->message;
  }
  EXPECT_TRUE(outcomes[0].report);
  return outcomes[0].report ? *std::move(outcomes[0].report) : LaunchReport{};
}

}  // namespace kvpool::launch
