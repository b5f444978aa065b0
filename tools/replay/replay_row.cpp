#include "tools/replay/replay_row.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace kvpool::tools {

void ReplayCounts::merge(const ReplayCounts& other) {
  requests += other.requests;
  admitted += other.admitted;
  rejected += other.rejected;
  forced_frees += other.forced_frees;
  input_tokens += other.input_tokens;
  prompt_full_blocks += other.prompt_full_blocks;
  hit_blocks += other.hit_blocks;
  allocated_blocks += other.allocated_blocks;
  evictions += other.evictions;
  inserts += other.inserts;
  duplicate_inserts += other.duplicate_inserts;
  peak_used_blocks = std::max(peak_used_blocks, other.peak_used_blocks);
  final_cached_keys = std::max(final_cached_keys, other.final_cached_keys);
}

std::uint64_t ReplayResult::block_operations() const noexcept {
  const std::uint64_t entries = counts.hit_blocks + counts.allocated_blocks;
  return entries + counts.inserts + entries;
}

void ReplayDigest::add_word(std::uint32_t word) noexcept {
  for (int byte = 0; byte < 4; ++byte) {
    value_ = (value_ ^ (word & 0xffU)) * 0x100000001b3ULL;
    word >>= 8U;
  }
}

void ReplayDigest::add(const RequestOutcome& outcome) noexcept {
  add_word(outcome.rejected ? 0xffffffffU : static_cast<std::uint32_t>(outcome.hit_blocks));
  add_word(outcome.rejected ? 0U : static_cast<std::uint32_t>(outcome.evictions));
}

Json to_json(const std::string& trace, const ReplayOptions& options, const ReplayResult& result) {
  const ReplayCounts& counts = result.counts;
  const std::uint64_t hit_tokens = counts.hit_blocks * static_cast<std::uint64_t>(options.block_size);
  Json row;
  row["trace"] = trace;
  row["block_size"] = options.block_size;
  row["capacity"] = options.capacity;
  row["window"] = options.window;
  row["duplicates"] = options.duplicates == DuplicatePolicy::keep ? "keep" : "skip";
  row["output"] = options.hash_output ? "hashed" : "none";
  row["first_requests"] = options.first_requests ? Json(*options.first_requests) : Json(nullptr);
  row["requests"] = counts.requests;
  row["admitted"] = counts.admitted;
  row["rejected"] = counts.rejected;
  row["forced_frees"] = counts.forced_frees;
  row["input_tokens"] = counts.input_tokens;
  row["prompt_full_blocks"] = counts.prompt_full_blocks;
  row["hit_blocks"] = counts.hit_blocks;
  row["hit_tokens"] = hit_tokens;
  row["allocated_blocks"] = counts.allocated_blocks;
  row["evictions"] = counts.evictions;
  row["inserts"] = counts.inserts;
  row["duplicate_inserts"] = counts.duplicate_inserts;
  row["peak_used_blocks"] = counts.peak_used_blocks;
  row["final_cached_keys"] = counts.final_cached_keys;
  row["hit_ratio_tokens"] = ratio(static_cast<double>(hit_tokens), static_cast<double>(counts.input_tokens));
  row["hit_ratio_blocks"] =
      ratio(static_cast<double>(counts.hit_blocks), static_cast<double>(counts.prompt_full_blocks));
  row["digest"] = result.digest ? Json(fmt::format("{:016x}", *result.digest)) : Json(nullptr);
  row["order"] = options.order == FreeOrder::split ? "split" : "append";
  row["threads"] = options.threads;
  row["seconds"] = result.seconds;
  row["block_ops_per_second"] =
      result.seconds > 0 ? static_cast<double>(result.block_operations()) / result.seconds : 0.0;
  row["latency_us"] = Json{
      {"lookup", result.look_up.to_json()}, {"allocate", result.allocate.to_json()}, {"free", result.free.to_json()}};
  row["invariants_hold"] = result.invariants.ok();
  if (result.interrupted) {
    row["interrupted"] = true;
  }
  return row;
}

std::string to_table(const std::string& trace, const ReplayOptions& options, const ReplayResult& result) {
  const Json row = to_json(trace, options, result);
  std::string text;
  for (const auto& [name, value] : row.items()) {
    if (name != "latency_us") {
      text += fmt::format("{:<22} {}\n", name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
  text += fmt::format("{:<22} {:>10} {:>10} {:>10} {:>10}\n", "latency in us", "p50", "p99", "p99.9", "max");
  for (const auto& [name, samples] : row["latency_us"].items()) {
    text += fmt::format("  {:<20} {:>10.2f} {:>10.2f} {:>10.2f} {:>10.2f}\n", name, samples["p50"].get<double>(),
                        samples["p99"].get<double>(), samples["p999"].get<double>(), samples["max"].get<double>());
  }
  return text;
}

}  // namespace kvpool::tools
