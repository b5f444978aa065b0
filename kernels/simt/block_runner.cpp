// The scheduler. Compiled without race checking: it is the machine, not the program.
#include "kernels/simt/block_runner.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "kernels/simt/sanitizer_hooks.hpp"

namespace kvpool::kernels::simt {
namespace {

constexpr int kWarp = 32;
constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kMaxArrays = 16;

/// A stack with a guard page whose place the address checker can be told.
struct KnownStack {
  Fibre* fibre;

  boost::context::stack_context allocate() {
    boost::context::protected_fixedsize_stack inner(kStackBytes);
    const boost::context::stack_context stack = inner.allocate();
    fibre->stack_bottom = static_cast<const char*>(stack.sp) - stack.size;
    fibre->stack_size = stack.size;
    return stack;
  }
  void deallocate(boost::context::stack_context& stack) {
    unpoison(static_cast<const char*>(stack.sp) - stack.size, stack.size);  // what its last frames left behind
    boost::context::protected_fixedsize_stack inner(kStackBytes);
    inner.deallocate(stack);
  }
};

/// Threads as the race checker knows them cost milliseconds to make, so they are kept and used again.
class IdentityPool {
 public:
  static IdentityPool& instance() {
    static IdentityPool pool;
    return pool;
  }
  std::vector<void*> take(int count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (static_cast<int>(free_.size()) < count) free_.push_back(new_thread_identity());
    std::vector<void*> taken(free_.end() - count, free_.end());
    free_.resize(free_.size() - taken.size());
    return taken;
  }
  void give_back(const std::vector<void*>& identities) {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.insert(free_.end(), identities.begin(), identities.end());
  }

 private:
  std::mutex mutex_;
  std::vector<void*> free_;
};

void exchange_values(Fibre* lanes) {
  float given[kWarp];
  for (int i = 0; i < kWarp; ++i) given[i] = lanes[i].value;
  for (int i = 0; i < kWarp; ++i) lanes[i].value = given[i ^ lanes[i].mask];
}

void multiply_warp(Fibre* lanes) {
  float a[16][16];
  float b[16][8];
  for (int lane = 0; lane < kWarp; ++lane) {
    const int g = lane / 4;
    const int t = lane % 4;
    const Fragments& own = lanes[lane].fragments;
    for (int i = 0; i < 8; ++i) a[g + i / 2 % 2 * 8][t * 2 + i % 2 + i / 4 * 8] = own.a[i];
    for (int i = 0; i < 4; ++i) b[t * 2 + i % 2 + i / 2 * 8][g] = own.b[i];
  }
  for (int lane = 0; lane < kWarp; ++lane) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + i / 2 * 8;
      const int column = lane % 4 * 2 + i % 2;
      float sum = lanes[lane].fragments.c[i];
      for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
      lanes[lane].fragments.c[i] = sum;
    }
  }
}

std::string place(const Site& site, int thread) {
  return std::string(site.file) + ":" + std::to_string(site.line) + " (thread " + std::to_string(thread) + ")";
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : bytes_((bytes + 15) / 16 * 16 + kMaxArrays * kRedzone) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t body = (bytes_ + page - 1) / page * page;
  mapped_ = body + page;
  void* mapping = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw std::runtime_error("no memory for a block's shared memory");
  mapping_ = static_cast<unsigned char*>(mapping);
  unpoison(mapping_, mapped_);
  mprotect(mapping_ + body, page, PROT_NONE);
  data_ = mapping_ + body - bytes_;
  std::memset(data_, 0xFF, bytes_);  // NaN in every format
}

SharedMemory::~SharedMemory() {
  unpoison(mapping_, mapped_);
  munmap(mapping_, mapped_);
}

BlockRunner::BlockRunner(const Grid& grid, const std::function<void()>& kernel, const LaunchOptions& options,
                         char* end_token)
    : grid_(grid),
      kernel_(kernel),
      options_(options),
      end_token_(end_token),
      scheduler_identity_(current_thread_identity()),
      rng_(options.seed) {
  for (auto& identities : identities_) identities = IdentityPool::instance().take(grid.threads);
}

BlockRunner::~BlockRunner() {
  for (auto& identities : identities_) IdentityPool::instance().give_back(identities);
}

void BlockRunner::start_fibre(int index) {
  Fibre& fibre = fibres_[static_cast<std::size_t>(index)];
  fibre.identity = identities_[blocks_run_ % 2][static_cast<std::size_t>(index)];
  fibre.context =
      boost::context::fiber(std::allocator_arg, KnownStack{&fibre}, [this, index](boost::context::fiber&& scheduler) {
        scheduler_ = std::move(scheduler);
        fibre_main(index);
        return std::move(scheduler_);
      });
}

void BlockRunner::fibre_main(int index) {
  finish_switch(nullptr, &scheduler_stack_, &scheduler_stack_size_);
  acquire(&start_token_);
  Fibre& self = fibres_[static_cast<std::size_t>(index)];
  self.groups.resize(1);
  try {
    kernel_();
  } catch (const BlockFailed&) {
    failed_ = true;
  }
  std::vector<std::vector<PendingCopy>>().swap(self.groups);  // freed by the thread that made it
  self.state = FibreState::finished;
  release(end_token_);
  take_identity(scheduler_identity_);
  start_switch(nullptr, scheduler_stack_, scheduler_stack_size_);
}

