// Deterministic scheduler: runs the bodies of a concurrent test as fibres, one at a time, and decides at every
// shared access who goes on. The code under test is the shipped template with Atomic<T> in place of std::atomic<T>.
//
// A run is a function of its decisions, so a failing one is replayed exactly. It is sequentially consistent: wrong
// memory orders are found elsewhere (ThreadSanitizer, Relacy), wrong interleavings here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/model/state_watch.hpp"

namespace kvpool::model {

/// Thrown by require(): ends the run, which is then reported with its schedule.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// `what` is a text, or a function that makes one, which is asked only when it is needed.
template <class What>
void require(bool condition, const What& what) {
  if (condition) return;
  if constexpr (std::is_invocable_v<What>) {
    throw Failure(what());
  } else {
    throw Failure(what);
  }
}

/// One concurrent test. A fresh one is made for every schedule.
struct Case {
  std::vector<std::function<void()>> threads;
  std::function<void()> after_each_step;  ///< invariants; may be empty; its accesses are no steps
  std::function<void()> at_end;           ///< after all threads have returned; may be empty
};
using CaseFactory = std::function<Case()>;

/// Decides who runs next.
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual void start_run(std::size_t num_threads) = 0;
  /// `runnable` is sorted and not empty; `current` ran last (or is -1) and may have finished.
  virtual int next_thread(const std::vector<int>& runnable, int current) = 0;
  /// False: whoever runs goes on; nobody is asked.
  virtual bool decides_before(StateWatch::Location /*location*/, Intent /*intent*/) { return true; }
  /// True: whatever happens from here on has been explored; the run is only brought to its end.
  virtual bool is_known() const { return false; }
  /// True: `thread` stops here until every thread that is not stopped has finished.
  virtual bool freeze_now(int /*thread*/, std::uint64_t /*step*/) { return false; }
};

struct RunResult {
  bool ok = true;
  std::string failure;
  std::uint64_t steps = 0;          ///< shared accesses of the run
  std::vector<std::uint8_t> trace;  ///< thread of each step
};

class Scheduler {
 public:
  /// A run that needs more steps is reported as waiting (a lock-free operation never is).
  explicit Scheduler(std::uint64_t max_steps = 20000);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// With a `watch`, it is told every access.
  RunResult run(const CaseFactory& factory, Strategy& strategy, StateWatch* watch = nullptr);

  /// Number of the thread that runs now, 0 outside a run.
  static int current_thread() { return active_ != nullptr && active_->current_ > 0 ? active_->current_ : 0; }

  static std::size_t current_index() { return static_cast<std::size_t>(current_thread()); }

  /// Called by Atomic before every access; returns at once outside a run.
  static void yield_point(StateWatch::Location location, Intent intent) {
    if (active_ != nullptr && active_->inside_fibre_) active_->pause(location, intent);
  }
  /// Called by a test where a call into the code under test begins (`begins`) and where it has returned; others may
  /// run before.
  static void call_boundary(bool begins);

  /// Who is to be told of accesses now: nobody outside a thread of a run.
  static StateWatch* watch() { return active_ != nullptr && active_->inside_fibre_ ? active_->watch_ : nullptr; }

  /// A name for a word, the same in every run of a case in which its maker does the same before.
  static StateWatch::Location new_location();

 private:
  struct Fibre;
  static constexpr StateWatch::Location kClock = ~StateWatch::Location{0};

  void pause(StateWatch::Location location, Intent intent);
  void check_step();
  const std::vector<int>& runnable();

  static inline Scheduler* active_ = nullptr;
  static inline StateWatch::Location words_before_run_ = 0;

  std::uint64_t max_steps_;
  bool inside_fibre_ = false;
  Case* case_ = nullptr;
  Strategy* strategy_ = nullptr;
  StateWatch* watch_ = nullptr;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<int> runnable_;
  int current_ = -1;
  int next_ = -1;
  RunResult result_;
};

}  // namespace kvpool::model
