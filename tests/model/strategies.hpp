// Ways through the space of schedules: random walk, priorities, bounded exhaustive search, freezing, replay.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/model/reached_states.hpp"
#include "tests/model/scheduler.hpp"

namespace kvpool::model {

/// Any runnable thread with equal probability at every step.
class RandomWalk : public Strategy {
 public:
  explicit RandomWalk(std::uint64_t seed) : random_(seed) {}
  void start_run(std::size_t /*num_threads*/) override {}
  int next_thread(const std::vector<int>& runnable, int /*current*/) override {
    return runnable[random_() % runnable.size()];
  }

 protected:
  std::mt19937_64 random_;
};

/// Random priorities, lowered at a few random steps (probabilistic concurrency testing): finds bugs that need
/// one thread to run far ahead of another.
class Priorities : public Strategy {
 public:
  Priorities(std::uint64_t seed, std::uint64_t expected_steps, int changes)
      : random_(seed), expected_steps_(expected_steps), changes_(changes) {}
  void start_run(std::size_t num_threads) override {
    priority_.resize(num_threads);
    for (std::size_t i = 0; i < num_threads; ++i) priority_[i] = static_cast<std::int64_t>(i) + 1000;
    std::shuffle(priority_.begin(), priority_.end(), random_);
    change_at_.clear();
    for (int i = 0; i < changes_; ++i) change_at_.push_back(random_() % std::max<std::uint64_t>(1, expected_steps_));
    step_ = 0;
    lowest_ = 0;
  }
  int next_thread(const std::vector<int>& runnable, int current) override {
    ++step_;
    if (current >= 0 && std::find(change_at_.begin(), change_at_.end(), step_) != change_at_.end()) {
      priority_[static_cast<std::size_t>(current)] = --lowest_;
    }
    return *std::max_element(runnable.begin(), runnable.end(), [this](int a, int b) {
      return priority_[static_cast<std::size_t>(a)] < priority_[static_cast<std::size_t>(b)];
    });
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t expected_steps_;
  int changes_;
  std::vector<std::int64_t> priority_;
  std::vector<std::uint64_t> change_at_;
  std::uint64_t step_ = 0;
  std::int64_t lowest_ = 0;
};

/// Every schedule with at most `bound` preemptions, depth first. Switching away from a finished thread is free.
class Exhaustive : public Strategy {
 public:
  explicit Exhaustive(int bound) : bound_(bound) {}
  void start_run(std::size_t /*num_threads*/) override {
    position_ = 0;
    preemptions_ = 0;
  }
  int next_thread(const std::vector<int>& runnable, int current) override {
    const bool can_stay = std::find(runnable.begin(), runnable.end(), current) != runnable.end();
    if (position_ == choices_.size()) {
      std::vector<int> options;
      if (can_stay) options.push_back(current);
      if (!can_stay || preemptions_ < bound_) {
        for (const int thread : runnable) {
          if (thread != current || !can_stay) options.push_back(thread);
        }
      }
      choices_.push_back({std::move(options), 0});
    }
    const Choice& choice = choices_[position_++];
    const int chosen = choice.options[choice.taken];
    if (can_stay && chosen != current) ++preemptions_;
    return chosen;
  }
  /// Moves to the next unexplored schedule; false when there is none.
  bool advance() {
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().options.size()) choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }

 private:
  struct Choice {
    std::vector<int> options;
    std::size_t taken;
  };
  int bound_;
  int preemptions_ = 0;
  std::size_t position_ = 0;
  std::vector<Choice> choices_;
};

/// The outcomes of all schedules with at most `bound` preemptions, with far fewer runs:
///  - a thread is preempted only before an access to a shared word, since its other accesses commute with everything
///    that others do: they may as well come before the preemption;
///  - a preempted thread goes on only after it was disturbed, since otherwise its next access, too, might have come
///    before the preemption;
///  - a run is over where it reaches a state that was reached before with no more preemptions.
/// The first two leave out schedules to which another one is equivalent: every access sees the same, and no more
/// preemptions are needed. Taking an access to an earlier turn of its thread can be repeated only finitely often, so
/// one of the equivalent schedules is left.
///
/// Which words are shared is learnt on the way; when one turns out to be, the search begins anew (restart()), so that
/// at its end no run has had an access to an unshared word that another thread's access could disturb.
class ReducedExhaustive : public Strategy {
 public:
  explicit ReducedExhaustive(int bound) : bound_(bound) {}
  void start_run(std::size_t /*num_threads*/) override {
    position_ = 0;
    preemptions_ = 0;
    known_ = false;
  }
  bool decides_before(StateWatch::Location location, Intent intent) override {
    location_ = location;
    intent_ = intent;
    return !known_ && watch.shared(location);
  }
  [[nodiscard]] bool is_known() const override { return known_; }
  int next_thread(const std::vector<int>& runnable, int current) override {
    const bool can_stay = std::find(runnable.begin(), runnable.end(), current) != runnable.end();
    const bool must_stay = can_stay && preemptions_ == bound_;
    if (!known_ && position_ == choices_.size()) choose(runnable, can_stay ? current : -1, must_stay);
    if (known_) return can_stay ? current : runnable.front();
    if (must_stay) return current;
    const Choice& choice = choices_[position_++];
    const int chosen = choice.options[choice.taken];
    if (can_stay && chosen != current) {
      ++preemptions_;
      watch.suspend(static_cast<std::size_t>(current), location_, intent_);
    }
    watch.resume(static_cast<std::size_t>(chosen));
    return chosen;
  }
  /// Moves to the next unexplored schedule; false when there is none.
  bool advance() {
    while (!choices_.empty() && choices_.back().taken + 1U == choices_.back().count) choices_.pop_back();
    if (choices_.empty()) return false;
    ++choices_.back().taken;
    return true;
  }
  void restart() {
    choices_.clear();
    reached_.clear();
  }

