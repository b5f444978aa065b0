#include "tests/kernels/attention_case.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace kvpool::kernels::test {
namespace {

std::vector<float> random_floats(std::size_t count, std::mt19937& rng, float spread = 1.0F) {
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(rng);
  return values;
}

std::size_t bytes_of(std::int64_t elements, DType type) {
  return static_cast<std::size_t>(elements * element_bytes(type));
}

}  // namespace

std::vector<unsigned char> encode_rows(const std::vector<float>& values, DType type) {
  std::vector<unsigned char> bytes(bytes_of(static_cast<std::int64_t>(values.size()), type));
  with_cache_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T stored = stored_form<T>(values[i], 1.0F);
      std::memcpy(bytes.data() + i * sizeof(T), &stored, sizeof(T));
    }
  });
  return bytes;
}

CaseSpec latent_spec(std::int64_t page_size) {
  CaseSpec spec;
  spec.cache = DType::bfloat16;
  spec.query = DType::bfloat16;
  spec.kv_heads = 1;
  spec.group = 16;
  spec.dim = 576;
  spec.dim_v = 512;
  spec.same_rows = true;
  spec.page_size = page_size;
  return spec;
}

AttentionCase::AttentionCase(CaseSpec s) : spec(std::move(s)), dim_v(spec.dim_v == 0 ? spec.dim : spec.dim_v) {
  std::mt19937 rng(spec.seed);
  cu_q.push_back(0);
  std::int64_t tokens = 0;
  std::int64_t pages = 0;
  for (std::size_t b = 0; b < spec.seq_lens.size(); ++b) {
    cu_q.push_back(cu_q.back() + (spec.q_lens.empty() ? 1 : spec.q_lens[b]));
    tokens += spec.seq_lens[b];
    const std::int64_t used = (spec.seq_lens[b] + spec.page_size - 1) / spec.page_size;
    pages += used;
    columns = std::max(columns, used + 1);
  }
  num_pages = pages + 3;
  const auto heads = spec.kv_heads * spec.group;
  q = encode_rows(random_floats(static_cast<std::size_t>(num_tokens() * heads * spec.dim), rng), spec.query);
  new_k_ = random_floats(static_cast<std::size_t>(tokens * spec.kv_heads * spec.dim), rng);
  new_v_ = random_floats(static_cast<std::size_t>(tokens * spec.kv_heads * dim_v), rng);
  if (spec.alibi) slopes = random_floats(static_cast<std::size_t>(heads), rng, 0.1F);
  if (spec.sinks) sink_logits = random_floats(static_cast<std::size_t>(heads), rng, 2.0F);
  place_pages(spec.seed + 7);
}

std::int64_t AttentionCase::num_tokens() const { return cu_q.back(); }

void AttentionCase::place_pages(std::uint32_t permutation_seed) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(num_pages));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 rng(permutation_seed);
  std::shuffle(order.begin(), order.end(), rng);
  table.assign(spec.seq_lens.size() * static_cast<std::size_t>(columns), std::numeric_limits<std::int32_t>::min());
  std::size_t next = 0;
  for (std::size_t b = 0; b < spec.seq_lens.size(); ++b) {
    const std::int64_t used = (spec.seq_lens[b] + spec.page_size - 1) / spec.page_size;
    for (std::int64_t i = 0; i < used; ++i)
      table[b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(i)] = order[next++];
  }
  fill_pools();
}

void AttentionCase::fill_unused_table_entries(std::int32_t value) {
  for (std::size_t b = 0; b < spec.seq_lens.size(); ++b) {
    const std::int64_t used = (spec.seq_lens[b] + spec.page_size - 1) / spec.page_size;
    for (std::int64_t i = used; i < columns; ++i)
      table[b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(i)] = value;
  }
}

