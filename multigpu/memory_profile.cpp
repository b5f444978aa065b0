#include "kvpool/multigpu/memory_profile.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace kvpool {

namespace {

using Figure = std::optional<std::int64_t>;

std::string bytes_text(std::int64_t bytes) { return std::to_string(bytes) + " bytes"; }

Figure difference(Figure after, Figure before) { return after && before ? Figure(*after - *before) : std::nullopt; }

std::int64_t not_negative(std::int64_t bytes) { return std::max<std::int64_t>(bytes, 0); }

/// What was asked for, else what was measured, up to the cap.
std::int64_t bounded(std::int64_t measured, const ProfileRequest& request, MemoryKind kind) {
  if (request.explicit_kv_bytes) return *request.explicit_kv_bytes;
  Figure cap = request.kv_cap_bytes;
  if (!cap && kind == MemoryKind::host) cap = kDefaultHostKVBytes;
  return cap ? std::min(measured, *cap) : measured;
}

/// Readings at the boundaries of the stages, and what follows from them.
class Profiler {
 public:
  Profiler(MemoryProbe& probe, ProfiledWorkload& workload, const ProfileRequest& request)
      : probe_(probe), workload_(workload), request_(request) {}

  Result<MemoryProfile> profile() {
    if (auto status = start(); !status) return status.error();
    if (auto status = stage(&ProfiledWorkload::warm_up, "the communicator", profile_.ledger.communicator); !status) {
      return status.error();
    }
    if (auto status = stage(&ProfiledWorkload::load_weights, "the weights", profile_.ledger.weights); !status) {
      return status.error();
    }
    if (auto status = run_largest_batch(); !status) return status.error();
    if (auto status = capture(); !status) return status.error();
    return conclude();
  }

 private:
  Status start() {
    if (!(request_.utilization > 0.0 && request_.utilization <= 1.0)) {
      return {ErrorCode::invalid_argument,
              "a memory utilisation of " + std::to_string(request_.utilization) + " is not in (0, 1]"};
    }
    last_ = probe_.read();
    if (auto status = choose_total(); !status) return status;
    MemoryLedger& ledger = profile_.ledger;
    ledger.utilization_limit =
        static_cast<std::int64_t>(std::ceil(static_cast<double>(ledger.total) * request_.utilization));
    const Figure free = free_of(last_);
    if (!free) return {ErrorCode::environment, probe_.device_name() + " does not say how much memory is free"};
    used_at_start_ = not_negative(ledger.total - *free);
    if (const Figure own = own_of(last_)) ledger.context = not_negative(*own - last_.pool_reserved.value_or(0));
    // Host memory is shared with everybody by its nature; there the free memory alone bounds the pool.
    const bool exclusive = probe_.kind() == MemoryKind::device && !probe_.integrated();
    const std::int64_t reachable = *free + own_of(last_).value_or(0);
    if (exclusive && !request_.explicit_kv_bytes && reachable < ledger.utilization_limit) {
      return {ErrorCode::out_of_memory, "free memory on " + probe_.device_name() + " at start, " + bytes_text(*free) +
                                            ", is below the utilisation limit of " +
                                            bytes_text(ledger.utilization_limit) + " out of " +
                                            bytes_text(ledger.total)};
    }
    return {};
  }

  Status choose_total() {
    MemoryLedger& ledger = profile_.ledger;
    if (last_.runtime_total) {
      ledger.total = *last_.runtime_total;
      ledger.total_source = probe_.kind() == MemoryKind::host ? "host" : "runtime";
      if (last_.management_total && *last_.management_total != ledger.total) {
        note("the management library describes " + bytes_text(*last_.management_total) + ", the runtime " +
             bytes_text(ledger.total) + ": a slice of the card, or memory it reserves; the runtime counts");
      }
      return {};
    }
    if (!last_.management_total) {
      return {ErrorCode::environment, probe_.device_name() + " does not say how much memory it has"};
    }
    ledger.total = *last_.management_total;
    ledger.total_source = "management library";
    note("total memory from the management library: the runtime did not answer");
    return {};
  }