  StateWatch watch;

 private:
  static constexpr std::size_t kMaxThreads = 8;
  struct Choice {
    std::array<std::uint8_t, kMaxThreads> options{};
    std::uint8_t count = 0;
    std::uint8_t taken = 0;
    void add(int thread) { options[count++] = static_cast<std::uint8_t>(thread); }
  };

  /// `current` is -1 if whoever ran last has finished.
  void choose(const std::vector<int>& runnable, int current, bool must_stay) {
    const std::uint64_t state = watch.state(current);
    // Where nothing is to be chosen, a sample of the states is enough: a run that has come to a known one meets
    // another of the sample soon.
    if (must_stay && state % 8 != 0) return;
    known_ = !reached_.reach(state, preemptions_);
    if (known_ || must_stay) return;
    Choice choice;
    if (current >= 0) choice.add(current);
    for (const int thread : runnable) {
      if (thread != current && watch.disturbed(static_cast<std::size_t>(thread))) choice.add(thread);
    }
    known_ = choice.count == 0;
    if (!known_) choices_.push_back(choice);
  }

  int bound_;
  int preemptions_ = 0;
  bool known_ = false;
  StateWatch::Location location_ = 0;
  Intent intent_ = Intent::read;
  std::size_t position_ = 0;
  std::vector<Choice> choices_;
  ReachedStates reached_;
};

/// Random walk in which some threads, never all, stop at a random step until the others have finished.
class RandomFreeze : public RandomWalk {
 public:
  RandomFreeze(std::uint64_t seed, std::uint64_t expected_steps) : RandomWalk(seed), expected_steps_(expected_steps) {}
  void start_run(std::size_t num_threads) override {
    freeze_at_.assign(num_threads, 0);
    steps_of_.assign(num_threads, 0);
    const std::size_t survivor = random_() % num_threads;
    for (std::size_t i = 0; i < num_threads; ++i) {
      if (i != survivor && random_() % 2 == 0)
        freeze_at_[i] = 1 + random_() % std::max<std::uint64_t>(1, expected_steps_);
    }
  }
  bool freeze_now(int thread, std::uint64_t /*step*/) override {
    const auto index = static_cast<std::size_t>(thread);
    return ++steps_of_[index] == freeze_at_[index];
  }

 private:
  std::uint64_t expected_steps_;
  std::vector<std::uint64_t> freeze_at_;
  std::vector<std::uint64_t> steps_of_;
};

/// One thread stops at its step number `freeze_at`; the others run one after the other.
class FreezeOneAt : public Strategy {
 public:
  FreezeOneAt(int thread, std::uint64_t freeze_at) : thread_(thread), freeze_at_(freeze_at) {}
  void start_run(std::size_t /*num_threads*/) override { steps_ = 0; }
  int next_thread(const std::vector<int>& runnable, int current) override {
    if (std::find(runnable.begin(), runnable.end(), thread_) != runnable.end() && steps_ < freeze_at_) return thread_;
    return std::find(runnable.begin(), runnable.end(), current) != runnable.end() ? current : runnable.front();
  }
  bool freeze_now(int thread, std::uint64_t /*step*/) override {
    if (thread != thread_) return false;
    return ++steps_ == freeze_at_;
  }
  [[nodiscard]] bool was_reached() const { return steps_ >= freeze_at_; }

 private:
  int thread_;
  std::uint64_t freeze_at_;
  std::uint64_t steps_ = 0;
};

/// The decisions of a former run, taken from its trace.
class Replay : public Strategy {
 public:
  explicit Replay(std::vector<std::uint8_t> trace) : trace_(std::move(trace)) {}
  void start_run(std::size_t /*num_threads*/) override { position_ = 0; }
  int next_thread(const std::vector<int>& runnable, int current) override {
    if (position_ < trace_.size()) {
      const int wanted = trace_[position_];
      if (std::find(runnable.begin(), runnable.end(), wanted) != runnable.end()) {
        ++position_;
        return wanted;
      }
    }
    return std::find(runnable.begin(), runnable.end(), current) != runnable.end() ? current : runnable.front();
  }

 private:
  std::vector<std::uint8_t> trace_;
  std::size_t position_ = 0;
};

}  // namespace kvpool::model
