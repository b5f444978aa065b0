#include "tools/bench/bar_rounds.hpp"

#include <algorithm>
#include <chrono>

#include "tools/bench/quiet_run.hpp"
#include "tools/cli/interrupt.hpp"

namespace kvpool::tools {

BarTimes run_rounds(const BenchPlan& plan, const std::vector<std::function<void()>>& work) {
  using Clock = std::chrono::steady_clock;
  BarTimes times;
  times.seconds.resize(work.size());
  if (!plan.smoke) {
    for (const auto& piece : work) {
      piece();  // first use of memory and code
    }
  }
  for (int round = 0; round < (plan.smoke ? 1 : kBarRounds) && !interrupt_requested(); ++round) {
    std::vector<double> turn(work.size());
    const auto run = [&] {
      for (std::size_t i = 0; i < work.size(); ++i) {
        const auto start = Clock::now();
        work[i]();
        turn[i] = std::chrono::duration<double>(Clock::now() - start).count();
      }
    };
    if (plan.smoke) {
      run();
    } else {
      times.reliable = run_quietly(run) && times.reliable;
    }
    for (std::size_t i = 0; i < work.size(); ++i) {
      times.seconds[i].push_back(turn[i]);
    }
    if (plan.progress != nullptr) {
      plan.progress->advance();
    }
  }
  return times;
}

BenchRow bar_row(const Bar& bar, const std::vector<double>& limit, const std::vector<double>& own, bool reliable) {
  BenchRow row;
  row.name = bar.name;
  row.pool = bar.against;
  row.threads = bar.threads;
  row.reliable = reliable;
  if (limit.empty() || limit.size() != own.size()) {
    return row;
  }
  std::vector<double> ratios(limit.size());
  for (std::size_t i = 0; i < limit.size(); ++i) {
    ratios[i] = limit[i] / own[i];
  }
  const auto [least, most] = std::minmax_element(limit.begin(), limit.end());
  const double spread = *most / *least;
  row.more["turns"] = static_cast<double>(limit.size());
  row.more["limit_spread"] = spread;
  row.more["floor"] = bar.floor;
  row.more["good"] = bar.good;
  if (bar.bytes > 0) {
    row.more["gb_per_s"] = bar.bytes / median(own) * 1e-9;
    row.more["limit_gb_per_s"] = bar.bytes / median(limit) * 1e-9;
  }
  const bool judged = spread <= kMaxLimitSpread;
  row.more["judged"] = judged ? 1 : 0;
  if (judged) {
    row.more["ratio"] = median(ratios);
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    row.more["ratio_min"] = *low;
    row.more["ratio_max"] = *high;
  }
  return row;
}

}  // namespace kvpool::tools
