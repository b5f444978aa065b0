// AVX-512 with BF16 dot products and VBMI: fp8 goes through byte tables to bf16, where bf16 queries meet it. A bf16
// cache is widened as in the tier below: on some processors a dot product instruction takes as long as four
// multiply-adds, and where it does not, memory is the limit anyway.
#include "kernels/cpu/avx512_vector.hpp"

namespace kvpool::kernels {
namespace {

/// bf16 bits of an fp8 magnitude; exact, subnormals included.
constexpr unsigned bf16_of_fp8(unsigned magnitude, int man_bits, int emin, unsigned inf, unsigned first_nan) {
  if (magnitude >= first_nan) return 0x7FC0U;
  if (magnitude == inf) return 0x7F80U;
  unsigned mantissa = magnitude & ((1U << man_bits) - 1U);
  int exponent = static_cast<int>(magnitude >> man_bits) + emin - 1;
  if (magnitude >> man_bits == 0) {
    if (mantissa == 0) return 0;
    exponent = emin;
    while ((mantissa & (1U << man_bits)) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    mantissa &= (1U << man_bits) - 1U;
  }
  return (static_cast<unsigned>(exponent + 127) << 7) | (mantissa << (7 - man_bits));
}

struct ByteTables {
  alignas(64) unsigned char low[128];
  alignas(64) unsigned char high[128];
};

constexpr ByteTables make_tables(int man_bits, int emin, unsigned inf, unsigned first_nan) {
  ByteTables tables{};
  for (unsigned i = 0; i < 128; ++i) {
    const unsigned bits = bf16_of_fp8(i, man_bits, emin, inf, first_nan);
    tables.low[i] = static_cast<unsigned char>(bits & 0xFFU);
    tables.high[i] = static_cast<unsigned char>(bits >> 8);
  }
  return tables;
}

constexpr ByteTables kE4m3Tables = make_tables(3, -6, 0x80, 0x7F);
constexpr ByteTables kE5m2Tables = make_tables(2, -14, 0x7C, 0x7D);

/// 64 fp8 numbers as two vectors of bf16: elements 0-7 of every group of 16, then elements 8-15.
inline void fp8_to_bf16(const ByteTables& tables, const std::byte* p, __m512i* out) {
  const __m512i codes = _mm512_loadu_si512(p);
  const __m512i low =
      _mm512_permutex2var_epi8(_mm512_load_si512(tables.low), codes, _mm512_load_si512(tables.low + 64));
  const __m512i magnitude =
      _mm512_permutex2var_epi8(_mm512_load_si512(tables.high), codes, _mm512_load_si512(tables.high + 64));
  const __m512i high = _mm512_or_si512(magnitude, _mm512_and_si512(codes, _mm512_set1_epi8(static_cast<char>(0x80))));
  out[0] = _mm512_unpacklo_epi8(low, high);
  out[1] = _mm512_unpackhi_epi8(low, high);
}

inline __m512 dot_pairs(__m512 acc, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

/// Scores of four keys for four rows with bf16 queries; `Keys` gives kCount vectors of 32 bf16 for one step of a row.
template <class Keys>
inline void dot_block_of(const RowTask& t, const RowWalk& keys, std::int64_t first, std::int64_t row, float* scores) {
  const std::byte* const* k = keys.rows + first;
  constexpr std::int64_t kStep = 32 * Keys::kCount;
  const auto* q = static_cast<const std::uint16_t*>(t.q) + row * t.q_stride;
  __m512 acc[kRowBlock][4];
  KVPOOL_UNROLL
  for (int r = 0; r < kRowBlock; ++r) {
    KVPOOL_UNROLL
    for (int i = 0; i < 4; ++i) acc[r][i] = _mm512_setzero_ps();
  }
  const auto step = [&](const __m512i(&key)[4][Keys::kCount], std::int64_t at, const auto& fetch)
      __attribute__((always_inline)) {
    KVPOOL_UNROLL
    for (int j = 0; j < Keys::kCount; ++j) {
      KVPOOL_UNROLL
      for (int r = 0; r < kRowBlock; ++r) {
        const __m512i query = _mm512_loadu_si512(q + r * t.q_stride + at + j * 32);
        fetch(j * static_cast<int>(kRowBlock) + r);
        KVPOOL_UNROLL
        for (int i = 0; i < 4; ++i) acc[r][i] = dot_pairs(acc[r][i], key[i][j], query);
      }
    }
  };
  const std::byte* row_of[4];
  const std::byte* near[4];
  KVPOOL_UNROLL
  for (int i = 0; i < 4; ++i) {
    row_of[i] = k[i] + keys.shift;
    near[i] = k[i + kNear] + keys.shift;
  }
  const auto no_fetch = [](int) {};
  std::int64_t at = 0;
  for (; at + kStep <= t.dim; at += kStep) {
    const std::byte* lines = keys.feed != nullptr ? keys.feed->reserve<4>(row_of[0]) : nullptr;
    const auto fetch = [&](int slot) __attribute__((always_inline)) {  // eight places: four lines, four near ones
      if (lines == nullptr) return;
      if (slot % 2 == 0) {
        fetch_near(near[slot / 2] + at * Keys::kBytes);
      } else {
        fetch_line(lines + slot / 2 * 64);
      }
    };
    __m512i key[4][Keys::kCount];
    KVPOOL_UNROLL
    for (int i = 0; i < 4; ++i) Keys::load(row_of[i] + at * Keys::kBytes, key[i]);
    step(key, at, fetch);
  }
  if (at < t.dim) {
    __m512i key[4][Keys::kCount];
    for (int i = 0; i < 4; ++i) {
      alignas(64) std::byte padded[64] = {};
      __builtin_memcpy(padded, row_of[i] + at * Keys::kBytes, static_cast<std::size_t>((t.dim - at) * Keys::kBytes));
      Keys::load(padded, key[i]);
    }
    step(key, at, no_fetch);
  }
  Avx512Vec::store_sums(acc, scores, kKeyTile);
}

template <const ByteTables& Tables>
struct Fp8Keys {
  static constexpr int kCount = 2;
  static constexpr std::int64_t kBytes = 1;
  static void load(const std::byte* p, __m512i* out) { fp8_to_bf16(Tables, p, out); }
};

template <const ByteTables& Tables>
struct DotFp8 {
  static constexpr int kVecs = 4;
  static constexpr std::int64_t kBytes = 1;
  static constexpr bool kBf16Dot = true;
  /// Element i of 64 goes through unpack (group of 16, half, word) and then even / odd.
  static std::int64_t place(std::int64_t i) {
    const std::int64_t group = i / 16;
    const std::int64_t half = i % 16 / 8;
    const std::int64_t word = i % 8;
    return (half * 2 + word % 2) * 16 + group * 4 + word / 2;
  }
  static std::int64_t bf16_place(std::int64_t i) { return i % 16 / 8 * 32 + i / 16 * 8 + i % 8; }
  static void load(const std::byte* p, __m512* out) {
    __m512i pairs[2];
    fp8_to_bf16(Tables, p, pairs);
    widen_pairs(pairs[0], out);
    widen_pairs(pairs[1], out + 2);
  }
  static void dot_block_bf16(const RowTask& t, const RowWalk& keys, std::int64_t first, std::int64_t row,
                             float* scores) {
    dot_block_of<Fp8Keys<Tables>>(t, keys, first, row, scores);
  }
};

using Tier = TierOf<Avx512Vec, LoadF32, LoadF16, LoadBf16, DotFp8<kE4m3Tables>, DotFp8<kE5m2Tables>>;
constexpr TierKernels kTable = Tier::table(CpuTier::avx512_bf16);

}  // namespace

const TierKernels* avx512_bf16_kernels() noexcept { return &kTable; }

}  // namespace kvpool::kernels
