// Who computes: one enum for callers, one for the instruction sets of the CPU backend.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "kvpool/foundation/error.hpp"

namespace kvpool::kernels {

enum class Backend {
  reference,  ///< double precision, one thread, for tests
  cpu,        ///< vector code, threads of oneTBB
  cuda,       ///< NVIDIA devices
};

/// Instruction sets of the CPU backend, weakest first.
enum class CpuTier {
  generic,      ///< what every x86-64 or other target of the compiler has
  avx2,         ///< AVX2, FMA, F16C
  avx512,       ///< AVX-512 F, BW, VL, DQ
  avx512_bf16,  ///< the former with BF16 dot products and VBMI byte tables
  neon,         ///< 64-bit Arm
};

[[nodiscard]] std::string_view to_string(Backend backend) noexcept;
[[nodiscard]] std::string_view to_string(CpuTier tier) noexcept;

/// Whether this process can run `tier`: compiled in and supported by the processor. O(1), thread-safe.
[[nodiscard]] bool tier_available(CpuTier tier) noexcept;

/// The strongest tier that is available. O(1), thread-safe.
[[nodiscard]] CpuTier best_tier() noexcept;

/// All tiers that are available, weakest first.
[[nodiscard]] std::vector<CpuTier> available_tiers();

/// ok when `backend` can run now. cuda: unsupported when not built in, environment when no driver or no device answers.
[[nodiscard]] Status backend_available(Backend backend);

/// How to run. The defaults use the strongest tier and all threads of the calling oneTBB arena.
struct ExecOptions {
  Backend backend = Backend::cpu;
  std::optional<CpuTier> tier;  ///< cpu only (attention, casts); one that is not available is refused as unsupported
  int max_threads = 0;          ///< cpu only; 0: as many as the calling arena has; 1: no other thread is touched
  int device = 0;               ///< cuda only: ordinal of the device that owns all pointers
  void* stream = nullptr;       ///< cuda only: a cudaStream_t of that device; work is queued, not awaited
};

}  // namespace kvpool::kernels
