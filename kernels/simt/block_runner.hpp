// One block of a launch: its fibres, its shared memory, and who may run next.
#pragma once

#include <boost/context/fiber.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/simt/executor.hpp"
#include "kernels/simt/fibre.hpp"

namespace kvpool::kernels::simt {

struct Site {
  const char* file = nullptr;
  int line = 0;
  bool operator==(const Site& other) const noexcept { return line == other.line && file == other.file; }
};

/// A lane's part of a product of fragments; the memory is the lane's own.
struct Fragments {
  float* c = nullptr;
  const float* a = nullptr;
  const float* b = nullptr;
};

enum class FibreState { runnable, at_barrier, in_collective, finished };

struct Fibre {
  boost::context::fiber context;
  FibreState state = FibreState::runnable;
  Site site;                                     ///< where it waits
  unsigned barriers = 0;                         ///< passed so far
  float value = 0;                               ///< of a collective: given, then received
  int mask = 0;                                  ///< of shuffle_xor; 0 for a product
  Fragments fragments;                           ///< of a product
  std::vector<std::vector<PendingCopy>> groups;  ///< asynchronous copies; the last group is open
  std::size_t num_landed = 0;                    ///< of the oldest group
  void* identity = nullptr;                      ///< of the race checker
  void* fake_stack = nullptr;                    ///< of the address checker
  const void* stack_bottom = nullptr;
  std::size_t stack_size = 0;
};

/// Thrown in a waiting fibre when its block has failed, so that it unwinds and ends.
struct BlockFailed {};

/// Shared memory with an inaccessible page behind its last byte; made anew for every block.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  [[nodiscard]] unsigned char* data() const noexcept { return data_; }

 private:
  unsigned char* mapping_;
  std::size_t mapped_;
  unsigned char* data_;
  std::size_t bytes_;
};

class BlockRunner {
 public:
  /// `end_token`: what the race checker orders the end of every thread before.
  BlockRunner(const Grid& grid, const std::function<void()>& kernel, const LaunchOptions& options, char* end_token);
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  /// Runs block (x, y) to its end; false on an error, which error() tells.
  bool run(int x, int y);
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] std::int64_t switches() const noexcept { return switches_; }

  // For the fibre that is running.
  void barrier(Site site);
  float shuffle(float value, int mask, Site site);
  void multiply(const Fragments& fragments, Site site);
  [[nodiscard]] Fibre& current() noexcept { return fibres_[static_cast<std::size_t>(running_)]; }
  [[nodiscard]] int thread() const noexcept { return running_; }
  [[nodiscard]] int x() const noexcept { return x_; }
  [[nodiscard]] int y() const noexcept { return y_; }
  [[nodiscard]] const Grid& grid() const noexcept { return grid_; }
  [[nodiscard]] unsigned char* shared() const noexcept { return shared_->data(); }
  [[nodiscard]] bool early_copies() const noexcept { return options_.early_copies; }

 private:
  void start_fibre(int index);
  void fibre_main(int index);
  void run_to_the_end();
  void resume(int index);
  void pause();
  [[nodiscard]] std::vector<int> turn_order();
  /// Lets the threads at a common barrier go on; false when they do not all stand there.
  bool release_barrier();
  /// Waits until all lanes of the warp stand at this line; the last one to come calls resolve(lanes) for all.
  void join_warp(int mask, Site site, void (*resolve)(Fibre* lanes));
  [[nodiscard]] std::string describe_stall() const;

  const Grid& grid_;
  const std::function<void()>& kernel_;
  const LaunchOptions& options_;
  char* end_token_;
  char start_token_ = 0;
  /// Two, used in turn: with one, a fast thread's next arrival would be taken for this one's and hide races. On the
  /// heap and new for every block, so that nothing orders one block's threads before another's.
  std::unique_ptr<char[]> barrier_tokens_;
  std::vector<Fibre> fibres_;
  std::vector<void*> identities_[2];  ///< blocks take turns, so that one block's threads are not those of the next
  std::int64_t blocks_run_ = 0;
  boost::context::fiber scheduler_;
  void* scheduler_identity_ = nullptr;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_stack_ = nullptr;
  std::size_t scheduler_stack_size_ = 0;
  SharedMemory* shared_ = nullptr;
  std::mt19937 rng_;
  int running_ = 0;
  bool failed_ = false;
  int x_ = 0;
  int y_ = 0;
  std::int64_t switches_ = 0;
  std::string error_;
};

}  // namespace kvpool::kernels::simt