void BlockRunner::resume(int index) {
  running_ = index;
  ++switches_;
  Fibre& fibre = fibres_[static_cast<std::size_t>(index)];
  start_switch(&scheduler_fake_stack_, fibre.stack_bottom, fibre.stack_size);
  take_identity(fibre.identity);
  fibre.context = std::move(fibre.context).resume();
  finish_switch(scheduler_fake_stack_, nullptr, nullptr);
}

void BlockRunner::pause() {
  Fibre& self = current();
  take_identity(scheduler_identity_);
  start_switch(&self.fake_stack, scheduler_stack_, scheduler_stack_size_);
  scheduler_ = std::move(scheduler_).resume();
  finish_switch(current().fake_stack, &scheduler_stack_, &scheduler_stack_size_);
  if (failed_) throw BlockFailed{};
}

void BlockRunner::barrier(Site site) {
  Fibre& self = current();
  char* token = &barrier_tokens_[self.barriers++ % 2U];
  release(token);
  self.state = FibreState::at_barrier;
  self.site = site;
  pause();
  acquire(token);
}

void BlockRunner::join_warp(int mask, Site site, void (*resolve)(Fibre* lanes)) {
  Fibre& self = current();
  self.mask = mask;
  self.site = site;
  self.state = FibreState::in_collective;
  Fibre* const lanes = fibres_.data() + running_ / kWarp * kWarp;
  const bool complete = std::all_of(lanes, lanes + kWarp, [&](const Fibre& lane) {
    return lane.state == FibreState::in_collective && lane.site == site && lane.mask == mask;
  });
  if (!complete) {
    pause();
    return;
  }
  resolve(lanes);
  for (int i = 0; i < kWarp; ++i) lanes[i].state = FibreState::runnable;
}

float BlockRunner::shuffle(float value, int mask, Site site) {
  current().value = value;
  join_warp(mask, site, exchange_values);
  return current().value;
}

void BlockRunner::multiply(const Fragments& fragments, Site site) {
  current().fragments = fragments;
  join_warp(0, site, multiply_warp);
}

std::vector<int> BlockRunner::turn_order() {
  std::vector<int> order(fibres_.size());
  std::iota(order.begin(), order.end(), 0);
  if (options_.schedule == Schedule::reverse) std::reverse(order.begin(), order.end());
  if (options_.schedule == Schedule::random) std::shuffle(order.begin(), order.end(), rng_);
  return order;
}

bool BlockRunner::release_barrier() {
  const Site site = fibres_[0].site;
  const bool together = std::all_of(fibres_.begin(), fibres_.end(), [&](const Fibre& fibre) {
    return fibre.state == FibreState::at_barrier && fibre.site == site;
  });
  if (!together) return false;
  for (Fibre& fibre : fibres_) fibre.state = FibreState::runnable;
  return true;
}

std::string BlockRunner::describe_stall() const {
  const auto name = [](FibreState state) {
    switch (state) {
      case FibreState::at_barrier: return std::string("barrier at ");
      case FibreState::in_collective: return std::string("warp collective at ");
      case FibreState::runnable:
      case FibreState::finished: break;
    }
    return std::string("end of the kernel");
  };
  const auto describe = [&](std::size_t i) {
    const Fibre& fibre = fibres_[i];
    if (fibre.state == FibreState::finished) return name(fibre.state) + " (thread " + std::to_string(i) + ")";
    return name(fibre.state) + place(fibre.site, static_cast<int>(i));
  };
  std::string text = "block (" + std::to_string(x_) + ", " + std::to_string(y_) + ") diverges: " + describe(0);
  for (std::size_t i = 1; i < fibres_.size(); ++i) {
    if (fibres_[i].state != fibres_[0].state || !(fibres_[i].site == fibres_[0].site)) {
      return text + " against " + describe(i);
    }
  }
  return text;
}

void BlockRunner::run_to_the_end() {
  while (true) {
    bool alive = false;
    bool moved = false;
    for (const int i : turn_order()) {
      const Fibre& fibre = fibres_[static_cast<std::size_t>(i)];
      if (fibre.state == FibreState::runnable) {
        resume(i);
        moved = true;
      }
      alive = alive || fibre.state != FibreState::finished;
    }
    if (!alive) return;
    if (moved || release_barrier()) continue;
    error_ = describe_stall();
    failed_ = true;
    for (Fibre& fibre : fibres_) {
      if (fibre.state != FibreState::finished) fibre.state = FibreState::runnable;
    }
  }
}

bool BlockRunner::run(int x, int y) {
  x_ = x;
  y_ = y;
  SharedMemory shared(grid_.shared_bytes);
  shared_ = &shared;
  barrier_tokens_ = std::make_unique<char[]>(2);
  fibres_.clear();
  fibres_.resize(static_cast<std::size_t>(grid_.threads));
  for (int i = 0; i < grid_.threads; ++i) start_fibre(i);
  release(&start_token_);
  run_to_the_end();
  fibres_.clear();
  ++blocks_run_;
  return error_.empty();
}

}  // namespace kvpool::kernels::simt
