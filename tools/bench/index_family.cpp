// kvpool's index beside oneTBB's concurrent map, one thread, 57,344 keys. The keys of a round are made before its
// clock starts: making one takes about as long as looking for one that is missing.
#include <tbb/concurrent_hash_map.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "block/key_words.hpp"
#include "kvpool/pool/block_pool_options.hpp"
#include "prefix/prefix_index.hpp"
#include "tools/bench/families.hpp"
#include "tools/bench/prefix_workload.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {
namespace {

constexpr std::uint32_t kKeys = 57'344;
constexpr std::uint32_t kBuckets = kPoolBlocks / 2;
constexpr std::uint32_t kRound = 4'096;  // operations between two looks at the clock
constexpr std::uint64_t kMissing = std::uint64_t{1} << 50U;
constexpr std::uint64_t kChurn = 50'000'000;

/// The index with the keys it points to, as the pool uses it: on huge pages where there are any, and every match is
/// compared with the whole key.
class IndexWithKeys {
 public:
  IndexWithKeys() : index_(kBuckets, BlockPoolOptions{}.huge_pages), keys_(kKeys), positions_(kKeys) {}

  void insert(std::uint32_t value, const BlockKey& key) {
    keys_[value] = KeyWords(key);
    positions_[value] = index_.insert(keys_[value].mixed(), value);
  }
  void erase(std::uint32_t value) { index_.erase(keys_[value].mixed(), positions_[value]); }
  [[nodiscard]] bool contains(const BlockKey& key) const {
    const std::uint64_t hash = KeyWords(key).mixed();
    return index_.for_each_match(hash, [&](std::uint32_t value) { return keys_[value] == KeyWords(key); });
  }

 private:
  PrefixIndex<std::atomic> index_;
  std::vector<KeyWords> keys_;
  std::vector<std::uint32_t> positions_;
};

/// The map has room for twice the keys from the start, so that it never grows in a measured round.
class TbbMap {
 public:
  TbbMap() : map_(2 * kKeys), keys_(kKeys) {}

  void insert(std::uint32_t value, const BlockKey& key) {
    keys_[value] = key;
    map_.insert({key, value});
  }
  void erase(std::uint32_t value) { map_.erase(keys_[value]); }
  [[nodiscard]] bool contains(const BlockKey& key) const {
    Map::const_accessor entry;
    return map_.find(entry, key);
  }

 private:
  struct HashCompare {
    // The first eight bytes of the digest, which are uniform here: the cheapest good hash there is. kvpool's own side
    // mixes all of the key.
    static std::size_t hash(const BlockKey& key) { return std::hash<BlockKey>{}(key); }
    static bool equal(const BlockKey& a, const BlockKey& b) { return a == b; }
  };
  using Map = tbb::concurrent_hash_map<BlockKey, std::uint32_t, HashCompare>;
  Map map_;
  std::vector<BlockKey> keys_;
};

BlockKey key_of(std::uint64_t number) { return {numbered_hash(number), GroupId{0}}; }

/// A map with the keys `first` .. `first` + kKeys - 1; the oldest is replaced by the next number, again and again.
template <class Map>
class Churn {
 public:
  Churn() {
    for (std::uint32_t i = 0; i < kKeys; ++i) {
      map_.insert(i, key_of(i));
    }
  }
  /// Makes the keys of the next round: `offset` 0 for keys that are there, in an order without a pattern.
  void prepare_look_up(std::uint64_t offset) {
    for (BlockKey& key : round_) {
      key = key_of(first_ + offset + ((looked_up_++ * 7'919) % kKeys));
    }
  }
  void prepare_replacement() {
    for (std::uint32_t i = 0; i < kRound; ++i) {
      round_[i] = key_of(first_ + kKeys + i);
    }
  }
  void replace() {
    for (const BlockKey& key : round_) {
      const auto value = static_cast<std::uint32_t>(first_ % kKeys);
      map_.erase(value);
      map_.insert(value, key);
      ++first_;
    }
  }
  [[nodiscard]] std::uint64_t look_up() const {
    std::uint64_t found = 0;
    for (const BlockKey& key : round_) {
      found += map_.contains(key) ? 1U : 0U;
    }
    return found;
  }

 private:
  Map map_;
  std::vector<BlockKey> round_ = std::vector<BlockKey>(kRound);
  std::uint64_t first_ = 0;
  std::uint64_t looked_up_ = 0;
};

/// Rounds until they have taken `seconds` together; `prepare` before each is not counted.
template <class Prepare, class Round>
Sample timed_rounds(double seconds, Prepare&& prepare, Round&& round) {
  using Clock = std::chrono::steady_clock;
  std::chrono::duration<double> passed{};
  double count = 0;
  do {
    prepare();
    const auto start = Clock::now();
    round();
    passed += Clock::now() - start;
    count += kRound;
  } while (passed.count() < seconds);
  Sample sample;
  sample.ns_per_block = passed.count() * 1e9 / count;
  sample.ops_per_second = count / passed.count();
  return sample;
}

/// Look-ups of keys `offset` away from those that are there. `found`: how many were found, of all.
template <class Map>
Sample timed_look_ups(Churn<Map>& churn, double seconds, std::uint64_t offset) {
  double found = 0;
  double asked = 0;
  Sample sample = timed_rounds(
      seconds, [&] { churn.prepare_look_up(offset); },
      [&] {
        found += static_cast<double>(churn.look_up());
        asked += kRound;
      });
  sample.more["found"] = found / asked;
  return sample;
}

template <class Map>
Contender contender(std::string pool, double seconds) {
  auto churn = std::make_shared<Churn<Map>>();
  return {{"index_replace", "index_miss", "index_hit"}, std::move(pool), 1, [churn, seconds] {
            std::vector<Sample> samples;
            samples.push_back(timed_rounds(
                seconds, [&] { churn->prepare_replacement(); }, [&] { churn->replace(); }));
            samples.push_back(timed_look_ups(*churn, seconds, kMissing));
            samples.push_back(timed_look_ups(*churn, seconds, 0));
            return samples;
          }};
}

/// Look-ups of missing keys in a new index and in one that has replaced its keys many times.
void bench_aging(const BenchPlan& plan) {
  const auto fresh = std::make_shared<Churn<IndexWithKeys>>();
  const auto old = std::make_shared<Churn<IndexWithKeys>>();
  const std::uint64_t replacements = plan.smoke ? kKeys : kChurn;
  for (std::uint64_t done = 0; done < replacements && !interrupt_requested(); done += kRound) {
    old->prepare_replacement();
    old->replace();
  }
  const auto miss = [seconds = plan.seconds](const std::shared_ptr<Churn<IndexWithKeys>>& churn) {
    return [churn, seconds] { return std::vector<Sample>{timed_look_ups(*churn, seconds, kMissing)}; };
  };
  const std::vector<Contender> contenders{{{"index_miss_aged"}, "fresh", 1, miss(fresh)},
                                          {{"index_miss_aged"}, "aged", 1, miss(old)}};
  for (BenchRow& row : interleave(plan, contenders)) {
    plan.report->add(std::move(row));
  }
}

}  // namespace

void bench_index(const BenchPlan& plan) {
  if (plan.wants("index_replace") || plan.wants("index_miss") || plan.wants("index_hit")) {
    report_against_kvpool(plan, interleave(plan, {contender<IndexWithKeys>("kvpool", plan.seconds),
                                                  contender<TbbMap>("tbb", plan.seconds)}));
  }
  if (plan.wants("index_miss_aged")) {
    bench_aging(plan);
  }
}

}  // namespace kvpool::tools
