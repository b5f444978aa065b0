// kvpool's index beside oneTBB's concurrent map, one thread, 57,344 keys.
#include <tbb/concurrent_hash_map.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <vector>

#include "block/key_words.hpp"
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

/// The index with the keys it points to, as the pool uses it: every match is compared with the whole key.
class IndexWithKeys {
 public:
  IndexWithKeys() : index_(kBuckets), keys_(kKeys), positions_(kKeys) {}

  void insert(std::uint32_t value, const BlockKey& key) {
    keys_[value] = KeyWords(key);
    positions_[value] = index_.insert(keys_[value].mixed(), value).value_or(0);
  }
  void erase(std::uint32_t value) { index_.erase(keys_[value].mixed(), positions_[value]); }
  [[nodiscard]] bool contains(const BlockKey& key) const {
    const KeyWords words(key);
    bool found = false;
    index_.for_each_match(words.mixed(), [&](std::uint32_t value) { return found = keys_[value] == words; });
    return found;
  }

 private:
  PrefixIndex<std::atomic> index_;
  std::vector<KeyWords> keys_;
  std::vector<std::uint32_t> positions_;
};

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
  void replace(std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto value = static_cast<std::uint32_t>(first_ % kKeys);
      map_.erase(value);
      map_.insert(value, key_of(first_ + kKeys));
      ++first_;
    }
  }
  [[nodiscard]] std::uint64_t look_up(std::uint64_t count, std::uint64_t offset) const {
    std::uint64_t found = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
      found += map_.contains(key_of(first_ + offset + ((i * 7'919) % kKeys))) ? 1U : 0U;
    }
    return found;
  }

 private:
  Map map_;
  std::uint64_t first_ = 0;
};

template <class Round>
Sample timed_rounds(double seconds, Round&& round) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  std::chrono::duration<double> passed{};
  double count = 0;
  do {
    round();
    count += kRound;
    passed = Clock::now() - start;
  } while (passed.count() < seconds);
  Sample sample;
  sample.ns_per_block = passed.count() * 1e9 / count;
  sample.ops_per_second = count / passed.count();
  return sample;
}

template <class Map>
Contender contender(std::string pool, double seconds) {
  auto churn = std::make_shared<Churn<Map>>();
  return {{"index_replace", "index_miss", "index_hit"}, std::move(pool), 1, [churn, seconds] {
            std::uint64_t found = 0;
            std::vector<Sample> samples;
            samples.push_back(timed_rounds(seconds, [&] { churn->replace(kRound); }));
            samples.push_back(timed_rounds(seconds, [&] { found += churn->look_up(kRound, kMissing); }));
            samples[1].more["found"] = static_cast<double>(found);  // 0, and the loop cannot be left out
            found = 0;
            samples.push_back(timed_rounds(seconds, [&] { found += churn->look_up(kRound, 0); }));
            samples[2].more["found"] = static_cast<double>(found > 0 ? 1 : 0);
            return samples;
          }};
}

/// Look-ups of missing keys in a new index and in one that has replaced its keys many times.
void bench_aging(const BenchPlan& plan) {
  const auto fresh = std::make_shared<Churn<IndexWithKeys>>();
  const auto old = std::make_shared<Churn<IndexWithKeys>>();
  const std::uint64_t replacements = plan.smoke ? kKeys : kChurn;
  for (std::uint64_t done = 0; done < replacements && !interrupt_requested(); done += kRound) {
    old->replace(kRound);
  }
  const auto miss = [seconds = plan.seconds](const std::shared_ptr<Churn<IndexWithKeys>>& churn) {
    return [churn, seconds] {
      std::uint64_t found = 0;
      std::vector<Sample> samples{timed_rounds(seconds, [&] { found += churn->look_up(kRound, kMissing); })};
      samples[0].more["found"] = static_cast<double>(found);
      return samples;
    };
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
