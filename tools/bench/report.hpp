// Rows of figures: collected while the benchmark runs, printed as a table or as JSON.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/statistics.hpp"
#include "tools/cli/json_output.hpp"

namespace kvpool::tools {

struct BenchRow {
  std::string name;
  std::string pool;  ///< who was measured: kvpool, a rival, a hash algorithm
  unsigned threads = 1;
  std::optional<double> ns_per_block;
  std::optional<double> ops_per_second;
  std::optional<Percentiles> latency_us;
  std::map<std::string, double> more;  ///< further figures, by name
  bool reliable = true;                ///< false: other processes disturbed every try
};

class BenchReport {
 public:
  /// `print`: write each row to stdout as it comes (the human table). `figures` false: only what ran.
  BenchReport(bool print, bool figures) : print_(print), figures_(figures) {}

  void add(BenchRow row);
  [[nodiscard]] const std::vector<BenchRow>& rows() const noexcept { return rows_; }
  [[nodiscard]] bool reliable() const noexcept;
  [[nodiscard]] Json to_json() const;

 private:
  void print(const BenchRow& row) const;

  bool print_;
  bool figures_;
  std::vector<BenchRow> rows_;
};

}  // namespace kvpool::tools
