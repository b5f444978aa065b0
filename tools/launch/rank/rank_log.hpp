// One rank's own account of a run, in a file of its own, so that nothing of several ranks is interleaved.
#pragma once

#include <chrono>
#include <fstream>
#include <string>
#include <string_view>

#include "kvpool/foundation/error.hpp"

namespace kvpool::launch {

/// Each line carries the seconds since the log was opened and is flushed, so that a killed rank's log ends where it
/// ended. Movable, not thread-safe.
class RankLog {
 public:
  /// Writes nothing.
  RankLog() = default;
  /// Creates `folder` if need be and rank-R.log in it, replacing an old one. Errors: environment, naming the file.
  [[nodiscard]] static Result<RankLog> open(const std::string& folder, int rank);

  /// `text` may have several lines.
  void write(std::string_view text);

 private:
  std::ofstream file_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kvpool::launch
