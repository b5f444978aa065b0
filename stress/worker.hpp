// One stress thread: its randomness, the requests it keeps alive, and what it has done.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <random>
#include <string_view>
#include <vector>

#include "kvpool/pool/block_pool.hpp"
#include "stress/late_device.hpp"
#include "stress/ledger.hpp"

namespace kvpool::stress {

enum class Operation : std::uint8_t { allocate, pin, publish, release, look_up, evict };
inline constexpr std::size_t kOperations = 6;
inline constexpr std::array<std::string_view, kOperations> kOperationNames = {"allocate", "pin",     "publish",
                                                                              "release",  "look_up", "evict"};

/// Completed operations per kind; read by others while the worker runs.
struct alignas(64) Progress {
  std::array<std::atomic<std::uint64_t>, kOperations> completed{};
  std::atomic<bool> inside_pool{false};  ///< a call into the pool is in progress
};

struct HeldBlock {
  BlockId block;
  std::uint64_t content;
};

/// Blocks that live and die together, in table order.
using Holding = std::vector<HeldBlock>;

class Worker {
 public:
  Worker(BlockPool& pool, Ledger& ledger, Verdict& verdict, Progress& progress, LateDevice* device,
         std::uint32_t number, std::uint64_t seed)
      : pool_(&pool),
        ledger_(&ledger),
        verdict_(&verdict),
        progress_(&progress),
        device_(device),
        number_(number),
        random_(seed * 1000003 + number) {}

  void mixed_step();
  void prefix_step();
  void pressure_step();
  void fence_step();
  void release_everything();

 private:
  [[nodiscard]] std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  void count(Operation operation, std::uint64_t blocks = 1) {
    progress_->completed[static_cast<std::size_t>(operation)].fetch_add(blocks, std::memory_order_relaxed);
  }
  template <class Call>
  auto inside(Call call);

  [[nodiscard]] bool allocate(std::uint32_t count, Holding& out);
  void publish(HeldBlock& held, std::uint64_t name);
  [[nodiscard]] bool pin(std::uint64_t name, Holding& out);
  std::size_t pin_chain(std::uint64_t chain, std::size_t length, Holding& out);
  void release(Holding& holding);
  void release_oldest();

  BlockPool* pool_;
  Ledger* ledger_;
  Verdict* verdict_;
  Progress* progress_;
  LateDevice* device_;
  std::uint32_t number_;
  std::uint64_t next_content_ = 1;
  std::mt19937_64 random_;
  std::deque<Holding> alive_;
};

/// Key of a named content; names are small numbers shared by all workers.
[[nodiscard]] BlockKey key_of(std::uint64_t name);

}  // namespace kvpool::stress
