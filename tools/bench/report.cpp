#include "tools/bench/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kvpool::tools {
namespace {

/// Four significant digits: more would pretend.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) {
    return 0;
  }
  const double scale = std::pow(10.0, 3 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json latency_json(const Percentiles& latency) {
  return {{"p50", rounded(latency.p50)},
          {"p99", rounded(latency.p99)},
          {"p999", rounded(latency.p999)},
          {"p9999", rounded(latency.p9999)},
          {"max", rounded(latency.max)}};
}

Json row_json(const BenchRow& row, bool figures) {
  Json json{{"name", row.name}, {"pool", row.pool}, {"threads", row.threads}};
  if (!figures) {
    return json;
  }
  json["ns_per_block"] = row.ns_per_block ? Json(rounded(*row.ns_per_block)) : Json(nullptr);
  json["ops_per_second"] = row.ops_per_second ? Json(rounded(*row.ops_per_second)) : Json(nullptr);
  json["latency_us"] = row.latency_us ? latency_json(*row.latency_us) : Json(nullptr);
  for (const auto& [name, value] : row.more) {
    json[name] = rounded(value);
  }
  json["reliable"] = row.reliable;
  return json;
}

}  // namespace

void BenchReport::add(BenchRow row) {
  if (print_) {
    print(row);
  }
  rows_.push_back(std::move(row));
}

bool BenchReport::reliable() const noexcept {
  return std::all_of(rows_.begin(), rows_.end(), [](const BenchRow& row) { return row.reliable; });
}

Json BenchReport::to_json() const {
  Json rows = Json::array();
  for (const BenchRow& row : rows_) {
    rows.push_back(row_json(row, figures_));
  }
  return rows;
}

void BenchReport::print(const BenchRow& row) const {
  std::string line = fmt::format("{:<30} {:<12} {:>3}", row.name, row.pool, row.threads);
  if (figures_) {
    if (row.ns_per_block) {
      line += fmt::format(" {:>9.2f} ns/block", *row.ns_per_block);
    }
    if (row.ops_per_second) {
      line += fmt::format(" {:>9.3f} M/s", *row.ops_per_second * 1e-6);
    }
    if (row.latency_us) {
      const Percentiles& latency = *row.latency_us;
      line += fmt::format("  p50 {:.2f} p99 {:.2f} p99.9 {:.2f} p99.99 {:.2f} max {:.2f} us", latency.p50, latency.p99,
                          latency.p999, latency.p9999, latency.max);
    }
    for (const auto& [name, value] : row.more) {
      line += fmt::format("  {} {:.4g}", name, value);
    }
    if (!row.reliable) {
      line += "  UNRELIABLE";
    }
  } else {
    line += "  ran";
  }
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace kvpool::tools
