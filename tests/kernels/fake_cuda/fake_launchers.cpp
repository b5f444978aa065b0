// The launchers of kernels/cuda, with the executor in place of a device: grids and blocks are those of the .cu files.
#include "kernels/cuda/launchers.hpp"

#include <stdexcept>

#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/merge.cuh"
#include "kernels/dtype_dispatch.hpp"
#include "tests/kernels/fake_cuda/fake_device.hpp"
#include "tests/kernels/simt_attention.hpp"

namespace kvpool::kernels::gpu {
namespace {

using test::FakeDevices;

constexpr int kCacheThreads = 256;

void must(const simt::LaunchResult& result) {
  if (!result.ok()) throw std::runtime_error(result.error);
}

simt::Grid grid_of(std::int64_t x, std::int64_t y, int threads) {
  simt::Grid grid;
  grid.x = static_cast<int>(x);
  grid.y = static_cast<int>(y);
  grid.threads = threads;
  return grid;
}

std::size_t blocks_of(const simt::Grid& grid) {
  return static_cast<std::size_t>(grid.x) * static_cast<std::size_t>(grid.y);
}

/// `kernel` holds its parameters by value, as a launch does.
template <class Kernel>
cudaError_t launch_on(const char* name, const simt::Grid& grid, Kernel kernel) {
  return FakeDevices::get().launch(name, blocks_of(grid), [grid, kernel] { must(simt::launch(grid, kernel)); });
}

cudaError_t launch_attend(DType cache, const AttendParams& params, const AttendChoice& choice, int items) {
  const auto count = static_cast<std::size_t>(items);
  const auto blocks = count * static_cast<std::size_t>(params.num_kv_heads);
  return FakeDevices::get().launch(choice.mma ? "attend_mma" : "attend", blocks,
                                   [=] { must(test::attend_on_simt(cache, choice, params, count, {})); });
}

}  // namespace

cudaError_t launch_attend_fp16(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t) {
  return launch_attend(DType::float16, params, choice, items);
}
cudaError_t launch_attend_bf16(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t) {
  return launch_attend(DType::bfloat16, params, choice, items);
}
cudaError_t launch_attend_e4m3(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t) {
  return launch_attend(DType::fp8_e4m3, params, choice, items);
}
cudaError_t launch_attend_e5m2(const AttendParams& params, const AttendChoice& choice, int items, cudaStream_t) {
  return launch_attend(DType::fp8_e5m2, params, choice, items);
}

cudaError_t launch_merge(const MergeParams& params, int blocks, cudaStream_t) {
  return launch_on("merge", grid_of(std::int64_t{blocks} * params.rows_per_block, params.num_kv_heads, kThreads),
                   [params] { merge_block(params); });
}

cudaError_t launch_merge_pair(const MergePairParams& params, std::int64_t rows, cudaStream_t) {
  return launch_on("merge_pair", grid_of(rows, 1, kThreads), [params] { merge_pair_block(params); });
}

cudaError_t launch_append(const AppendParams& params, DType cache, DType from, std::int64_t tokens, cudaStream_t) {
  return with_cache_type(cache, [&](auto to) {
    return with_compute_type(from, [&](auto source) {
      using Cache = typename decltype(to)::type;
      using New = typename decltype(source)::type;
      return launch_on("append", grid_of(tokens, 1, kCacheThreads), [params] { append_block<Cache, New>(params); });
    });
  });
}

cudaError_t launch_copy_pages(const CopyParams& params, int pairs, int jobs, bool wide, cudaStream_t) {
  const simt::Grid grid = grid_of(pairs, jobs, kCacheThreads);
  if (wide) return launch_on("copy wide", grid, [params] { copy_page_block<Unit16>(params); });
  return launch_on("copy bytes", grid, [params] { copy_page_block<std::uint8_t>(params); });
}

}  // namespace kvpool::kernels::gpu
