// Two devices in host memory: which of them each call was made on, which memory is theirs, and graphs of launches that
// can be replayed.
//
// Memory that is freed is overwritten and kept until reset(): a replayed launch that still uses it computes nothing,
// in every build. Work is done at once, in the order of the calls; while a graph is captured, launches are only noted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/kernels/fake_cuda/cuda_runtime_api.h"

namespace kvpool::kernels::test {

class FakeDevices {
 public:
  static constexpr int kCount = 2;

  struct Call {
    std::string what;  ///< "allocate", "free", "copy", "copy batch", or the kernel of a launch
    int device;        ///< that was current
    std::size_t size;  ///< bytes, pages of a batch or thread blocks
  };
  using Graph = std::vector<std::function<void()>>;

  static FakeDevices& get();

  /// Device 0 current, no calls noted, nothing to fail, no memory: what a test starts from.
  void reset();

  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  void forget_calls() { calls_.clear(); }
  /// Arrays in use by address.
  [[nodiscard]] std::map<const void*, std::size_t> live() const;

  /// Memory of a test that shall count as a device's or as page-locked; what is not named is pageable.
  void mark(const void* memory, std::size_t bytes, cudaMemoryType type);
  /// The n-th allocation, copy or launch from now fails (1 is the next one); 0: none does.
  void fail_at(int n) { fail_at_ = n; }

  void begin_capture() { capturing_ = true; }
  [[nodiscard]] Graph end_capture();

  // --- for the runtime and the launchers ---

  /// Notes the call; the error it shall answer with.
  cudaError_t note(const char* what, std::size_t size, cudaError_t failure);
  /// note(), then `work` now or, while a graph is captured, whenever that is replayed.
  cudaError_t launch(const char* kernel, std::size_t blocks, std::function<void()> work);
  cudaError_t allocate(void** memory, std::size_t bytes);
  cudaError_t free(void* memory);
  [[nodiscard]] cudaMemoryType type_of(const void* pointer) const;

  int current = 0;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> memory;
    std::size_t bytes;
    int device;
    bool freed = false;
  };
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    cudaMemoryType type;
  };

  std::vector<Call> calls_;
  std::vector<Block> blocks_;
  std::vector<Range> ranges_;
  Graph graph_;
  bool capturing_ = false;
  int fail_at_ = 0;
};

}  // namespace kvpool::kernels::test
