// A small engine that runs random requests on a random configuration, and a model of what every block
// holds, written independently of the manager: content by tokens, references by tables, keys by events.
#pragma once

#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/manager/engine.hpp"

namespace kvpool::test {

class RandomEngine {
 public:
  explicit RandomEngine(unsigned seed);

  /// One random operation, then every invariant.
  void step();

  /// Ends everything and checks that nothing is left.
  void finish();

  [[nodiscard]] std::string description() const { return description_; }

 private:
  using Content = std::vector<TokenId>;  ///< all tokens up to the last one that the block stands for

  [[nodiscard]] std::int64_t pick(std::int64_t count) {
    return static_cast<std::int64_t>(random_() % static_cast<unsigned>(count));
  }
  [[nodiscard]] bool chance(int percent) { return pick(100) < percent; }
  static EngineOptions random_options(std::mt19937& random, std::string& description);

  void start_request();
  void advance(std::size_t index);
  void end_request(std::size_t index, bool preempt);
  void evict_some();

  [[nodiscard]] std::vector<TokenId> random_prompt();
  [[nodiscard]] std::int64_t chunk_end(const Running& running);
  [[nodiscard]] bool run(Running& running, std::int64_t count, AllocateSlots arguments);
  void check_hit(const Running& running, const PrefixHit& hit);
  void write(const Running& running, std::int64_t from, std::int64_t to);
  void copy_blocks();

  void check_references();
  void check_keys();
  void apply_events();

  std::mt19937 random_;
  std::string description_;
  Engine engine_;
  std::vector<Running> running_;
  std::vector<Running> preempted_;
  std::map<std::uint32_t, Content> content_;
  std::map<BlockKey, std::int64_t> announced_;
  std::int64_t align_block_ = 0;  ///< tokens; 0: no state group in mode "align"
  bool has_state_ = false;
};

}  // namespace kvpool::test
