// The tier for every machine: four-lane vectors of the compiler, conversions one element at a time.
#include "kernels/cpu/tier_dispatch.hpp"
#include "kernels/number_formats.hpp"

namespace kvpool::kernels {
namespace {

using Float4 = float __attribute__((vector_size(16)));
using Int4 = std::int32_t __attribute__((vector_size(16)));

struct GenericVec {
  using F = Float4;
  static constexpr int kLanes = 4;
  static constexpr int kKeyBlock = 2;
  static constexpr int kWideVectors = 2;

  static F zero() { return F{0, 0, 0, 0}; }
  static F set1(float x) { return F{x, x, x, x}; }
  static F ramp(float x) { return F{x, x + 1, x + 2, x + 3}; }
  static F load(const float* p) {
    F x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
  static void store(float* p, F x) { __builtin_memcpy(p, &x, sizeof(x)); }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  static F max_keep_nan(F a, F b) { return a > b ? a : b; }
  static F round(F x) {
    const F magic = set1(12582912.0F);
    return (x + magic) - magic;
  }
  static F scale2(F x, F n) {
    const Int4 exponent = (__builtin_convertvector(n, Int4) + 127) << 23;
    F power;
    __builtin_memcpy(&power, &exponent, sizeof(power));
    return x * power;
  }
  static F zero_where_below(F x, F limit, F p) { return x < limit ? zero() : p; }
  static F select_below(F x, F limit, F below, F other) { return x < limit ? below : other; }
  static F abs(F x) { return x < zero() ? -x : x; }
  static F copy_sign(F x, F sign) { return sign < zero() ? -x : x; }
  static float first(F x) { return x[0]; }
  static float reduce_add(F x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  static float reduce_max(F x) {
    float top = x[0];
    for (int i = 1; i < 4; ++i) top = x[i] > top ? x[i] : top;
    return top;
  }
  static void store_sums(const F (&acc)[kRowBlock][kKeyBlock], float* scores, std::int64_t stride) {
    for (int r = 0; r < kRowBlock; ++r)
      for (int i = 0; i < kKeyBlock; ++i) scores[r * stride + i] = reduce_add(acc[r][i]);
  }
  static void prefetch(const std::byte* p) { fetch_line(p); }
};

template <class T>
struct GenericLoad : InOrder<1> {
  static constexpr std::int64_t kBytes = sizeof(T);
  static void load(const std::byte* p, Float4* out) {
    T raw[4];
    __builtin_memcpy(raw, p, sizeof(raw));
    out[0] = Float4{to_float(raw[0]), to_float(raw[1]), to_float(raw[2]), to_float(raw[3])};
  }
};

using Tier =
    TierOf<GenericVec, GenericLoad<float>, GenericLoad<Fp16>, GenericLoad<Bf16>, GenericLoad<E4m3>, GenericLoad<E5m2>>;
constexpr TierKernels kTable = Tier::table(CpuTier::generic);

}  // namespace

const TierKernels* generic_kernels() noexcept { return &kTable; }

}  // namespace kvpool::kernels
