#include "tools/launch/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "tools/cli/exit_status.hpp"

namespace kvpool::launch {
namespace {

using tools::Json;
using tools::ratio;

constexpr std::size_t kMaxLedgerColumns = 8;

std::int64_t total_tokens(const ServeResult& serve) {
  return serve.counters.prompt_tokens + serve.counters.output_tokens;
}

Json rank_json(const RankMemory& memory) {
  Json ledger = Json::object();
  for (const LedgerLine& line : memory.ledger) ledger[line.key] = line.bytes ? Json(*line.bytes) : Json(nullptr);
  return {{"rank", memory.rank},         {"total", memory.total},         {"peak", memory.peak},
          {"non_pool", memory.non_pool}, {"available", memory.available}, {"num_blocks", memory.num_blocks},
          {"backend", memory.backend},   {"device", memory.device},       {"ledger", std::move(ledger)}};
}

Json verify_json(const std::optional<VerifyReport>& verify) {
  if (!verify) return nullptr;
  return {{"requests", verify->requests},
          {"max_rel_l2", verify->max_rel_l2},
          {"bitwise_equal", verify->bitwise_equal},
          {"limit_rel_l2", verify->limit},
          {"rows", verify->rows},
          {"bitwise_layers", verify->bitwise_layers}};
}

Json refusals_json(const std::vector<scheduler::Refusal>& refusals) {
  Json list = Json::array();
  for (const scheduler::Refusal& refusal : refusals) {
    list.push_back({{"request", refusal.item.index},
                    {"prompt_tokens", refusal.item.prompt_tokens},
                    {"output_tokens", refusal.item.output_tokens},
                    {"blocks_needed", refusal.blocks_needed},
                    {"blocks_usable", refusal.blocks_usable}});
  }
  return list;
}

Json error_json(const std::optional<Error>& error) {
  if (!error) return nullptr;
  return {{"code", std::string(to_string(error->code))}, {"rank", error->rank}, {"message", error->message}};
}

std::string thousands(std::int64_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string rank_table(const LaunchReport& report) {
  std::string text = fmt::format("{:>4}  {:<24} {:>10} {:>10} {:>10} {:>10} {:>10}\n", "rank", "device", "total",
                                 "peak", "non-pool", "available", "blocks");
  for (const RankMemory& memory : report.ranks) {
    text += fmt::format("{:>4}  {:<24} {:>10} {:>10} {:>10} {:>10} {:>10}\n", memory.rank,
                        memory.backend + " " + memory.device, human_bytes(memory.total), human_bytes(memory.peak),
                        human_bytes(memory.non_pool), human_bytes(memory.available), thousands(memory.num_blocks));
  }
  return text;
}

/// A line per use of memory, a column per rank; with many ranks those that hold least and most.
std::string ledger_table(const LaunchReport& report) {
  std::vector<const RankMemory*> shown;
  for (const RankMemory& memory : report.ranks) shown.push_back(&memory);
  if (shown.size() > kMaxLedgerColumns) {
    const auto [least, most] =
        std::minmax_element(shown.begin(), shown.end(), [](const RankMemory* a, const RankMemory* b) {
          return std::pair(a->num_blocks, a->rank) < std::pair(b->num_blocks, b->rank);
        });
    shown = {*least, *most};
  }
  if (shown.empty() || shown.front()->ledger.empty()) return {};
  std::string text = fmt::format("\n{:<18}", "ledger");
  for (const RankMemory* memory : shown) text += fmt::format(" {:>12}", fmt::format("rank {}", memory->rank));
  for (std::size_t i = 0; i < shown.front()->ledger.size(); ++i) {
    text += fmt::format("\n  {:<16}", shown.front()->ledger[i].key);
    for (const RankMemory* memory : shown) {
      const bool known = i < memory->ledger.size() && memory->ledger[i].bytes;
      text += fmt::format(" {:>12}", known ? human_bytes(*memory->ledger[i].bytes) : "unknown");
    }
  }
  return text + "\n";
}

std::string agreements_line(const std::vector<std::int64_t>& agreements) {
  std::string text = "agreed again       ";
  for (std::size_t i = 0; i < agreements.size(); ++i) text += (i > 0 ? " -> " : "") + thousands(agreements[i]);
  return text + " blocks, as the memory of ranks changed\n";
}

std::string verify_line(const LaunchReport& report) {
  if (!report.verify) return {};
  const VerifyReport& verify = *report.verify;
  const std::string numbers =
      fmt::format("{} requests, {} output tokens: max rel-L2 {:.2e} (limit {:.0e}), per-head outputs {}",
                  verify.requests, verify.rows, verify.max_rel_l2, verify.limit,
                  verify.bitwise_equal ? "bitwise equal to one rank" : "NOT bitwise equal to one rank");
  if (verify.requests == 0) return "attention not verified: no sampled request finished\n";
  if (verify.passed()) return "attention verified: " + numbers + "\n";
  return "attention WRONG: " + numbers + " (" + verify.worst + ")\n";
}

}  // namespace

std::string human_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

Json to_json(const LaunchOptions& options, const LaunchReport& report) {
  const ServeResult& serve = report.serve;
  Json ranks = Json::array();
  for (const RankMemory& memory : report.ranks) ranks.push_back(rank_json(memory));
  Json json;
  json["trace"] = options.trace;
  json["transport"] = report.transport;
  json["world_size"] = report.world_size;
  json["schedulers"] = options.schedulers;
  json["block_size"] = options.block_size;
  json["output_digest"] = serve.output_digest;
  json["ranks"] = std::move(ranks);
  json["num_blocks"] = report.num_blocks();
  json["agreements"] = report.agreements;
  json["requests"] = report.num_requests;
  json["finished"] = serve.counters.finished;
  json["refused"] = refusals_json(serve.refusals);
  json["tokens"] = total_tokens(serve);
  json["prompt_tokens"] = serve.counters.prompt_tokens;
  json["output_tokens"] = serve.counters.output_tokens;
  json["computed_tokens"] = serve.counters.computed_tokens;
  json["hit_tokens"] = serve.counters.hit_tokens;
  json["hit_ratio_tokens"] =
      ratio(static_cast<double>(serve.counters.hit_tokens), static_cast<double>(serve.counters.prompt_tokens));
  json["preemptions"] = serve.counters.preemptions;
  json["evictions"] = serve.evictions;
  json["lost_prefixes"] = serve.counters.lost_prefixes;
  json["steps"] = serve.steps;
  json["seconds"] = serve.seconds;
  json["tokens_per_second"] = ratio(static_cast<double>(total_tokens(serve)), serve.seconds);
  json["time_share"] = {{"schedule", ratio(serve.schedule_seconds, serve.seconds)},
                        {"attention", ratio(serve.attention_seconds, serve.seconds)},
                        {"projection", ratio(serve.projection_seconds, serve.seconds)},
                        {"communication", ratio(serve.communication_seconds, serve.seconds)},
                        {"tables", ratio(serve.table_seconds, serve.seconds)}};
  json["verify"] = verify_json(report.verify);
  json["divergence_checks"] = serve.divergence_checks;
  json["divergence_alarms"] = serve.alarms.size();
  json["interrupted"] = serve.interrupted;
  json["error"] = error_json(report.error);
  return json;
}

std::string to_table(const LaunchOptions& options, const LaunchReport& report) {
  const ServeResult& serve = report.serve;
  const auto percent = [&serve](double seconds) { return serve.seconds > 0 ? 100.0 * seconds / serve.seconds : 0.0; };
  std::string text = rank_table(report) + ledger_table(report);
  text += fmt::format("\nagreed num_blocks  {} of {} tokens, for {} ranks over {}\n", thousands(report.num_blocks()),
                      options.block_size, report.world_size, report.transport);
  text += fmt::format("requests           {} of {} finished, {} refused, {} preemptions, {} scheduler threads\n",
                      thousands(serve.counters.finished), thousands(report.num_requests), serve.refusals.size(),
                      thousands(serve.counters.preemptions), options.schedulers);
  text += fmt::format("tokens             {} prompt, {} output, {} computed in {} steps\n",
                      thousands(serve.counters.prompt_tokens), thousands(serve.counters.output_tokens),
                      thousands(serve.counters.computed_tokens), thousands(serve.steps));
  text += fmt::format(
      "hit ratio          {:.1f} % ({} prompt tokens found in the cache), {} evictions\n",
      100.0 * ratio(static_cast<double>(serve.counters.hit_tokens), static_cast<double>(serve.counters.prompt_tokens)),
      thousands(serve.counters.hit_tokens), thousands(static_cast<std::int64_t>(serve.evictions)));
  text += fmt::format(
      "throughput         {} tokens/s in {:.1f} s: schedule {:.1f} %, attention {:.1f} %, projection "
      "{:.1f} %, communication {:.1f} %, tables {:.1f} %\n",
      thousands(static_cast<std::int64_t>(ratio(static_cast<double>(total_tokens(serve)), serve.seconds))),
      serve.seconds, percent(serve.schedule_seconds), percent(serve.attention_seconds),
      percent(serve.projection_seconds), percent(serve.communication_seconds), percent(serve.table_seconds));
  text += fmt::format("output digest      {}\n", serve.output_digest);
  text +=
      fmt::format("block tables       {} divergence checks, {} alarms\n", serve.divergence_checks, serve.alarms.size());
  if (report.agreements.size() > 1) text += agreements_line(report.agreements);
  if (serve.interrupted) text += "interrupted: the result is partial\n";
  if (report.error) text += "FAILED, the result is partial: " + report.error->message + "\n";
  return text + verify_line(report);
}

int exit_status_of(const LaunchReport& report) {
  if (report.error) return tools::exit_status_of(report.error->code);
  if (report.serve.interrupted) return tools::kExitInterrupted;
  if (!report.serve.alarms.empty() || (report.verify && !report.verify->passed())) return tools::kExitCheckFailed;
  return report.serve.refusals.empty() ? tools::kExitOk : tools::kExitBadInput;
}

}  // namespace kvpool::launch
