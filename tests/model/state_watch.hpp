// What tells the states apart that a run passes through, and which words threads really share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace kvpool::model {

/// What an access may do to its word, as far as is known before.
enum class Intent : std::uint8_t {
  read,
  change,
  begin_call,  ///< of the test's clock: calls that begin one after the other could do so in any order
  end_call,    ///< likewise calls that return
};

/// Fed with every access of a run. A state is the words of the atomics, what each thread has seen so far (which
/// determines where it stands and what its own variables hold), and the order in which calls began and returned (which
/// determines what the test has written down). It is kept as 64 mixed bits: two states of one exploration are taken
/// for one with a probability of about states^2 / 2^65.
///
/// A word is *shared* once two threads have accessed it in any run, one of them to change it; additions whose result
/// nobody looks at commute and do not count among themselves. What is known about words outlives the runs.
///
/// A suspended thread is *disturbed* once another thread has done something that does not commute with the access
/// before which it stopped.
class StateWatch {
 public:
  using Location = std::uint64_t;

  void start_run(std::size_t num_threads) {
    memory_ = 0;
    ended_groups_ = group_ = 0;
    group_begins_ = true;
    threads_.assign(num_threads, 0);
    suspended_.assign(num_threads, Suspended{});
  }

  void appeared(Location location, std::uint64_t value) { memory_ ^= mixed(location, value); }
  void vanished(Location location, std::uint64_t value) { memory_ ^= mixed(location, value); }

  void read(std::size_t thread, Location location, std::uint64_t value) {
    note(thread, location, kReads);
    advance(thread, value);
  }
  void wrote(std::size_t thread, Location location, std::uint64_t before, std::uint64_t after) {
    note(thread, location, kWrites);
    change(location, before, after);
    advance(thread, 0);
  }
  /// `before` is not known to the thread until result_used() says so.
  void added(std::size_t thread, Location location, std::uint64_t before, std::uint64_t after) {
    note(thread, location, kAdds);
    change(location, before, after);
    advance(thread, 0);
  }
  void result_used(std::size_t thread, Location location, std::uint64_t value) {
    note(thread, location, kReads);
    advance(thread, value);
  }

  /// A call of the thread begins or has returned. Of consecutive beginnings the order means nothing, and of
  /// consecutive returns neither: which calls overlap is the same.
  void boundary(std::size_t thread, Location clock, bool begins) {
    note_use(clock, thread, kWrites);
    for (Suspended& other : suspended_) {
      const bool same = other.intent == (begins ? Intent::begin_call : Intent::end_call);
      if (other.location == clock && !same) other.disturbed = true;
    }
    advance(thread, 0);
    if (begins != group_begins_) {
      ended_groups_ = mixed(ended_groups_, group_);
      group_ = 0;
      group_begins_ = begins;
    }
    group_ += mixed(thread + 1, 0);
  }

  void suspend(std::size_t thread, Location before, Intent intent) { suspended_[thread] = {before, intent, false}; }
  void resume(std::size_t thread) { suspended_[thread] = Suspended{}; }
  /// True also for a thread that is not suspended.
  [[nodiscard]] bool disturbed(std::size_t thread) const { return suspended_[thread].disturbed; }

  void started(std::size_t thread) { advance(thread, 1); }
  void finished(std::size_t thread) { advance(thread, 2); }

  /// The state, with the thread that has the processor (-1: none).
  [[nodiscard]] std::uint64_t state(int current) const {
    std::uint64_t all = mixed(memory_, mixed(ended_groups_, group_));
    for (const std::uint64_t thread : threads_) all = mixed(all, thread);
    for (const Suspended& thread : suspended_) all = all * 2 + (thread.disturbed ? 1 : 0);
    return mixed(all, static_cast<std::uint64_t>(current + 1));
  }

  [[nodiscard]] bool shared(Location location) const {
    if (location < known_.size()) return known_[location].shared;
    const auto found = made_in_runs_.find(location);
    return found != made_in_runs_.end() && found->second.shared;
  }
  /// How many words have become shared so far.
  [[nodiscard]] std::size_t num_shared() const { return num_shared_; }

 private:
  enum Use : std::uint8_t { kReads, kWrites, kAdds };
  struct Users {
    std::uint32_t threads[3] = {};  ///< by Use, one bit for each thread
    bool shared = false;
  };
  struct Suspended {
    Location location = kNowhere;
    Intent intent = Intent::read;
    bool disturbed = true;
  };
  static constexpr Location kNowhere = ~Location{0} - 1;
  static constexpr Location kMaxKnown = 1U << 20U;

  static std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = (a ^ (b * 0x9e3779b97f4a7c15U)) + 0x632be59bd9b4e019U + b;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }
  void change(Location location, std::uint64_t before, std::uint64_t after) {
    memory_ ^= mixed(location, before) ^ mixed(location, after);
  }
  void advance(std::size_t thread, std::uint64_t seen) { threads_[thread] = mixed(threads_[thread] + 1, seen); }
  void note(std::size_t thread, Location location, Use use) {
    note_use(location, thread, use);
    for (Suspended& other : suspended_) {
      if (other.location == location && (use != kReads || other.intent != Intent::read)) other.disturbed = true;
    }
  }
  Users& users_of(Location location) {
    if (location >= kMaxKnown) return made_in_runs_[location];
    if (location >= known_.size()) known_.resize(location + 1);
    return known_[location];
  }
  void note_use(Location location, std::size_t thread, Use use) {
    Users& users = users_of(location);
    const std::uint32_t bit = 1U << thread;
    if (users.shared || (users.threads[use] & bit) != 0) return;
    users.threads[use] |= bit;
    const std::uint32_t written = users.threads[kWrites] | users.threads[kAdds];
    const std::uint32_t all = users.threads[kReads] | written;
    const bool alone = (all & (all - 1)) == 0;
    const bool commute = users.threads[kWrites] == 0 && (users.threads[kReads] == 0 || written == 0);
    users.shared = !alone && !commute;
    num_shared_ += users.shared ? 1U : 0U;
  }

  std::uint64_t memory_ = 0;
  std::uint64_t ended_groups_ = 0;
  std::uint64_t group_ = 0;
  bool group_begins_ = true;
  std::vector<std::uint64_t> threads_;
  std::vector<Suspended> suspended_;
  std::vector<Users> known_;  ///< of words made before the runs, which have small names
  std::unordered_map<Location, Users> made_in_runs_;
  std::size_t num_shared_ = 0;
};

}  // namespace kvpool::model