void AttentionCase::fill_pools() {
  const std::int64_t rows = num_pages * spec.page_size * spec.kv_heads;
  const unsigned char fill = spec.poison ? poison_byte(spec.cache) : 0;
  k_pool.assign(bytes_of(rows * spec.dim, spec.cache), fill);
  v_pool.assign(bytes_of(rows * dim_v, spec.cache), fill);
  const KvShape shape{spec.cache, num_pages, spec.page_size, spec.kv_heads, spec.dim, dim_v};
  view = contiguous_kv_view(shape, spec.layout, k_pool.data(), v_pool.data());
  if (spec.same_rows) view.v = view.k;
  std::vector<std::int64_t> slots;
  for (std::size_t b = 0; b < spec.seq_lens.size(); ++b) {
    for (std::int64_t j = 0; j < spec.seq_lens[b]; ++j) {
      const auto page = table[b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(j / spec.page_size)];
      slots.push_back(page * spec.page_size + j % spec.page_size);
    }
  }
  const KvScales scales{spec.k_scale, spec.v_scale, 0};
  const QueryRows k = dense_queries(new_k_.data(), DType::float32, spec.kv_heads, spec.dim);
  QueryRows v = dense_queries(new_v_.data(), DType::float32, spec.kv_heads, dim_v);
  if (spec.same_rows) v = k;
  const auto written = append(view, scales, {k, v}, slots.data(), static_cast<std::int64_t>(slots.size()), kReference);
  if (!written || *written != 0) throw std::runtime_error("the test could not fill its cache");
}

AttentionProblem AttentionCase::problem() const {
  AttentionProblem p;
  p.num_query_heads = spec.kv_heads * spec.group;
  p.num_kv_heads = spec.kv_heads;
  p.head_dim = spec.dim;
  p.head_dim_v = dim_v;
  p.page_size = spec.page_size;
  p.sliding_window = spec.window;
  p.fixed_split = spec.fixed_split;
  p.causal = spec.causal;
  return p;
}

AttentionArgs AttentionCase::args(void* out, float* lse) const {
  const std::int64_t heads = spec.kv_heads * spec.group;
  AttentionArgs a;
  a.kv = view;
  a.scales = {spec.k_scale, spec.v_scale, 0};
  a.table = {table.data(), columns, columns};
  a.q = dense_queries(q.data(), spec.query, heads, spec.dim);
  a.out = dense_output(out, spec.out, heads, dim_v);
  a.lse = lse;
  a.rules.scale = spec.scale;
  a.rules.soft_cap = spec.soft_cap;
  a.rules.alibi_slopes = slopes;
  a.rules.sinks = sink_logits;
  return a;
}

float Output::at(std::size_t i, DType type) const {
  return with_compute_type(type, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(T), sizeof(T));
    return to_float(stored);
  });
}

Output run_case(const AttentionCase& c, const ExecOptions& exec) {
  const std::int64_t rows = c.num_tokens() * c.spec.kv_heads * c.spec.group;
  Output output;
  output.bytes.assign(bytes_of(rows * c.dim_v, c.spec.out), 0xFF);
  output.lse.assign(static_cast<std::size_t>(rows), std::numeric_limits<float>::quiet_NaN());
  const std::span<const std::int32_t> cu_q =
      c.spec.q_lens.empty() ? std::span<const std::int32_t>{} : std::span<const std::int32_t>(c.cu_q);
  output.status =
      paged_attention(c.problem(), c.spec.seq_lens, cu_q, c.args(output.bytes.data(), output.lse.data()), exec);
  return output;
}

Difference difference(const AttentionCase& c, const Output& got, const Output& want) {
  Difference worst;
  const auto dim = static_cast<std::size_t>(c.dim_v);
  for (std::size_t row = 0; row < got.lse.size(); ++row) {
    double error = 0;
    double norm = 0;
    for (std::size_t d = 0; d < dim; ++d) {
      const auto a = static_cast<double>(got.at(row * dim + d, c.spec.out));
      const auto b = static_cast<double>(want.at(row * dim + d, c.spec.out));
      if (!std::isfinite(a) || !std::isfinite(b)) worst.rel_l2 = std::numeric_limits<double>::infinity();
      error += (a - b) * (a - b);
      norm += b * b;
    }
    if (error > 0) worst.rel_l2 = std::max(worst.rel_l2, std::sqrt(error / std::max(norm, 1e-300)));
    const float a = got.lse[row];
    const float b = want.lse[row];
    if (a == b || std::nextafter(a, b) == b) continue;
    const bool comparable = std::isfinite(a) && std::isfinite(b);
    worst.lse = comparable ? std::max(worst.lse, std::abs(static_cast<double>(a) - static_cast<double>(b)))
                           : std::numeric_limits<double>::infinity();
  }
  return worst;
}

}  // namespace kvpool::kernels::test
