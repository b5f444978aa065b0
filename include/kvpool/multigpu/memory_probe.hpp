// Where memory figures come from. Every figure may be unknown, and unknown is never zero.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvpool/foundation/error.hpp"
#include "kvpool/multigpu/communicator.hpp"

namespace kvpool {

/// All figures at one moment, in bytes.
struct MemoryReading {
  std::optional<std::int64_t> runtime_total;       ///< as the device's runtime tells (a MIG slice: the slice)
  std::optional<std::int64_t> runtime_free;        ///< free for any process, by the runtime
  std::optional<std::int64_t> management_total;    ///< as the management library tells (may describe the whole card)
  std::optional<std::int64_t> host_available;      ///< MemAvailable of the operating system
  std::optional<std::int64_t> own_process;         ///< held by this process on the device, by the management library
  std::optional<std::int64_t> other_processes;     ///< held by all others; known only together with own_process
  std::optional<std::int64_t> pool_reserved;       ///< held by the allocator that the workload uses
  std::optional<std::int64_t> pool_used;           ///< of that, handed out
  std::optional<std::int64_t> pool_reserved_peak;  ///< since reset_peaks()
  std::optional<std::int64_t> pool_used_peak;      ///< since reset_peaks()
  std::optional<std::int64_t> graph_reserved;      ///< held for captured graphs
};

class MemoryProbe {
 public:
  MemoryProbe() = default;
  MemoryProbe(const MemoryProbe&) = delete;
  MemoryProbe& operator=(const MemoryProbe&) = delete;
  virtual ~MemoryProbe() = default;

  /// "host", "NVIDIA H100 GPU-1f2e...", "MIG-377e...". Names are opaque, never indices to compute with.
  [[nodiscard]] virtual std::string device_name() const = 0;
  [[nodiscard]] virtual MemoryKind kind() const noexcept = 0;
  /// The device shares the host's memory: "free" then counts the page cache as used.
  [[nodiscard]] virtual bool integrated() const noexcept { return false; }
  /// Never fails: what cannot be read is unknown.
  [[nodiscard]] virtual MemoryReading read() = 0;
  /// Sets the peaks to the present values.
  virtual void reset_peaks() = 0;
};

/// Allocates host memory and counts it exactly. Thread-safe, lock-free beside the system's allocator.
class CountingAllocator {
 public:
  static constexpr std::size_t kAlignment = 64;  ///< bytes

  /// `limit_bytes`: refuse beyond this; 0: no limit.
  explicit CountingAllocator(std::int64_t limit_bytes = 0) noexcept : limit_(limit_bytes) {}
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  /// nullptr when the limit or the system refuses. `bytes` > 0.
  [[nodiscard]] void* allocate(std::size_t bytes) noexcept;
  /// `bytes` as given to allocate().
  void deallocate(void* memory, std::size_t bytes) noexcept;

  [[nodiscard]] std::int64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  void reset_peak() noexcept { peak_.store(used(), std::memory_order_relaxed); }

 private:
  std::int64_t limit_;
  std::atomic<std::int64_t> used_{0};
  std::atomic<std::int64_t> peak_{0};
};

struct HostProbeOptions {
  int ranks_on_host = 1;                   ///< total and free memory are divided by this
  CountingAllocator* allocator = nullptr;  ///< of the workload; nullptr: pool figures are unknown
  std::string proc_root = "/proc";
  std::string cgroup_root = "/sys/fs/cgroup";
};

/// Host memory: MemTotal and MemAvailable, bounded by every cgroup-v2 limit above this process.
[[nodiscard]] std::unique_ptr<MemoryProbe> make_host_memory_probe(HostProbeOptions options);

/// Device memory: runtime figures, the workload's stream-ordered pool and graph memory, and per-process figures
/// of the management library, which is loaded when present. `unsupported` when this build has no CUDA,
/// `environment` when there is no driver or no such device.
[[nodiscard]] Result<std::unique_ptr<MemoryProbe>> make_cuda_memory_probe(int device);

/// Answers what it was told: every failure of the field as a test without a device.
class ScriptedMemoryProbe final : public MemoryProbe {
 public:
  explicit ScriptedMemoryProbe(MemoryKind kind = MemoryKind::device, bool integrated = false,
                               std::string device_name = "scripted")
      : kind_(kind), integrated_(integrated), device_name_(std::move(device_name)) {}

  MemoryReading now;                 ///< what the next read() answers
  std::vector<MemoryReading> queue;  ///< answered first, front to back, when not empty

  [[nodiscard]] std::string device_name() const override { return device_name_; }
  [[nodiscard]] MemoryKind kind() const noexcept override { return kind_; }
  [[nodiscard]] bool integrated() const noexcept override { return integrated_; }
  [[nodiscard]] MemoryReading read() override;
  void reset_peaks() override;

 private:
  MemoryKind kind_;
  bool integrated_;
  std::string device_name_;
};

}  // namespace kvpool
