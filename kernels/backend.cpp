#include "kvpool/kernels/backend.hpp"

#if defined(KVPOOL_X86_TIERS)
#include <cpuid.h>
#endif

#include "kernels/cpu/row_task.hpp"
#include "kernels/cuda/device.hpp"

namespace kvpool::kernels {
namespace {

constexpr CpuTier kTiers[] = {CpuTier::generic, CpuTier::avx2, CpuTier::avx512, CpuTier::avx512_bf16, CpuTier::neon};

#if defined(KVPOOL_X86_TIERS)
/// Two features are asked of the processor itself: clang 14 has no names for them in __builtin_cpu_supports. Once: on a
/// virtual machine every question goes to the hypervisor and takes tens of microseconds.
struct UnnamedFeatures {
  bool f16c = false;
  bool avx512_bf16 = false;
};
UnnamedFeatures ask_unnamed_features() noexcept {
  UnnamedFeatures found;
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0) found.f16c = (ecx & (1U << 29U)) != 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) found.avx512_bf16 = (eax & (1U << 5U)) != 0;
  return found;
}

bool processor_has(CpuTier tier) noexcept {
  __builtin_cpu_init();
  static const UnnamedFeatures kUnnamed = ask_unnamed_features();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && kUnnamed.f16c;
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  switch (tier) {
    case CpuTier::generic: return true;
    case CpuTier::avx2: return avx2;
    case CpuTier::avx512: return avx512;
    case CpuTier::avx512_bf16: return avx512 && kUnnamed.avx512_bf16 && __builtin_cpu_supports("avx512vbmi");
    case CpuTier::neon: return false;
  }
  return false;
}

const TierKernels* compiled_kernels(CpuTier tier) noexcept {
  switch (tier) {
    case CpuTier::generic: return generic_kernels();
    case CpuTier::avx2: return avx2_kernels();
    case CpuTier::avx512: return avx512_kernels();
    case CpuTier::avx512_bf16: return avx512_bf16_kernels();
    case CpuTier::neon: return nullptr;
  }
  return nullptr;
}
#elif defined(KVPOOL_NEON_TIER)
bool processor_has(CpuTier tier) noexcept { return tier == CpuTier::generic || tier == CpuTier::neon; }
const TierKernels* compiled_kernels(CpuTier tier) noexcept {
  return tier == CpuTier::generic ? generic_kernels() : tier == CpuTier::neon ? neon_kernels() : nullptr;
}
#else
bool processor_has(CpuTier tier) noexcept { return tier == CpuTier::generic; }
const TierKernels* compiled_kernels(CpuTier tier) noexcept {
  return tier == CpuTier::generic ? generic_kernels() : nullptr;
}
#endif

}  // namespace

std::string_view to_string(Backend backend) noexcept {
  switch (backend) {
    case Backend::reference: return "reference";
    case Backend::cpu: return "cpu";
    case Backend::cuda: return "cuda";
  }
  return "unknown";
}

std::string_view to_string(CpuTier tier) noexcept {
  switch (tier) {
    case CpuTier::generic: return "generic";
    case CpuTier::avx2: return "avx2";
    case CpuTier::avx512: return "avx512";
    case CpuTier::avx512_bf16: return "avx512_bf16";
    case CpuTier::neon: return "neon";
  }
  return "unknown";
}

bool tier_available(CpuTier tier) noexcept { return processor_has(tier); }

const TierKernels* kernels_of(CpuTier tier) noexcept {
  static const bool kAvailable[] = {processor_has(kTiers[0]), processor_has(kTiers[1]), processor_has(kTiers[2]),
                                    processor_has(kTiers[3]), processor_has(kTiers[4])};
  return kAvailable[static_cast<std::size_t>(tier)] ? compiled_kernels(tier) : nullptr;
}

CpuTier best_tier() noexcept {
  CpuTier best = CpuTier::generic;
  for (const CpuTier tier : kTiers) {
    if (tier_available(tier)) best = tier;
  }
  return best;
}

std::vector<CpuTier> available_tiers() {
  std::vector<CpuTier> tiers;
  for (const CpuTier tier : kTiers) {
    if (tier_available(tier)) tiers.push_back(tier);
  }
  return tiers;
}

Status backend_available(Backend backend) { return backend == Backend::cuda ? cuda_available() : Status{}; }

}  // namespace kvpool::kernels
