// Runs a case under many schedules and reports the first that fails, with what is needed to run it again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "tests/model/scheduler.hpp"
#include "tests/model/strategies.hpp"

namespace kvpool::model {

struct Exploration {
  bool ok = true;
  std::string failure;  ///< with strategy, seed and schedule
  std::uint64_t schedules = 0;
  std::uint64_t longest_run = 0;  ///< steps
  bool complete = false;          ///< nothing is left of what was to be explored
  RunResult failing_run;
};

inline std::string describe(const RunResult& run) {
  std::string text = run.failure + "; schedule:";
  for (std::size_t i = 0; i < run.trace.size();) {  // run-length: thread x steps
    std::size_t end = i;
    while (end < run.trace.size() && run.trace[end] == run.trace[i]) ++end;
    text += " " + std::to_string(run.trace[i]) + "x" + std::to_string(end - i);
    i = end;
  }
  return text;
}

/// Counts a run; true when it failed.
inline bool note(Exploration& exploration, RunResult&& run, const std::string& how) {
  ++exploration.schedules;
  exploration.longest_run = std::max(exploration.longest_run, run.steps);
  if (run.ok) return false;
  exploration.ok = false;
  exploration.failure = how + ": " + describe(run);
  exploration.failing_run = std::move(run);
  return true;
}

inline Exploration explore_exhaustively(const CaseFactory& factory, int preemption_bound, std::uint64_t max_schedules,
                                        std::uint64_t max_steps = 20000) {
  Exploration exploration;
  Scheduler scheduler(max_steps);
  Exhaustive strategy(preemption_bound);
  do {
    if (note(exploration, scheduler.run(factory, strategy), "exhaustive")) return exploration;
    exploration.complete = !strategy.advance();
  } while (!exploration.complete && exploration.schedules < max_schedules);
  return exploration;
}

/// Runs `strategy` until nothing is left.
inline Exploration explore_with(ReducedExhaustive& strategy, const CaseFactory& factory, std::uint64_t max_schedules,
                                std::uint64_t max_steps = 20000) {
  Exploration exploration;
  Scheduler scheduler(max_steps);
  while (!exploration.complete && exploration.schedules < max_schedules) {
    const std::size_t shared = strategy.watch.num_shared();
    if (note(exploration, scheduler.run(factory, strategy, &strategy.watch), "exhaustive")) return exploration;
    if (strategy.watch.num_shared() > shared) {
      strategy.restart();
    } else {
      exploration.complete = !strategy.advance();
    }
  }
  return exploration;
}

/// Finds what explore_exhaustively finds, with far fewer runs; see ReducedExhaustive for why.
inline Exploration explore_reduced(const CaseFactory& factory, int preemption_bound, std::uint64_t max_schedules) {
  ReducedExhaustive strategy(preemption_bound);
  Scheduler scheduler;
  Exploration first;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {  // most shared words show up at once
    RandomWalk walk(seed);
    if (note(first, scheduler.run(factory, walk, &strategy.watch), "random walk, seed " + std::to_string(seed))) {
      return first;
    }
  }
  Exploration exploration = explore_with(strategy, factory, max_schedules);
  exploration.schedules += first.schedules;
  exploration.longest_run = std::max(exploration.longest_run, first.longest_run);
  return exploration;
}

/// A third each: random walk, priorities, random freezing. The seed of a schedule is first_seed + its number.
inline Exploration explore_randomly(const CaseFactory& factory, std::uint64_t schedules, std::uint64_t first_seed,
                                    std::uint64_t max_steps = 20000) {
  Exploration exploration;
  Scheduler scheduler(max_steps);
  for (std::uint64_t i = 0; i < schedules; ++i) {
    const std::uint64_t seed = first_seed + i;
    const std::string how = "seed " + std::to_string(seed);
    const std::uint64_t expected = std::max<std::uint64_t>(16, exploration.longest_run);
    bool failed = false;
    if (i % 3 == 0) {
      RandomWalk strategy(seed);
      failed = note(exploration, scheduler.run(factory, strategy), "random walk, " + how);
    } else if (i % 3 == 1) {
      Priorities strategy(seed, expected, 3);
      failed = note(exploration, scheduler.run(factory, strategy), "priorities, " + how);
    } else {
      RandomFreeze strategy(seed, expected / 2);
      failed = note(exploration, scheduler.run(factory, strategy), "freeze, " + how);
    }
    if (failed) break;
  }
  return exploration;
}

/// Stops each thread at each of its steps, once, and lets the others finish first.
inline Exploration freeze_everywhere(const CaseFactory& factory, int num_threads, std::uint64_t max_steps = 20000) {
  Exploration exploration;
  Scheduler scheduler(max_steps);
  for (int thread = 0; thread < num_threads; ++thread) {
    for (std::uint64_t step = 1;; ++step) {
      FreezeOneAt strategy(thread, step);
      const std::string how = "thread " + std::to_string(thread) + " frozen at its step " + std::to_string(step);
      if (note(exploration, scheduler.run(factory, strategy), how)) return exploration;
      if (!strategy.was_reached()) break;
    }
  }
  return exploration;
}

}  // namespace kvpool::model
