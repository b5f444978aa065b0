// Parameters and outcome of one trace replay.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kvpool/foundation/error.hpp"
#include "kvpool/pool/block_pool_options.hpp"
#include "tools/cli/json_output.hpp"
#include "tools/replay/latency.hpp"

namespace kvpool::tools {

inline constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 28;

struct ReplayOptions {
  std::int64_t block_size = 16;   ///< tokens
  std::int64_t capacity = 10000;  ///< usable blocks, 1..kMaxCapacity
  std::int64_t window = 1;        ///< most live requests, per thread
  DuplicatePolicy duplicates = DuplicatePolicy::keep;
  bool hash_output = true;  ///< false: requests end with their prompt
  FreeOrder order = FreeOrder::split;
  unsigned threads = 1;
  std::optional<std::int64_t> first_requests;  ///< as asked for; the trace has been cut accordingly
};

/// Counters as the replay rules define them.
struct ReplayCounts {
  std::uint64_t requests = 0, admitted = 0, rejected = 0, forced_frees = 0;
  std::uint64_t input_tokens = 0, prompt_full_blocks = 0;
  std::uint64_t hit_blocks = 0, allocated_blocks = 0;
  std::uint64_t evictions = 0, inserts = 0, duplicate_inserts = 0;
  std::uint64_t peak_used_blocks = 0, final_cached_keys = 0;

  /// Adds the counters of another thread; the peak is the larger one.
  void merge(const ReplayCounts& other);
};

/// What happened to one request, in file order.
struct RequestOutcome {
  bool rejected = false;
  std::uint64_t hit_blocks = 0;
  std::uint64_t evictions = 0;
  std::int64_t blocks = 0;
};
using OutcomeSink = std::function<void(std::size_t index, const RequestOutcome& outcome)>;

struct ReplayResult {
  ReplayCounts counts;
  std::optional<std::uint64_t> digest;  ///< empty with several threads and after an interruption
  double seconds = 0.0;                 ///< reading the trace and verifying not included
  LatencySamples look_up, allocate, free;
  bool interrupted = false;
  Status invariants;  ///< verified at the end, always

  /// Pins, allocations, publications and releases.
  [[nodiscard]] std::uint64_t block_operations() const noexcept;
};

/// 64-bit FNV-1a over the words that the replay rules name.
class ReplayDigest {
 public:
  void add(const RequestOutcome& outcome) noexcept;
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  void add_word(std::uint32_t word) noexcept;
  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

/// The row of the expected-result files, then seconds, block_ops_per_second and latency_us.
[[nodiscard]] Json to_json(const std::string& trace, const ReplayOptions& options, const ReplayResult& result);

/// The same for people.
[[nodiscard]] std::string to_table(const std::string& trace, const ReplayOptions& options, const ReplayResult& result);

}  // namespace kvpool::tools
