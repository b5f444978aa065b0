// Measures several things by turns, so that a slow minute of the machine hits all of them.
#pragma once

#include <functional>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "tools/bench/report.hpp"
#include "tools/cli/progress.hpp"

namespace kvpool::tools {

/// How long, how often, what.
struct BenchPlan {
  std::vector<unsigned> threads{1, 2, 8, 32};
  double seconds = 0.3;  ///< of one measured run
  int repetitions = 5;
  bool smoke = false;  ///< everything once and tiny, no figure is looked at
  std::regex filter;
  bool whole_family = false;  ///< the filter matches the name of the family that is being measured
  BenchReport* report = nullptr;
  Progress* progress = nullptr;  ///< counts runs; null: the rows themselves show how far it is

  [[nodiscard]] bool wants(const std::string& name) const { return whole_family || std::regex_search(name, filter); }
};

/// One measured run; what was not measured stays empty.
struct Sample {
  std::optional<double> ns_per_block;
  std::optional<double> ops_per_second;
  std::optional<Percentiles> latency_us;
  std::map<std::string, double> more;
};

/// Who is measured and how. One run may fill several rows.
struct Contender {
  std::vector<std::string> names;  ///< of the rows, one per sample that `run` answers
  std::string pool;
  unsigned threads = 1;
  std::function<std::vector<Sample>()> run;
};

/// Runs all contenders in turn, `plan.repetitions` times, and answers a row of medians for each of their names.
/// Nothing is added to the report. Ends early, with what there is, on an interrupt.
[[nodiscard]] std::vector<BenchRow> interleave(const BenchPlan& plan, const std::vector<Contender>& contenders);

/// Adds rows; those of other pools get `over_kvpool`, their time per block divided by kvpool's in the same row
/// name and thread count.
void report_against_kvpool(const BenchPlan& plan, std::vector<BenchRow> rows);

/// First row with this name and pool, or null.
[[nodiscard]] const BenchRow* find_row(const std::vector<BenchRow>& rows, const std::string& name,
                                       const std::string& pool);

}  // namespace kvpool::tools
