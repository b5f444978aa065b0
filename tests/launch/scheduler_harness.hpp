// A manager of known size, requests of known lengths, and a step loop that checks what every step must keep.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "kvpool/manager/kv_cache_manager.hpp"
#include "tools/scheduler/continuous_scheduler.hpp"

namespace kvpool::scheduler {

/// Prompts: the first `shared` tokens are the same for all requests of one family, the rest are unique.
class FakeTokens final : public TokenSource {
 public:
  struct Prompt {
    std::int64_t length = 0;
    std::int64_t shared = 0;
    std::int64_t family = 0;
  };
  std::map<std::int64_t, Prompt> prompts;

  [[nodiscard]] std::vector<TokenId> prompt(std::int64_t index) const override {
    const Prompt& prompt = prompts.at(index);
    std::vector<TokenId> tokens;
    for (std::int64_t i = 0; i < prompt.length; ++i) {
      tokens.push_back(i < prompt.shared ? prompt.family * 100'000 + i : unique(index, i));
    }
    return tokens;
  }
  [[nodiscard]] TokenId output(std::int64_t index, std::int64_t position) const override {
    return unique(index, prompts.at(index).length + position);
  }

 private:
  static TokenId unique(std::int64_t index, std::int64_t position) {
    return 1'000'000'000 + index * 1'000'000 + position;
  }
};

struct Rig {
  static constexpr std::int64_t kBlockSize = 4;

  std::unique_ptr<KVCacheManager> manager;
  std::shared_ptr<const RequestHashing> hashing;
  FakeTokens tokens;
  std::vector<WorkItem> items;

  /// `usable`: blocks beside the placeholder.
  explicit Rig(std::int64_t usable) {
    KVCacheConfig config;
    config.num_blocks = usable + 1;
    FullAttentionSpec spec;
    spec.block_size = kBlockSize;
    config.groups = {{{"layer.0"}, spec, false}};
    KVCacheManagerOptions options;
    options.max_model_len = 1 << 20;
    options.scheduler_block_size = kBlockSize;
    options.hash_block_size = kBlockSize;
    auto created = KVCacheManager::create(config, options);
    EXPECT_TRUE(created.ok()) << (created.ok() ? "" : created.error().message);
    manager = *std::move(created);
    hashing =
        std::make_shared<const RequestHashing>(RequestHashing{BlockHasher(HashAlgorithm::xxhash, "0"), kBlockSize});
  }

  void add(std::int64_t prompt, std::int64_t output, std::int64_t shared = 0, std::int64_t session = -1,
           std::int64_t family = 0) {
    const auto index = static_cast<std::int64_t>(items.size());
    tokens.prompts[index] = {prompt, shared, family};
    items.push_back({index, session, prompt, output});
  }
};

/// What a run did, seen from outside.
struct RunLog {
  std::vector<std::vector<std::int64_t>> steps;  ///< requests per step, in batch order
  std::vector<std::int64_t> finished;
  std::map<std::int64_t, std::vector<TokenId>> fed;  ///< tokens by position, last writer wins
  std::map<std::int64_t, std::int64_t> outputs;      ///< rows that produced outputs
  std::map<std::int64_t, std::int64_t> first_step;
  std::int64_t max_step_tokens = 0;
  std::int64_t removed_unfinished = 0;
};

/// Runs to the end. Checks in every step: no block of one request is written by another, tables cover the tokens,
/// tokens continue where the request's cache ends, the budget holds.
inline RunLog run_to_end(ContinuousScheduler& scheduler, std::int64_t token_budget) {
  RunLog log;
  std::set<std::int64_t> done;
  for (int step = 0; step < 100'000; ++step) {
    auto batch = scheduler.next_step();
    EXPECT_TRUE(batch.ok()) << (batch.ok() ? "" : batch.error().message);
    if (!batch.ok()) return log;
    for (const std::int64_t index : batch->finished) {
      log.finished.push_back(index);
      EXPECT_TRUE(done.insert(index).second) << "request " << index << " finished twice";
    }
    for (const std::int64_t index : batch->removed) log.removed_unfinished += done.contains(index) ? 0 : 1;
    if (batch->sequences.empty()) return log;
    std::map<BlockId, std::int64_t> written;
    std::set<std::int64_t> seen;
    std::int64_t tokens = 0;
    log.steps.emplace_back();
    for (const ScheduledSequence& sequence : batch->sequences) {
      EXPECT_TRUE(seen.insert(sequence.index).second) << "request " << sequence.index << " twice in a step";
      EXPECT_FALSE(sequence.tokens.empty());
      log.steps.back().push_back(sequence.index);
      log.first_step.try_emplace(sequence.index, step);
      tokens += static_cast<std::int64_t>(sequence.tokens.size());
      std::vector<TokenId>& fed = log.fed[sequence.index];
      const auto end = static_cast<std::size_t>(sequence.num_computed) + sequence.tokens.size();
      EXPECT_GE(sequence.tables[0].size() * Rig::kBlockSize, end);
      if (fed.size() < end) fed.resize(end, -1);
      for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
        const std::size_t position = static_cast<std::size_t>(sequence.num_computed) + i;
        fed[position] = sequence.tokens[i];
        const BlockId block = sequence.tables[0][position / Rig::kBlockSize];
        EXPECT_NE(block, kNullBlock);
        const auto [entry, fresh] = written.try_emplace(block, sequence.index);
        EXPECT_TRUE(fresh || entry->second == sequence.index) << "two requests write block " << block.value();
      }
      log.outputs[sequence.index] += sequence.produces_output ? 1 : 0;
    }
    log.max_step_tokens = std::max(log.max_step_tokens, tokens);
    EXPECT_LE(tokens, token_budget);
  }
  ADD_FAILURE() << "no end after 100000 steps";
  return log;
}

/// Every request that was not refused got all its outputs, and was fed its own tokens where they were computed.
inline void expect_complete(const Rig& rig, const RunLog& log, const std::set<std::int64_t>& refused = {}) {
  EXPECT_EQ(log.finished.size() + refused.size(), rig.items.size());
  for (const WorkItem& item : rig.items) {
    if (refused.contains(item.index)) continue;
    EXPECT_EQ(log.outputs.at(item.index), item.output_tokens) << "request " << item.index;
    std::vector<TokenId> expected = rig.tokens.prompt(item.index);
    for (std::int64_t i = 0; i + 1 < item.output_tokens; ++i) expected.push_back(rig.tokens.output(item.index, i));
    const std::vector<TokenId>& fed = log.fed.at(item.index);
    ASSERT_EQ(fed.size(), expected.size()) << "request " << item.index;
    for (std::size_t i = 0; i < fed.size(); ++i) {
      if (fed[i] == -1) continue;
      EXPECT_EQ(fed[i], expected[i]) << "request " << item.index << " position " << i;
    }
  }
}

}  // namespace kvpool::scheduler
