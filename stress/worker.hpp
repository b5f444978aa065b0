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

enum class Operation : std::uint8_t {
  allocate,
  touch,
  pin,
  pin_prefix,
  publish,
  publish_chain,
  release,
  unpublish,
  evict,
  move,
  look_up,
  find_prefix,
  advance_fence
};
inline constexpr std::size_t kOperations = 13;
inline constexpr std::array<std::string_view, kOperations> kOperationNames = {
    "allocate",  "touch", "pin",  "pin_prefix", "publish",     "publish_chain", "release",
    "unpublish", "evict", "move", "look_up",    "find_prefix", "advance_fence"};

/// Completed operations per kind; read by others while the worker runs.
struct alignas(64) Progress {
  std::array<std::atomic<std::uint64_t>, kOperations> completed{};
  std::atomic<bool> inside_pool{false};  ///< a call into the pool is in progress
};

struct HeldBlock {
  BlockId block;
  std::uint64_t content;
};

/// Blocks that live and die together, in table order. A block may stand in several, with a reference for each.
using Holding = std::vector<HeldBlock>;

/// What the workers of a run share.
struct Arena {
  BlockPool& pool;
  Ledger& ledger;
  Verdict& verdict;
  LateDevice& device;
};

/// How many releases wait for the device.
enum class Fencing : std::uint8_t { never, sometimes, always };

class Worker {
 public:
  Worker(const Arena& arena, Progress& progress, Fencing fencing, std::uint32_t number, std::uint64_t seed)
      : pool_(&arena.pool),
        ledger_(&arena.ledger),
        verdict_(&arena.verdict),
        device_(&arena.device),
        progress_(&progress),
        fencing_(fencing),
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
  void release(Holding& holding);
  void release_oldest();

  /// What an engine does with a whole chain: element i has the name chain * 64 + i.
  void pin_chain(std::uint64_t chain, std::size_t length, Holding& out);
  void publish_chain(std::uint64_t chain, std::size_t first, Holding& holding);
  void request(std::uint64_t chain, std::size_t length);

  void start_blank();
  /// A second holder of what a request has published, as where a request splits into several samples.
  void share_published();
  void evict_found();
  void take_content_back();
  void move_content();
  void run_device();

  BlockPool* pool_;
  Ledger* ledger_;
  Verdict* verdict_;
  LateDevice* device_;
  Progress* progress_;
  Fencing fencing_;
  std::uint32_t number_;
  std::uint64_t next_content_ = 1;
  std::mt19937_64 random_;
  std::deque<Holding> alive_;
};

/// Key of a named content; names are small numbers shared by all workers.
[[nodiscard]] BlockKey key_of(std::uint64_t name);

}  // namespace kvpool::stress