  /// Free for this process. With unified memory the page cache can be had, so what is available counts.
  Figure free_of(const MemoryReading& reading) const {
    if (probe_.integrated() && reading.host_available) return reading.host_available;
    return reading.runtime_free;
  }

  /// A figure below what the own allocator holds describes some other process, or is a 0 that means unknown.
  static Figure own_of(const MemoryReading& reading) {
    if (reading.own_process && *reading.own_process < reading.pool_reserved.value_or(1)) return std::nullopt;
    return reading.own_process;
  }

  /// What this process took between two readings: by its own figure, else by the device-wide difference and
  /// at least what its allocator took. Empty: free memory moved and nothing says how much of it was ours.
  Figure taken(const MemoryReading& before, const MemoryReading& after) {
    if (const Figure own = difference(own_of(after), own_of(before))) return not_negative(*own);
    profile_.ledger.estimated = true;
    const Figure pool = difference(after.pool_reserved, before.pool_reserved);
    const Figure wide = difference(free_of(before), free_of(after));
    if (!wide || *wide < -request_.drift_tolerance_bytes) return pool ? Figure(not_negative(*pool)) : std::nullopt;
    return std::max(not_negative(*wide), not_negative(pool.value_or(0)));
  }

  Status stage(Status (ProfiledWorkload::*step)(), std::string_view what, Figure& line) {
    if (auto status = (workload_.*step)(); !status) return status;
    const MemoryReading after = probe_.read();
    line = taken(last_, after);
    if (!line) return moved(std::string("while ") + std::string(what) + " was measured", last_, after);
    claim_from_context(last_, after, *line);
    last_ = after;
    return {};
  }

  /// On the host the workload's allocator may be served from memory that the process held before, and which was
  /// counted as context: then the process grows by less than the allocator.
  void claim_from_context(const MemoryReading& before, const MemoryReading& after, std::int64_t& line) {
    const Figure pool = difference(after.pool_reserved, before.pool_reserved);
    Figure& context = profile_.ledger.context;
    if (!pool || !context || *pool <= line) return;
    const std::int64_t claimed = std::min(*pool - line, *context);
    line += claimed;
    *context -= claimed;
  }

  Status moved(const std::string& when, const MemoryReading& before, const MemoryReading& after) const {
    const auto text = [&](const MemoryReading& reading) {
      const Figure free = free_of(reading);
      return free ? bytes_text(*free) : std::string("unknown");
    };
    return {ErrorCode::environment, "free memory on " + probe_.device_name() + " moved " + when + ", from " +
                                        text(before) + " to " + text(after) +
                                        ": another process took or released memory"};
  }

  /// With own figures one run is enough. Without, the run is repeated until free memory stays where the
  /// first of two runs left it, because only then the difference was ours.
  Status run_largest_batch() {
    const MemoryReading before = last_;
    MemoryReading anchor = before;
    for (profile_.attempts = 1;; ++profile_.attempts) {
      probe_.reset_peaks();
      if (auto status = workload_.run(); !status) return status;
      const MemoryReading first = probe_.read();
      last_ = first;
      if (own_of(before) && own_of(first)) break;
      if (auto status = workload_.run(); !status) return status;
      last_ = probe_.read();
      const Figure drift = difference(free_of(last_), free_of(first));
      const Figure rise = difference(free_of(first), free_of(anchor));
      const std::int64_t tolerance = request_.drift_tolerance_bytes;
      const bool still = drift && std::abs(*drift) <= tolerance;
      if (still && (!rise || *rise <= tolerance)) break;
      if (profile_.attempts >= request_.max_attempts) return moved("during the profile run", anchor, last_);
      note("free memory moved by other processes during the profile run; measured again");
      anchor = last_;
    }
    attribute_run(before);
    return {};
  }

