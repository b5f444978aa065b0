#include "tests/model/scheduler.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <utility>

namespace kvpool::model {
namespace {

constexpr std::size_t kStackBytes = 64 * 1024;

/// Stacks are kept: making one costs more than a whole run.
class StackCache {
 public:
  boost::context::stack_context allocate() {
    if (free_.empty()) return boost::context::fixedsize_stack(kStackBytes).allocate();
    const boost::context::stack_context stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) noexcept { free_.push_back(stack); }
  static StackCache& instance() {
    static StackCache cache;
    return cache;
  }
  StackCache() { free_.reserve(64); }
  StackCache(const StackCache&) = delete;
  StackCache& operator=(const StackCache&) = delete;
  ~StackCache() {
    boost::context::fixedsize_stack owner(kStackBytes);
    for (boost::context::stack_context& stack : free_) owner.deallocate(stack);
  }

 private:
  std::vector<boost::context::stack_context> free_;
};

struct CachedStack {
  boost::context::stack_context allocate() { return StackCache::instance().allocate(); }
  void deallocate(boost::context::stack_context& stack) noexcept { StackCache::instance().deallocate(stack); }
};

}  // namespace

struct Scheduler::Fibre {
  boost::context::fiber context;  // of the thread when it is paused
  boost::context::fiber back;     // of the scheduler while the thread runs
  bool finished = false;
  bool frozen = false;
  std::uint32_t words_made = 0;
  std::string failure;
};

Scheduler::Scheduler(std::uint64_t max_steps) : max_steps_(max_steps) {}

Scheduler::~Scheduler() = default;

const std::vector<int>& Scheduler::runnable() {
  runnable_.clear();
  for (std::size_t i = 0; i < fibres_.size(); ++i) {
    if (!fibres_[i]->finished && !fibres_[i]->frozen) runnable_.push_back(static_cast<int>(i));
  }
  return runnable_;
}

void Scheduler::check_step() {
  if (!case_->after_each_step || strategy_->is_known()) return;
  inside_fibre_ = false;
  try {
    case_->after_each_step();
  } catch (const Failure& failure) {
    if (result_.ok) result_.failure = failure.what();
    result_.ok = false;
  }
  inside_fibre_ = true;
}

StateWatch::Location Scheduler::new_location() {
  if (active_ == nullptr || !active_->inside_fibre_) return ++words_before_run_;
  const std::size_t thread = current_index();
  return (static_cast<StateWatch::Location>(thread + 1) << 32U) | ++active_->fibres_[thread]->words_made;
}

void Scheduler::call_boundary(bool begins) {
  yield_point(kClock, begins ? Intent::begin_call : Intent::end_call);
  if (StateWatch* const told = watch()) told->boundary(current_index(), kClock, begins);
}

void Scheduler::pause(StateWatch::Location location, Intent intent) {
  Fibre& self = *fibres_[static_cast<std::size_t>(current_)];
  check_step();
  ++result_.steps;
  result_.trace.push_back(static_cast<std::uint8_t>(current_));
  if (result_.steps > max_steps_ && result_.ok) {
    result_.ok = false;
    result_.failure = "more than " + std::to_string(max_steps_) + " steps: somebody waits";
  }
  next_ = -1;
  if (result_.ok) {
    if (!strategy_->decides_before(location, intent)) return;
    self.frozen = strategy_->freeze_now(current_, result_.steps);
    const std::vector<int>& ready = runnable();
    if (!ready.empty()) next_ = strategy_->next_thread(ready, current_);
    if (next_ == current_) return;
  }
  inside_fibre_ = false;
  self.back = std::move(self.back).resume();
  inside_fibre_ = true;
}

RunResult Scheduler::run(const CaseFactory& factory, Strategy& strategy, StateWatch* watch) {
  words_before_run_ = 0;
  Case test = factory();
  case_ = &test;
  strategy_ = &strategy;
  watch_ = watch;
  if (watch_ != nullptr) watch_->start_run(test.threads.size());
  strategy.start_run(test.threads.size());
  fibres_.clear();
  result_ = RunResult{};
  current_ = next_ = -1;
  active_ = this;
  for (std::size_t i = 0; i < test.threads.size(); ++i) {
    fibres_.push_back(std::make_unique<Fibre>());
    Fibre* fibre = fibres_.back().get();
    fibre->context =
        boost::context::fiber(std::allocator_arg, CachedStack{}, [fibre, &test, i, this](boost::context::fiber&& back) {
          fibre->back = std::move(back);
          inside_fibre_ = true;
          if (watch_ != nullptr) watch_->started(i);
          try {
            test.threads[i]();
          } catch (const Failure& failure) {
            fibre->failure = failure.what();
          }
          inside_fibre_ = false;
          if (watch_ != nullptr) watch_->finished(i);
          fibre->finished = true;
          return std::move(fibre->back);
        });
  }

  while (result_.ok) {
    const std::vector<int>& ready = runnable();
    if (ready.empty()) {
      bool thawed = false;
      for (const auto& fibre : fibres_) {
        thawed |= fibre->frozen;
        fibre->frozen = false;
      }
      if (!thawed) break;
      next_ = -1;
      continue;
    }
    if (next_ < 0) next_ = strategy.next_thread(ready, current_);
    current_ = next_;
    next_ = -1;
    Fibre& fibre = *fibres_[static_cast<std::size_t>(current_)];
    fibre.context = std::move(fibre.context).resume();
    if (!fibre.failure.empty() && result_.ok) {
      result_.ok = false;
      result_.failure = fibre.failure;
    }
    if (fibre.finished) next_ = -1;
  }

  if (result_.ok && test.at_end && !strategy.is_known()) {
    try {
      test.at_end();
    } catch (const Failure& failure) {
      result_.ok = false;
      result_.failure = failure.what();
    }
  }
  if (!result_.ok) {
    // Unfinished fibres stand in the middle of functions that must not be unwound: they are left as they are.
    for (auto& fibre : fibres_) {
      if (!fibre->finished) static_cast<void>(fibre.release());
    }
    static std::vector<Case*> abandoned;
    abandoned.push_back(new Case(std::move(test)));
  }
  fibres_.clear();
  active_ = nullptr;
  case_ = nullptr;
  return std::move(result_);
}

}  // namespace kvpool::model
