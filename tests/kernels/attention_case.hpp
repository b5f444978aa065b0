// A random attention case in host memory: pool, page table, queries, and the comparison with the double reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype_dispatch.hpp"
#include "kvpool/kernels/cache_ops.hpp"
#include "kvpool/kernels/paged_attention.hpp"

namespace kvpool::kernels::test {

inline const DType kCacheTypes[] = {DType::float32, DType::float16, DType::bfloat16, DType::fp8_e4m3, DType::fp8_e5m2};

/// The backend that everything is judged by, on one thread.
inline const ExecOptions kReference{Backend::reference, {}, 1, 0, nullptr};

/// Everything that describes a case; the defaults are a small GQA decode.
struct CaseSpec {
  DType cache = DType::float32;
  DType query = DType::float32;
  DType out = DType::float32;
  CacheLayout layout = CacheLayout::nhd;
  std::int64_t page_size = 16;
  std::int64_t kv_heads = 2;
  std::int64_t group = 4;
  std::int64_t dim = 64;
  std::int64_t dim_v = 0;  ///< 0: as dim
  std::vector<std::int32_t> seq_lens = {1, 15, 16, 17, 31, 33};
  std::vector<std::int32_t> q_lens;  ///< empty: decode
  std::int64_t window = 0;
  std::int64_t fixed_split = 0;
  float soft_cap = 0;
  bool alibi = false;
  bool sinks = false;
  std::optional<float> scale;
  std::vector<float> k_scale;
  std::vector<float> v_scale;
  std::uint32_t seed = 1;
  bool causal = true;
  bool poison = true;      ///< NaN in every row that no token owns
  bool same_rows = false;  ///< K and V are the same rows (latent attention)
};

/// Latent attention: 16 heads on rows of 576 numbers, of which the first 512 are the values.
[[nodiscard]] CaseSpec latent_spec(std::int64_t page_size);

/// Bits of a row element that read as NaN (for every type; e4m3 has 0x7F, the others 0xFF.. too).
inline unsigned char poison_byte(DType type) { return type == DType::fp8_e4m3 ? 0x7F : 0xFF; }

class AttentionCase {
 public:
  explicit AttentionCase(CaseSpec spec);

  /// Order of pages in the pool: the same case with another permutation must give the same bits.
  void place_pages(std::uint32_t permutation_seed);
  void fill_unused_table_entries(std::int32_t value);

  [[nodiscard]] AttentionProblem problem() const;
  [[nodiscard]] AttentionArgs args(void* out, float* lse) const;
  [[nodiscard]] std::int64_t num_tokens() const;

  CaseSpec spec;
  std::int64_t dim_v;
  std::int64_t num_pages = 0;
  std::int64_t columns = 0;
  std::vector<std::int32_t> cu_q;
  std::vector<std::int32_t> table;
  std::vector<unsigned char> k_pool;
  std::vector<unsigned char> v_pool;
  std::vector<unsigned char> q;
  std::vector<float> slopes;
  std::vector<float> sink_logits;
  PagedKvView view;

 private:
  void fill_pools();

  std::vector<float> new_k_;  ///< [all tokens][Hkv][dim]
  std::vector<float> new_v_;
};

struct Output {
  std::vector<unsigned char> bytes;
  std::vector<float> lse;
  Status status;

  /// Element i in fp32.
  [[nodiscard]] float at(std::size_t i, DType type) const;
};

[[nodiscard]] Output run_case(const AttentionCase& c, const ExecOptions& exec);

/// Largest relative L2 error per (token, head) and largest error of the LSE, where equal and neighbouring fp32 numbers
/// count as equal: at 2,000 they are 1.2e-4 apart. +infinity when one has a value that is not finite and the other has
/// not the same.
struct Difference {
  double rel_l2 = 0;
  double lse = 0;
};
[[nodiscard]] Difference difference(const AttentionCase& c, const Output& got, const Output& want);

/// Rows of fp32 numbers as bytes of `type`.
[[nodiscard]] std::vector<unsigned char> encode_rows(const std::vector<float>& values, DType type);

}  // namespace kvpool::kernels::test