  void attribute_run(const MemoryReading& before) {
    MemoryLedger& ledger = profile_.ledger;
    const Figure grown = taken(before, last_);
    run_end_ = last_;
    if (!last_.pool_reserved_peak || !before.pool_reserved) {
      ledger.peak_activations = grown;
      if (!own_of(last_)) note("activations by difference: the workload's allocator does not report its peak");
      return;
    }
    pool_peak_ = std::max(*last_.pool_reserved_peak, last_.pool_reserved.value_or(0));
    ledger.peak_activations = not_negative(pool_peak_ - *before.pool_reserved);
    const std::int64_t kept = not_negative(last_.pool_reserved.value_or(pool_peak_) - *before.pool_reserved);
    if (!grown) return;
    // What grew outside the pool: library work space, modules loaded lazily.
    const std::int64_t outside = not_negative(*grown - kept);
    if (ledger.context || outside > 0) ledger.context = ledger.context.value_or(0) + outside;
  }

  Status capture() {
    const MemoryReading before = last_;
    if (auto status = workload_.capture_graphs(); !status) return status;
    last_ = probe_.read();
    MemoryLedger& ledger = profile_.ledger;
    ledger.graphs_estimate = request_.graph_estimate_bytes;
    if (const Figure held = difference(last_.graph_reserved, before.graph_reserved)) {
      ledger.graphs = not_negative(*held);
      return {};
    }
    // What the capture left in the workload's pool serves later activations and is no graph memory.
    const Figure grown = taken(before, last_);
    if (!grown) return moved("during graph capture", before, last_);
    const Figure pool = difference(last_.pool_reserved, before.pool_reserved);
    ledger.graphs = not_negative(*grown - not_negative(pool.value_or(0)));
    return {};
  }

  Result<MemoryProfile> conclude() {
    MemoryLedger& ledger = profile_.ledger;
    profile_.peak_bytes = ledger.weights.value_or(0) + ledger.peak_activations.value_or(0) +
                          ledger.communicator.value_or(0) + ledger.graphs.value_or(0) + ledger.context.value_or(0);
    profile_.non_pool_bytes = not_negative(profile_.peak_bytes - pool_peak_);
    profile_.free_bytes = free_of(last_).value_or(0);
    ledger.safety = request_.safety_bytes;

    // Free memory once the allocator holds what it held at its peak again.
    std::int64_t reachable = profile_.free_bytes - request_.safety_bytes;
    if (last_.pool_reserved) reachable -= pool_peak_ - *last_.pool_reserved;
    const std::int64_t within_limit = ledger.utilization_limit - profile_.peak_bytes;
    const std::int64_t measured = std::min(within_limit, reachable);
    profile_.available_bytes = bounded(measured, request_, probe_.kind());
    if (profile_.available_bytes <= 0) {
      return Error{ErrorCode::out_of_memory, "no memory left for the KV cache on " + probe_.device_name() +
                                                 ": utilisation limit " + bytes_text(ledger.utilization_limit) +
                                                 ", used beside KV at the peak " + bytes_text(profile_.peak_bytes) +
                                                 ", free " + bytes_text(profile_.free_bytes) + ", kept free " +
                                                 bytes_text(request_.safety_bytes)};
    }
    if (request_.explicit_kv_bytes && profile_.available_bytes > reachable) {
      note("the KV size asked for exceeds what is free by " + bytes_text(profile_.available_bytes - reachable));
    }
    ledger.kv_pool = profile_.available_bytes;
    attribute_rest();
    return std::move(profile_);
  }

