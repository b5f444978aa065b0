// Several scheduler threads on one manager; each owns its requests.
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "kvpool/foundation/contract.hpp"
#include "kvpool/manager/residency_metrics.hpp"
#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {
namespace {

constexpr int kThreads = 4;

/// Stands for the KV of a block: the hash of the prefix that was written into it.
class FakeMemory {
 public:
  explicit FakeMemory(std::size_t blocks) : words_(blocks) {}
  void write(BlockId block, std::uint64_t value) { words_[block.value()].store(value, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t read(BlockId block) const {
    return words_[block.value()].load(std::memory_order_relaxed);
  }

 private:
  std::vector<std::atomic<std::uint64_t>> words_;
};

struct Counts {
  std::atomic<std::int64_t> finished{0};
  std::atomic<std::int64_t> hit_blocks{0};
  std::atomic<std::int64_t> wrong_content{0};
  std::atomic<std::int64_t> lost{0};
};

std::uint64_t content_of(const Request& request, std::size_t block) { return request.block_hashes()[block].event_id(); }

/// One request from look-up to free. Blocks are published only after they were written.
void serve(Engine& engine, Running& running, FakeMemory& memory, Counts& counts) {
  AllocateSlots arguments;
  arguments.delay_cache_blocks = true;
  std::int64_t computed = 0;
  for (int attempt = 0;; ++attempt) {
    if (attempt > 10000) return;
    const PrefixHit hit = engine->get_computed_blocks(running.request);
    arguments.num_new_computed_tokens = hit.num_computed_tokens;
    arguments.new_computed_blocks = &hit.blocks;
    arguments.num_new_tokens = running.request.num_tokens() - hit.num_computed_tokens;
    const auto slots = engine->allocate_slots(running.request, running.sequence, arguments);
    if (slots->outcome == AllocateOutcome::allocated) {
      computed = hit.num_computed_tokens;
      break;
    }
    if (slots->outcome == AllocateOutcome::prefix_lost) counts.lost.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::yield();
  }
  for (std::uint32_t g = 0; g < engine->config().groups.size(); ++g) {
    const std::span<const BlockId> table = engine->block_table(running.sequence, GroupId{g});
    for (std::size_t i = 0; i < running.request.block_hashes().size(); ++i) {
      if (table[i] == kNullBlock) continue;
      const bool is_hit = static_cast<std::int64_t>(i) < computed / 4;
      if (is_hit) {
        counts.hit_blocks.fetch_add(1, std::memory_order_relaxed);
        if (memory.read(table[i]) != content_of(running.request, i)) counts.wrong_content.fetch_add(1);
      } else {
        memory.write(table[i], content_of(running.request, i));
      }
    }
  }
  running.request.num_computed_tokens = running.request.num_tokens();
  running.request.status = RequestStatus::running;
  engine->cache_blocks(running.request, running.sequence, running.request.num_tokens());
  for (TokenId token = 0; token < 3; ++token) {
    running.request.append_tokens(std::span(&token, 1));
    AllocateSlots decode;
    decode.num_new_tokens = 1;
    decode.delay_cache_blocks = true;
    if (engine->allocate_slots(running.request, running.sequence, decode)->outcome != AllocateOutcome::allocated) break;
    ++running.request.num_computed_tokens;
  }
  engine->free(running.sequence);
  counts.finished.fetch_add(1, std::memory_order_relaxed);
}

/// Copies that a consumer of the event stream knows of each key.
std::map<BlockKey, std::int64_t> replayed_events(Engine& engine) {
  std::map<BlockKey, std::int64_t> announced;
  for (const KVEvent& event : engine->take_events()) {
    if (const auto* stored = std::get_if<BlockStoredEvent>(&event)) {
      for (const BlockHash& hash : stored->block_hashes) ++announced[{hash, GroupId{*stored->group_idx}}];
    } else if (const auto* removed = std::get_if<BlockRemovedEvent>(&event)) {
      for (const BlockHash& hash : removed->block_hashes) {
        const auto known = announced.find({hash, GroupId{*removed->group_idx}});
        if (known == announced.end()) {
          ADD_FAILURE() << "a removal before its store";
        } else if (--known->second == 0) {
          announced.erase(known);
        }
      }
    }
  }
  return announced;
}

class ConcurrentManager : public testing::TestWithParam<int> {};

TEST_P(ConcurrentManager, RequestsOfDifferentThreadsDoNotDisturbEachOther) {
  std::vector<KVCacheGroup> groups{full(4)};
  if (GetParam() == 1) groups = {full(4), window(4, 8)};
  EngineOptions options{.num_blocks = 100, .groups = groups};
  options.manager.enable_kv_cache_events = true;
  Engine engine(options);
  FakeMemory memory(100);
  Counts counts;
  // Requests are made up front: the engine's counter of ids is not for several threads.
  constexpr int kRequests = 150;
  std::array<std::vector<Running>, kThreads> work;
  std::mt19937 random(1);
  for (std::vector<Running>& list : work) {
    for (int i = 0; i < kRequests; ++i) {
      const TokenId tree = static_cast<TokenId>(random() % 6);
      const auto shared = 4 + static_cast<std::int64_t>(random() % 24);
      list.push_back(engine.start(tokens(1000 * tree, shared) +
                                  tokens(50000 + 100 * i, 1 + static_cast<std::int64_t>(random() % 9))));
    }
  }
  {
    std::vector<std::thread> threads;
    for (std::vector<Running>& list : work) {
      threads.emplace_back([&] {
        for (Running& running : list) serve(engine, running, memory, counts);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(counts.finished.load(), kThreads * kRequests);
  EXPECT_EQ(counts.wrong_content.load(), 0);
  EXPECT_GT(counts.hit_blocks.load(), 0);
  EXPECT_EQ(engine.free_blocks(), 99U);
  engine.expect_sound();
  EXPECT_EQ(replayed_events(engine).size(), engine.pool().num_cached_keys());
}

INSTANTIATE_TEST_SUITE_P(Models, ConcurrentManager, testing::Values(0, 1),
                         [](const auto& param) { return std::string(param.param == 0 ? "full" : "hybrid"); });

// Where the second copy of a content gets no key, each key is announced once, whoever was faster.
TEST(ConcurrentDuplicates, SkippedCopiesLeaveNothingInTheEventStream) {
  EngineOptions options{.num_blocks = 4 * kThreads + 1, .groups = {full(4)}};
  options.manager.enable_kv_cache_events = true;
  options.manager.duplicates = DuplicatePolicy::skip;
  Engine engine(options);
  for (TokenId round = 0; round < 200; ++round) {
    std::vector<Running> team;
    for (int t = 0; t < kThreads; ++t) team.push_back(engine.start(tokens(100 * round, 16)));
    std::atomic<int> ready{0};
    std::vector<std::thread> threads;
    for (Running& running : team) {
      threads.emplace_back([&engine, &running, &ready] {
        ready.fetch_add(1, std::memory_order_relaxed);
        while (ready.load(std::memory_order_relaxed) < kThreads) std::this_thread::yield();
        engine.step(running, 16);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Running& running : team) engine->free(running.sequence);
    const std::map<BlockKey, std::int64_t> announced = replayed_events(engine);
    for (const auto& [key, copies] : announced) ASSERT_EQ(copies, 1) << "round " << round;
    ASSERT_EQ(announced.size(), engine.pool().num_cached_keys());
    ASSERT_TRUE(engine->reset_prefix_cache());
    ASSERT_EQ(engine->take_events().size(), 1U);
  }
}

TEST(ConcurrentByRequest, TableServesDifferentIdsAtTheSameTime) {
  EngineOptions options{.num_blocks = 400, .groups = {full(4), mamba(4, MambaCacheMode::align)}};
  options.manager.log_stats = true;
  Engine engine(options);
  std::array<std::vector<Request>, kThreads> work;
  for (std::size_t t = 0; t < work.size(); ++t) {
    for (TokenId i = 0; i < 60; ++i) {
      work[t].push_back(engine.request(tokens(1000 * static_cast<TokenId>(t) + i, 12)));
    }
  }
  std::vector<std::thread> threads;
  for (std::vector<Request>& list : work) {
    threads.emplace_back([&] {
      for (Request& request : list) {
        AllocateSlots arguments;
        arguments.num_new_tokens = request.num_tokens();
        EXPECT_EQ(engine->allocate_slots(request, arguments)->outcome, AllocateOutcome::allocated);
        engine->record_prefix_cache_stats(request, 0);
        EXPECT_EQ(engine->get_block_ids(request.id())[0].size(), 3U);
        engine->new_step_starts();
        engine->free(request);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(engine.free_blocks(), 399U);
  EXPECT_EQ(engine->make_prefix_cache_stats()->requests, kThreads * 60);
  engine.expect_sound();
}

std::atomic<int> g_wrong_thread{0};

// A call from inside another one is what a second thread would be; the clock is a way in.
TEST(WrongThread, ASecondCallInsideASequenceIsRefusedAndReported) {
  std::function<void()> intrude;
  const auto metrics = std::make_shared<ResidencyMetrics>(1.0, [&intrude] {
    if (intrude) intrude();
    return std::chrono::nanoseconds(0);
  });
  EngineOptions options{.num_blocks = 20, .groups = {full(4)}};
  options.manager.residency_metrics = metrics;
  Engine engine(options);
  Running running = engine.start(tokens(0, 9));
  g_wrong_thread = 0;
  const ContractHandler former = set_contract_handler([](const ContractViolation& violation) {
    if (violation.breach == ContractBreach::wrong_thread) g_wrong_thread.fetch_add(1);
  });
  bool refused = false;
  bool inside = false;
  intrude = [&] {
    if (std::exchange(inside, true)) return;
    AllocateSlots arguments;
    arguments.num_new_tokens = 1;
    std::thread other([&] {
      refused = !engine->allocate_slots(running.request, running.sequence, arguments);
      engine->free(running.sequence);
    });
    other.join();
  };
  engine.prefill(running);
  set_contract_handler(former);
  EXPECT_TRUE(refused);
  EXPECT_EQ(g_wrong_thread.load(), 2);
  EXPECT_EQ(engine.table(running).size(), 3U) << "the first call went on undisturbed";
}

}  // namespace
}  // namespace kvpool::test
