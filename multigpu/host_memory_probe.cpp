// Host memory: /proc, cgroup v2 and a counting allocator.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>
#include <string_view>
#include <utility>

#include "kvpool/multigpu/memory_probe.hpp"

namespace kvpool {

namespace {

using Figure = std::optional<std::int64_t>;

std::optional<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Figure number_in(std::string_view text) {
  const auto first = text.find_first_of("0123456789");
  if (first == std::string_view::npos) return std::nullopt;
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + first, text.data() + text.size(), value);
  return error == std::errc{} ? Figure(value) : std::nullopt;
}

/// The number after `key` at the start of a line.
Figure number_after(const std::optional<std::string>& text, std::string_view key) {
  if (!text) return std::nullopt;
  for (std::size_t line = 0; line < text->size();) {
    const std::size_t end = std::min(text->find('\n', line), text->size());
    const std::string_view content(text->data() + line, end - line);
    if (content.substr(0, key.size()) == key) return number_in(content.substr(key.size()));
    line = end + 1;
  }
  return std::nullopt;
}

Figure in_bytes(Figure kibibytes) { return kibibytes ? Figure(*kibibytes * 1024) : std::nullopt; }

Figure lower(Figure a, Figure b) { return a && b ? Figure(std::min(*a, *b)) : (a ? a : b); }

struct CgroupBounds {
  Figure limit;
  Figure free;  ///< below the tightest limit; file cache counts as free
};

class HostMemoryProbe final : public MemoryProbe {
 public:
  explicit HostMemoryProbe(HostProbeOptions options) : options_(std::move(options)) {
    options_.ranks_on_host = std::max(1, options_.ranks_on_host);
  }

  std::string device_name() const override { return "host"; }
  MemoryKind kind() const noexcept override { return MemoryKind::host; }

  MemoryReading read() override {
    const auto meminfo = read_text(options_.proc_root + "/meminfo");
    const auto status = read_text(options_.proc_root + "/self/status");
    const CgroupBounds cgroup = cgroup_bounds();
    const Figure available = in_bytes(number_after(meminfo, "MemAvailable:"));
    const Figure total = lower(in_bytes(number_after(meminfo, "MemTotal:")), cgroup.limit);
    const Figure free = lower(available, cgroup.free);
    MemoryReading reading;
    reading.host_available = available;
    reading.runtime_total = share(total);
    reading.runtime_free = share(free);
    const Figure anonymous = in_bytes(number_after(status, "RssAnon:"));
    if (anonymous) reading.own_process = *anonymous + in_bytes(number_after(status, "RssShmem:")).value_or(0);
    if (reading.own_process && reading.runtime_total && reading.runtime_free) {
      // What is in use and not ours belongs to others: the host has no third kind of owner.
      reading.other_processes =
          std::max<std::int64_t>(*reading.runtime_total - *reading.runtime_free - *reading.own_process, 0);
    }
    if (options_.allocator != nullptr) {
      reading.pool_used = options_.allocator->used();
      reading.pool_reserved = reading.pool_used;
      reading.pool_used_peak = options_.allocator->peak();
      reading.pool_reserved_peak = reading.pool_used_peak;
      // Memory handed out and not yet touched is no resident memory, but it is ours.
      if (reading.own_process) reading.own_process = std::max(*reading.own_process, *reading.pool_reserved);
    }
    return reading;
  }

  void reset_peaks() override {
    if (options_.allocator != nullptr) options_.allocator->reset_peak();
  }

 private:
  Figure share(Figure bytes) const { return bytes ? Figure(*bytes / options_.ranks_on_host) : std::nullopt; }

  /// The tightest limit on the way from this process's group up to the root.
  CgroupBounds cgroup_bounds() const {
    CgroupBounds bounds;
    const auto membership = read_text(options_.proc_root + "/self/cgroup");
    if (!membership) return bounds;
    const std::size_t start = membership->rfind("0::/", 0) == 0 ? 0 : membership->find("\n0::/");
    if (start == std::string::npos) return bounds;
    const std::size_t path_start = membership->find('/', start);
    std::string path = membership->substr(path_start, membership->find('\n', path_start) - path_start);
    while (true) {
      const std::string folder = options_.cgroup_root + (path == "/" ? "" : path);
      for (const char* file : {"/memory.max", "/memory.high"}) {
        const auto text = read_text(folder + file);
        if (!text || text->rfind("max", 0) == 0) continue;
        const Figure limit = number_in(*text);
        const Figure current = number_in(read_text(folder + "/memory.current").value_or(""));
        bounds.limit = lower(bounds.limit, limit);
        if (!limit || !current) continue;
        const auto stat = read_text(folder + "/memory.stat");
        const std::int64_t cache = number_after(stat, "inactive_file ").value_or(0);
        bounds.free = lower(bounds.free, std::max<std::int64_t>(*limit - *current + cache, 0));
      }
      if (path.empty() || path == "/") return bounds;
      path.resize(path.rfind('/'));
    }
  }

  HostProbeOptions options_;
};

}  // namespace

void* CountingAllocator::allocate(std::size_t bytes) noexcept {
  if (bytes > static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max()) - kAlignment) return nullptr;
  const auto size = static_cast<std::int64_t>(bytes);
  const std::int64_t used = used_.fetch_add(size, std::memory_order_relaxed) + size;
  const std::size_t padded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* memory = limit_ > 0 && used > limit_ ? nullptr : std::aligned_alloc(kAlignment, padded);
  if (memory == nullptr) {
    used_.fetch_sub(size, std::memory_order_relaxed);
    return nullptr;
  }
  std::int64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < used && !peak_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
  }
  return memory;
}

void CountingAllocator::deallocate(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  std::free(memory);
  used_.fetch_sub(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
}

std::unique_ptr<MemoryProbe> make_host_memory_probe(HostProbeOptions options) {
  return std::make_unique<HostMemoryProbe>(std::move(options));
}

MemoryReading ScriptedMemoryProbe::read() {
  if (queue.empty()) return now;
  now = queue.front();
  queue.erase(queue.begin());
  return now;
}

void ScriptedMemoryProbe::reset_peaks() {
  now.pool_reserved_peak = now.pool_reserved;
  now.pool_used_peak = now.pool_used;
}

}  // namespace kvpool
