// How much memory one rank can give to its KV cache, and where every other byte went.
//
// Order of measurement: communicator first (its buffers appear with the first collective), then weights,
// then the profile run at the largest batch, then graph capture. Each stage is measured, nothing is
// extrapolated. KV bytes = min(utilisation x total - own peak, free now - safety), both after all stages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/memory_probe.hpp"

namespace kvpool {

/// What takes memory beside the KV cache. Called in this order by determine_available_memory().
class ProfiledWorkload {
 public:
  virtual ~ProfiledWorkload() = default;
  /// One collective of each kind and one multiplication: libraries allocate at their first use.
  [[nodiscard]] virtual Status warm_up() { return {}; }
  [[nodiscard]] virtual Status load_weights() { return {}; }
  /// The largest batch that will be scheduled; may run several times, also beside the KV pool.
  [[nodiscard]] virtual Status run() = 0;
  [[nodiscard]] virtual Status capture_graphs() { return {}; }
};

inline constexpr std::int64_t kDefaultHostKVBytes = std::int64_t{1} << 30U;

struct ProfileRequest {
  double utilization = 0.92;                      ///< share of the total this process may use, (0, 1]
  std::optional<std::int64_t> explicit_kv_bytes;  ///< honoured to the byte; the profile then only informs
  std::optional<std::int64_t> kv_cap_bytes;       ///< upper bound; empty: 1 GiB on the host, none on devices
  std::int64_t safety_bytes = 0;                  ///< kept free on the device whatever the utilisation says
  std::int64_t drift_tolerance_bytes = std::int64_t{32} << 20U;  ///< movement of free memory that is noise
  int max_attempts = 3;                                          ///< of the profile run while free memory moves
  std::optional<std::int64_t> graph_estimate_bytes;              ///< reported beside the measured figure, never used
};

/// Every byte of the device under a name. Empty: cannot be told apart here (then it is in `unknown`).
struct MemoryLedger {
  std::int64_t total = 0;
  std::string total_source;  ///< "runtime", "management library" or "host"
  std::int64_t utilization_limit = 0;
  std::optional<std::int64_t> weights;
  std::optional<std::int64_t> peak_activations;
  std::optional<std::int64_t> communicator;
  std::optional<std::int64_t> graphs;
  std::optional<std::int64_t> graphs_estimate;  ///< of the caller, for comparison; part of no sum
  std::optional<std::int64_t> context;          ///< context, modules, library work space
  std::optional<std::int64_t> other_processes;
  std::int64_t safety = 0;
  std::int64_t kv_pool = 0;
  /// In use and attributed to nobody; empty when even that cannot be told. 0 only when it was measured as 0.
  std::optional<std::int64_t> unknown;
  std::int64_t unused = 0;  ///< total less all the lines above: headroom beyond the limit
  bool estimated = false;   ///< some line rests on device-wide differences instead of own counters
  std::vector<std::string> notes;
};

struct MemoryProfile {
  std::int64_t available_bytes = 0;  ///< for the KV pool
  std::int64_t peak_bytes = 0;       ///< this process without KV, at its peak
  std::int64_t non_pool_bytes = 0;   ///< of that, outside the workload's allocator
  std::int64_t free_bytes = 0;       ///< at the last reading
  int attempts = 1;
  MemoryLedger ledger;
};

/// One line of a printed or saved ledger.
struct LedgerLine {
  std::string key;                    ///< "peak_activations"
  std::optional<std::int64_t> bytes;  ///< empty: unknown
};

/// All lines in order of printing, `total` first. Without the limit, which is no use of memory, total is
/// the sum of the known others.
[[nodiscard]] std::vector<LedgerLine> ledger_lines(const MemoryLedger& ledger);

/// A table, one line per entry, unknown ones as "unknown", then the notes.
[[nodiscard]] std::string format_ledger(const MemoryLedger& ledger);

/// Runs the workload's stages and attributes what they took. Errors: those of the workload;
/// invalid_argument (utilisation); environment (the probe knows no total or no free memory, or other processes kept
/// moving free memory: both readings are named); out_of_memory (less free at the start than the limit, or
/// nothing left for KV; the terms are named).
[[nodiscard]] Result<MemoryProfile> determine_available_memory(MemoryProbe& probe, ProfiledWorkload& workload,
                                                               const ProfileRequest& request);

/// Just before the pool is allocated, or re-created after sleeping: is there room now? The error names what is
/// missing. Unknown free memory counts as room.
[[nodiscard]] Status check_room(MemoryProbe& probe, std::int64_t bytes, std::int64_t safety_bytes);

/// After the pool of `kv_bytes` exists: repeats the profile run, which must succeed and stay within the
/// utilisation limit of `profile` (for an explicit KV size: within the device).
[[nodiscard]] Status verify_beside_pool(MemoryProbe& probe, ProfiledWorkload& workload, const MemoryProfile& profile,
                                        std::int64_t kv_bytes);

/// What determine_available_memory would find now, while a pool exists of which `resident_pool_bytes` take physical
/// memory: those can be had again when the pool is re-created. For a new agreement at a step boundary. `profile` and
/// `request` are those of the first measurement; unknown free memory changes nothing. Never negative.
[[nodiscard]] std::int64_t available_beside_pool(MemoryProbe& probe, const MemoryProfile& profile,
                                                 const ProfileRequest& request, std::int64_t resident_pool_bytes);

/// Size of the pool as asked for and as measured.
struct PoolSizeRequest {
  std::optional<std::int64_t> num_blocks;  ///< wins over bytes
  std::optional<std::int64_t> kv_bytes;    ///< wins over the profile
};

/// Blocks of bytes_per_block (> 0, over all layers of a rank) that a rank can hold: never more bytes than
/// asked for. Negative sizes give 0.
[[nodiscard]] std::int64_t blocks_that_fit(const PoolSizeRequest& request, std::int64_t profiled_bytes,
                                           std::int64_t bytes_per_block);

}  // namespace kvpool
