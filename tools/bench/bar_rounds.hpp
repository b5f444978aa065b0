// Bars: kvpool beside a limit or a rival, by turns in the same run, judged by the median of the ratios.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/interleave.hpp"

namespace kvpool::tools {

/// At least this many turns.
inline constexpr int kBarRounds = 9;
/// A limit that varies more than this from its fastest to its slowest turn is no limit.
inline constexpr double kMaxLimitSpread = 2.0;

/// Seconds of each piece of work, turn by turn.
struct BarTimes {
  std::vector<std::vector<double>> seconds;  ///< [work][turn]
  bool reliable = true;                      ///< other processes left every turn alone
};

/// Does all pieces of work in order, again and again. With plan.smoke once. Ends early on an interrupt.
[[nodiscard]] BarTimes run_rounds(const BenchPlan& plan, const std::vector<std::function<void()>>& work);

struct Bar {
  std::string name;
  std::string against;  ///< what the ratio is taken to
  unsigned threads = 1;
  double floor = 0;
  double good = 0;
  double bytes = 0;  ///< moved by each side; 0: no rate is shown
};

/// limit / own, turn by turn, as a row: ratio (median), floor, good, the spread of the limit, rates. A limit that
/// varies too much leaves `ratio` out and says judged 0.
[[nodiscard]] BenchRow bar_row(const Bar& bar, const std::vector<double>& limit, const std::vector<double>& own,
                               bool reliable);

}  // namespace kvpool::tools
