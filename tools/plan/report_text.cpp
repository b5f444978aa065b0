#include "tools/plan/report_text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace kvpool::tools {
namespace {

// 131072, or 1234.5 where padding makes it a fraction.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (std::floor(value) == value && std::abs(value) < 9.0e15) return static_cast<std::int64_t>(value);
  return value;
}

std::string number_text(double value) {
  return std::floor(value) == value ? fmt::format("{:.0f}", value) : fmt::format("{:.2f}", value);
}

void append_groups(std::string& out, const PlanReport& report) {
  out += fmt::format("{:<24} {:>7} {:>12} {:>16} {:>18}\n", "group", "layers", "block tokens", "page bytes",
                     "blocks per request");
  for (std::size_t i = 0; i < report.groups.size(); ++i) {
    const PlannedGroup& group = report.groups[i];
    out += fmt::format("{:<24} {:>7} {:>12} {:>16} {:>18}\n", fmt::format("{} {}", i, group.kind), group.layers,
                       group.block_size, group.page_size_bytes, group.blocks_per_request);
  }
}

void append_ledger(std::string& out, const PlanReport& report) {
  const bool staged = !report.ledger.empty() && report.ledger.back().stage > 0;
  out += fmt::format("\n{:<24} {:>20} {:>14}  {}\n", staged ? "memory of a stage's GPU" : "memory of one GPU", "bytes",
                     "", "source");
  for (const LedgerEntry& entry : report.ledger) {
    const std::string name = staged ? fmt::format("{} {}", entry.stage, entry.name) : entry.name;
    out += fmt::format("{:<24} {:>20} {:>14}  {}\n", name, entry.bytes, bytes_text(entry.bytes), entry.source);
  }
  out += fmt::format("{:<24} {:>20} {:>14}\n", "total", report.ledger_bytes, bytes_text(report.ledger_bytes));
}

}  // namespace

std::string bytes_text(std::int64_t bytes) {
  static constexpr std::array kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  if (std::abs(value) < 1024) return fmt::format("{} B", bytes);
  std::size_t unit = 0;
  for (value /= 1024; std::abs(value) >= 1024 && unit + 1 < kUnits.size(); value /= 1024) ++unit;
  return fmt::format("{:.2f} {}", value, kUnits.at(unit));
}

std::string plan_text(const PlanReport& report, const std::vector<std::string>& suggestions) {
  std::string out;
  append_groups(out, report);
  out += fmt::format("\n{:<24} {:>20}  {}\n", "bytes per block", report.bytes_per_block,
                     bytes_text(report.bytes_per_block));
  out += fmt::format("{:<24} {:>20}\n", "bytes per token", number_text(report.bytes_per_token));
  out += fmt::format("{:<24} {:>20}  null block included\n", "num_blocks", report.num_blocks);
  out += fmt::format("{:<24} {:>20}\n", "tokens", report.num_tokens);
  const std::string concurrency =
      std::isfinite(report.max_concurrency) ? fmt::format("{:.2f}x", report.max_concurrency) : std::string("unlimited");
  out +=
      fmt::format("{:<24} {:>20}  at {} tokens a request\n", "maximum concurrency", concurrency, report.max_model_len);
  out += fmt::format("{:<24} {:>20}\n", "longest length that fits", report.max_model_len_fit);
  append_ledger(out, report);
  if (!report.fits) {
    out += fmt::format(
        "\nDoes not fit: one request of {} tokens needs {} blocks, {} are there besides the reserved ones; {} ({} "
        "bytes) are missing.\n",
        report.max_model_len, report.blocks_per_request,
        std::max<std::int64_t>(report.num_blocks - report.reserved_blocks, 0), bytes_text(report.missing_bytes),
        report.missing_bytes);
    for (const std::string& suggestion : suggestions) out += fmt::format("  {}\n", suggestion);
    if (suggestions.empty()) out += "  Nothing within 64 GPUs would make it fit.\n";
  }
  return out;
}

Json plan_json(const PlanReport& report, const std::vector<std::string>& suggestions) {
  Json groups = Json::array();
  for (const PlannedGroup& group : report.groups) {
    groups.push_back(Json{{"kind", group.kind},
                          {"layers", group.layers},
                          {"block_size", group.block_size},
                          {"page_size_bytes", group.page_size_bytes},
                          {"blocks_per_request", group.blocks_per_request}});
  }
  Json entries = Json::array();
  for (const LedgerEntry& entry : report.ledger) {
    entries.push_back(
        Json{{"stage", entry.stage}, {"name", entry.name}, {"bytes", entry.bytes}, {"source", entry.source}});
  }
  return Json{{"groups", std::move(groups)},
              {"page_size_bytes", report.page_size_bytes},
              {"bytes_per_token", number(report.bytes_per_token)},
              {"num_blocks", report.num_blocks},
              {"num_tokens", report.num_tokens},
              {"max_concurrency", number(report.max_concurrency)},
              {"max_model_len_fit", report.max_model_len_fit},
              {"ledger", Json{{"total_bytes", report.ledger_bytes},
                              {"bytes_per_block", report.bytes_per_block},
                              {"fits", report.fits},
                              {"missing_bytes", report.missing_bytes},
                              {"would_fit", suggestions},
                              {"entries", std::move(entries)}}}};
}

}  // namespace kvpool::tools