  /// Memory in use that is none of the above: of others where they are known, else unknown.
  void attribute_rest() {
    MemoryLedger& ledger = profile_.ledger;
    const std::int64_t used = not_negative(ledger.total - profile_.free_bytes);
    const Figure own = own_of(last_);
    if (own) {
      ledger.other_processes = last_.other_processes;
      ledger.unknown = not_negative(used - *own - ledger.other_processes.value_or(0));
    } else {
      // Whatever was in use before the first stage: context, driver, other processes.
      ledger.unknown = used_at_start_;
      note("the use of this process is unknown here: lines are differences of device-wide figures");
    }
    ledger.unused = not_negative(ledger.total - profile_.peak_bytes - ledger.other_processes.value_or(0) -
                                 ledger.unknown.value_or(0) - ledger.safety - ledger.kv_pool);
  }

  void note(std::string text) {
    auto& notes = profile_.ledger.notes;
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) notes.push_back(std::move(text));
  }

  MemoryProbe& probe_;
  ProfiledWorkload& workload_;
  const ProfileRequest& request_;
  MemoryProfile profile_;
  MemoryReading last_;
  MemoryReading run_end_;
  std::int64_t used_at_start_ = 0;
  std::int64_t pool_peak_ = 0;
};

}  // namespace

Result<MemoryProfile> determine_available_memory(MemoryProbe& probe, ProfiledWorkload& workload,
                                                 const ProfileRequest& request) {
  return Profiler(probe, workload, request).profile();
}

Status check_room(MemoryProbe& probe, std::int64_t bytes, std::int64_t safety_bytes) {
  const MemoryReading reading = probe.read();
  const Figure free = probe.integrated() && reading.host_available ? reading.host_available : reading.runtime_free;
  if (!free || *free - safety_bytes >= bytes) return {};
  return {ErrorCode::out_of_memory, "the KV pool needs " + bytes_text(bytes) + ", free on " + probe.device_name() +
                                        " are " + bytes_text(*free) + " of which " + bytes_text(safety_bytes) +
                                        " stay free: " + bytes_text(bytes - (*free - safety_bytes)) + " are missing"};
}

Status verify_beside_pool(MemoryProbe& probe, ProfiledWorkload& workload, const MemoryProfile& profile,
                          std::int64_t kv_bytes) {
  probe.reset_peaks();
  if (auto status = workload.run(); !status) return status;
  const MemoryReading reading = probe.read();
  if (!reading.own_process) return {};  // the run itself was the test
  const std::int64_t idle = reading.pool_reserved.value_or(0);
  const std::int64_t peak = *reading.own_process + not_negative(reading.pool_reserved_peak.value_or(idle) - idle);
  const bool was_explicit = kv_bytes + profile.peak_bytes > profile.ledger.utilization_limit;
  const std::int64_t limit = was_explicit ? profile.ledger.total : profile.ledger.utilization_limit;
  if (peak <= limit) return {};
  return {ErrorCode::out_of_memory, "beside a KV pool of " + bytes_text(kv_bytes) +
                                        " the profile run takes this process to " + bytes_text(peak) +
                                        ", the limit is " + bytes_text(limit)};
}

std::int64_t available_beside_pool(MemoryProbe& probe, const MemoryProfile& profile, const ProfileRequest& request,
                                   std::int64_t resident_pool_bytes) {
  const MemoryReading reading = probe.read();
  const Figure free = probe.integrated() && reading.host_available ? reading.host_available : reading.runtime_free;
  if (!free) return profile.available_bytes;
  std::int64_t reachable = *free + resident_pool_bytes - request.safety_bytes;
  const std::int64_t allocator_peak = profile.peak_bytes - profile.non_pool_bytes;
  if (reading.pool_reserved) reachable -= not_negative(allocator_peak - *reading.pool_reserved);
  const std::int64_t within_limit = profile.ledger.utilization_limit - profile.peak_bytes;
  return not_negative(bounded(std::min(within_limit, reachable), request, probe.kind()));
}

std::int64_t blocks_that_fit(const PoolSizeRequest& request, std::int64_t profiled_bytes,
                             std::int64_t bytes_per_block) {
  if (request.num_blocks) return not_negative(*request.num_blocks);
  return not_negative(request.kv_bytes.value_or(profiled_bytes)) / bytes_per_block;
}

}  // namespace kvpool
