#include "kvpool/manager/residency_metrics.hpp"

#include <fmt/format.h>
#include <tbb/concurrent_hash_map.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <utility>

#include "manager/push_list.hpp"

namespace kvpool {
namespace {

constexpr std::size_t kMaxAccesses = 4;

struct Life {
  std::chrono::nanoseconds birth{};
  std::chrono::nanoseconds last{};
  std::array<std::chrono::nanoseconds, kMaxAccesses> accesses{};  ///< the newest ones, oldest first
  std::size_t num_accesses = 0;
};

double seconds(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

/// Spreads consecutive numbers over all 64-bit values.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

struct ResidencyMetrics::Impl {
  using Table = tbb::concurrent_hash_map<std::uint32_t, Life, tbb::tbb_hash_compare<std::uint32_t>,
                                         std::allocator<std::pair<const std::uint32_t, Life>>>;

  double rate = 0;
  Clock clock;
  std::uint64_t seed = 0;
  std::atomic<std::uint64_t> draws{0};
  std::vector<std::atomic<bool>> sampled;  ///< per block: a quick no for the others
  Table lives;
  PushList<ResidencyRecord> records;

  [[nodiscard]] bool is_sampled(BlockId block) const noexcept {
    return block.value() < sampled.size() && sampled[block.value()].load(std::memory_order_acquire);
  }

  [[nodiscard]] bool draw() noexcept {
    const std::uint64_t number = mix(seed ^ draws.fetch_add(1, std::memory_order_relaxed));
    return static_cast<double>(number >> 11) * 0x1p-53 < rate;
  }
};

ResidencyMetrics::ResidencyMetrics(double sample_rate, Clock clock, std::uint64_t seed)
    : impl_(std::make_unique<Impl>()) {
  if (!(sample_rate > 0.0 && sample_rate <= 1.0)) {
    throw std::invalid_argument(fmt::format("sample_rate: {} is not in (0, 1]", sample_rate));
  }
  impl_->rate = sample_rate;
  impl_->seed = seed;
  impl_->clock = clock ? std::move(clock) : [] { return std::chrono::steady_clock::now().time_since_epoch(); };
}

ResidencyMetrics::~ResidencyMetrics() = default;

void ResidencyMetrics::attach(std::uint32_t num_blocks) { impl_->sampled = std::vector<std::atomic<bool>>(num_blocks); }

double ResidencyMetrics::sample_rate() const noexcept { return impl_->rate; }

void ResidencyMetrics::on_block_allocated(BlockId block, bool recycled) {
  if (recycled) on_block_evicted(block);
  if (block.value() >= impl_->sampled.size() || !impl_->draw()) return;
  const std::chrono::nanoseconds now = impl_->clock();
  Impl::Table::accessor life;
  impl_->lives.insert(life, block.value());
  life->second = Life{now, now, {}, 0};
  impl_->sampled[block.value()].store(true, std::memory_order_release);
}

void ResidencyMetrics::on_block_accessed(BlockId block) {
  if (!impl_->is_sampled(block)) return;
  Impl::Table::accessor life;
  if (!impl_->lives.find(life, block.value())) return;
  Life& seen = life->second;
  seen.last = impl_->clock();
  if (seen.num_accesses == kMaxAccesses) {
    std::move(seen.accesses.begin() + 1, seen.accesses.end(), seen.accesses.begin());
    --seen.num_accesses;
  }
  seen.accesses[seen.num_accesses++] = seen.last;
}

void ResidencyMetrics::on_block_evicted(BlockId block) {
  if (!impl_->is_sampled(block)) return;
  ResidencyRecord record;
  {
    Impl::Table::accessor life;
    if (!impl_->lives.find(life, block.value())) return;
    const Life& ended = life->second;
    const std::chrono::nanoseconds now = impl_->clock();
    record.lifetime_seconds = seconds(now - ended.birth);
    record.idle_seconds = seconds(now - ended.last);
    for (std::size_t i = 1; i < ended.num_accesses; ++i) {
      record.reuse_gap_seconds.push_back(seconds(ended.accesses[i] - ended.accesses[i - 1]));
    }
    impl_->sampled[block.value()].store(false, std::memory_order_release);
    impl_->lives.erase(life);
  }
  impl_->records.push(std::move(record));
}

std::vector<ResidencyRecord> ResidencyMetrics::drain() { return impl_->records.drain(); }

void ResidencyMetrics::reset() {
  for (std::atomic<bool>& flag : impl_->sampled) flag.store(false, std::memory_order_release);
  impl_->lives.clear();
  (void)impl_->records.drain();
}

}  // namespace kvpool
