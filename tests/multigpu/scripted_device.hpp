// A device made of numbers: what happens to its memory is written into a test, a probe reports it.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "kvpool/multigpu/memory_probe.hpp"
#include "kvpool/multigpu/memory_profile.hpp"

namespace kvpool::testing {

inline constexpr std::int64_t kGiB = std::int64_t{1} << 30U;

struct ScriptedDevice {
  std::int64_t total = 64 * kGiB;
  std::int64_t others = 0;   ///< of other processes
  std::int64_t outside = 0;  ///< own, outside the pool: context, communicator, custom allocators
  std::int64_t pool = 0;     ///< own, reserved by the workload's pool
  std::int64_t pool_peak = 0;
  std::int64_t graphs = 0;
  std::int64_t driver = 0;  ///< in use and nobody's

  bool own_process_known = true;
  bool others_known = true;
  bool pool_known = true;
  bool graphs_known = true;

  MemoryReading reading() const {
    MemoryReading r;
    r.runtime_total = total;
    r.runtime_free = total - others - outside - pool - graphs - driver;
    r.management_total = total;
    if (own_process_known) r.own_process = outside + pool + graphs;
    if (own_process_known && others_known) r.other_processes = others;
    if (pool_known) {
      r.pool_reserved = r.pool_used = pool;
      r.pool_reserved_peak = r.pool_used_peak = std::max(pool, pool_peak);
    }
    if (graphs_known) r.graph_reserved = graphs;
    return r;
  }

  /// A transient of the pool: reserved, and kept by it for the next time.
  void pool_transient(std::int64_t bytes) { pool_peak = std::max(pool_peak, pool + bytes); }
};

class DeviceProbe final : public MemoryProbe {
 public:
  explicit DeviceProbe(ScriptedDevice& device, bool unified = false) : device_(device), unified_(unified) {}
  std::string device_name() const override { return "device 0"; }
  MemoryKind kind() const noexcept override { return MemoryKind::device; }
  bool integrated() const noexcept override { return unified_; }
  MemoryReading read() override { return device_.reading(); }
  void reset_peaks() override { device_.pool_peak = device_.pool; }

 private:
  ScriptedDevice& device_;
  bool unified_;
};

/// What each stage does to the device.
struct Stages final : ProfiledWorkload {
  std::function<void()> on_warm_up;
  std::function<void()> on_load;
  std::function<void()> on_run;
  std::function<void()> on_capture;
  int runs = 0;

  Status warm_up() override { return call(on_warm_up); }
  Status load_weights() override { return call(on_load); }
  Status run() override {
    ++runs;
    return call(on_run);
  }
  Status capture_graphs() override { return call(on_capture); }

 private:
  static Status call(const std::function<void()>& stage) {
    if (stage) stage();
    return {};
  }
};

/// Bytes of all known lines but `total`; a complete ledger adds up to the total.
inline std::int64_t sum_of_lines(const MemoryLedger& ledger) {
  std::int64_t sum = 0;
  for (const auto& line : ledger_lines(ledger)) {
    if (line.key != "total") sum += line.bytes.value_or(0);
  }
  return sum;
}

}  // namespace kvpool::testing
