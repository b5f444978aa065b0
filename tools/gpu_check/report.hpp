// Rows of results: one file per step, written line by line, so that a step that is cut off keeps what it had.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace kvpool::gpu_check {

enum class Better { higher, lower };

struct Row {
  std::string step;
  std::string name;
  std::string value;
  std::string unit;
  std::string floor;
  std::string good;
  std::string verdict;  ///< good, floor, below, ok, FAILED or info
  std::string note;
};

class Report {
 public:
  /// Appends to FOLDER/STEP.tsv; `folder` exists.
  Report(const std::string& folder, std::string step);
  ~Report();
  Report(const Report&) = delete;
  Report& operator=(const Report&) = delete;

  void info(const std::string& name, const std::string& value, const std::string& unit = "",
            const std::string& note = "");
  void info(const std::string& name, double value, const std::string& unit, const std::string& note = "");
  /// A measured ratio against the two columns of its bar. Below the floor is no failure of the run: it is a result.
  void bar(const std::string& name, double value, const std::string& unit, double floor, double good, Better better,
           const std::string& note = "");
  /// Something that is right or wrong; false counts as a failure of the step.
  bool check(const std::string& name, bool ok, const std::string& note = "");

  [[nodiscard]] int failures() const noexcept { return failures_; }

 private:
  void write(const Row& row);

  std::string step_;
  std::FILE* file_;
  int failures_ = 0;
};

/// Reads every .tsv of `folder`, writes FOLDER/results.json and prints the table. Returns 0 when no row says FAILED.
[[nodiscard]] int print_results(const std::string& folder);

}  // namespace kvpool::gpu_check
