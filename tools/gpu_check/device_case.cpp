#include "tools/gpu_check/device_case.hpp"

namespace kvpool::gpu_check {

using kernels::AttentionArgs;
using kernels::Backend;
using kernels::test::AttentionCase;
using kernels::test::Output;

namespace {

std::size_t rows_of(const AttentionCase& c) {
  return static_cast<std::size_t>(c.num_tokens() * c.spec.kv_heads * c.spec.group);
}
std::size_t result_bytes(const AttentionCase& c) {
  return rows_of(c) * static_cast<std::size_t>(c.dim_v * kernels::element_bytes(c.spec.out));
}

}  // namespace

DeviceCase::DeviceCase(const AttentionCase& c)
    : case_(c),
      k_(c.k_pool.data(), c.k_pool.size()),
      v_(c.v_pool.data(), c.spec.same_rows ? 0 : c.v_pool.size()),
      table_(c.table.data(), c.table.size() * sizeof(std::int32_t)),
      q_(c.q.data(), c.q.size()),
      out_(result_bytes(c)),
      lse_(rows_of(c) * sizeof(float)),
      num_pages_(c.num_pages) {}

AttentionArgs DeviceCase::args() const {
  AttentionArgs args = case_.args(out_.as(), lse_.as<float>());
  args.kv.num_pages = num_pages_;
  args.kv.k.data = k_.as();
  args.kv.v.data = case_.spec.same_rows ? k_.as() : v_.as();
  args.table.entries = table_.as<std::int32_t>();
  args.q.data = q_.as();
  return args;
}

void DeviceCase::poison() {
  if (out_.size() == 0) return;
  must(cudaMemset(out_.as(), 0xFF, out_.size()), "cudaMemset");
  must(cudaMemset(lse_.as(), 0xFF, lse_.size()), "cudaMemset");
}

Output DeviceCase::results() const {
  Output output;
  output.bytes.resize(out_.size());
  output.lse.resize(lse_.size() / sizeof(float));
  must(cudaDeviceSynchronize(), "a kernel");
  out_.download(output.bytes.data());
  lse_.download(output.lse.data());
  return output;
}

Output DeviceCase::run() {
  poison();
  const std::span<const std::int32_t> cu_q =
      case_.spec.q_lens.empty() ? std::span<const std::int32_t>{} : std::span<const std::int32_t>(case_.cu_q);
  kernels::ExecOptions exec;
  exec.backend = Backend::cuda;
  const Status status = kernels::paged_attention(case_.problem(), case_.spec.seq_lens, cu_q, args(), exec);
  Output output = results();
  output.status = status;
  return output;
}

void DeviceCase::spread_over(std::size_t bytes) {
  const std::int64_t element = kernels::element_bytes(case_.spec.cache);
  const auto pages = static_cast<std::int64_t>(bytes) / (case_.view.k.page_stride * element);
  const auto move = [&](DeviceBytes& rows, std::int64_t page_stride) {
    const auto page_bytes = static_cast<std::size_t>(page_stride * element);
    DeviceBytes big(static_cast<std::size_t>(pages) * page_bytes);
    must(cudaMemset(big.as(), kernels::test::poison_byte(case_.spec.cache), big.size()), "cudaMemset");
    for (std::int64_t page = 0; page < case_.num_pages; ++page) {
      must(cudaMemcpy(big.as(static_cast<std::size_t>(pages - 1 - page) * page_bytes),
                      rows.as(static_cast<std::size_t>(page) * page_bytes), page_bytes, cudaMemcpyDeviceToDevice),
           "moving a page");
    }
    rows = std::move(big);
  };
  move(k_, case_.view.k.page_stride);
  if (!case_.spec.same_rows) move(v_, case_.view.v.page_stride);
  std::vector<std::int32_t> moved = case_.table;
  for (std::int32_t& page : moved) page = static_cast<std::int32_t>(pages - 1) - (page < 0 ? 0 : page);
  table_ = DeviceBytes(moved.data(), moved.size() * sizeof(std::int32_t));
  num_pages_ = pages;
}

}  // namespace kvpool::gpu_check
