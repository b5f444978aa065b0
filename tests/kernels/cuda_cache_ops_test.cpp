// Append, copies, swap, gather and merge of the cuda backend against the host's, byte for byte: every kernel that is
// launched for them, in the executor, by way of the public calls.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/kernels/fake_cuda/fake_device.hpp"
#include "tests/kernels/simt_attention.hpp"

namespace kvpool::kernels::test {
namespace {

ExecOptions on_cuda(void* stream = nullptr) {
  ExecOptions exec;
  exec.backend = Backend::cuda;
  exec.stream = stream;
  return exec;
}

/// One layer in memory of its own, each byte different from its neighbours.
struct Layer {
  Layer(const KvShape& shape, CacheLayout layout, unsigned start)
      : k(bytes(shape, shape.head_dim)), v(bytes(shape, shape.head_dim_v)) {
    for (std::size_t i = 0; i < k.size(); ++i) k[i] = static_cast<unsigned char>(start + i * 13);
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<unsigned char>(start + i * 29);
    view = contiguous_kv_view(shape, layout, k.data(), v.data());
  }
  static std::size_t bytes(const KvShape& s, std::int64_t dim) {
    return static_cast<std::size_t>(s.num_pages * s.page_size * s.num_kv_heads * dim * element_bytes(s.dtype));
  }
  void mark(cudaMemoryType type) const {
    FakeDevices::get().mark(k.data(), k.size(), type);
    FakeDevices::get().mark(v.data(), v.size(), type);
  }

  std::vector<unsigned char> k;
  std::vector<unsigned char> v;
  PagedKvView view;
};

class CudaCacheOps : public testing::Test {
 protected:
  void SetUp() override { FakeDevices::get().reset(); }
  void TearDown() override { EXPECT_TRUE(FakeDevices::get().live().empty()); }
  static std::size_t count(const std::string& what) {
    const auto& calls = FakeDevices::get().calls();
    return static_cast<std::size_t>(
        std::count_if(calls.begin(), calls.end(), [&](const auto& call) { return call.what == what; }));
  }
};

TEST_F(CudaCacheOps, AppendWritesWhatTheHostWritesForAllTypes) {
  std::vector<float> numbers(6 * 2 * 24);
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.013F * static_cast<float>(i * 37 % 997) - 5.0F;
  const std::int64_t slots[] = {3, kSkipSlot, 17, 32, 11, -7};  // 32 is past the pool
  const std::vector<float> k_scale = {0.5F, 0.07F};
  const std::vector<float> v_scale = {0.01F};
  for (const DType cache : kCacheTypes) {
    for (const DType fresh : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
        SCOPED_TRACE(std::string(to_string(fresh)) + " to " + std::string(to_string(cache)));
        const KvShape shape{cache, 8, 4, 2, 24, 16};
        Layer host(shape, layout, 7);
        Layer device(shape, layout, 7);
        const std::vector<unsigned char> rows = encode_rows(numbers, fresh);
        const NewRows both{dense_queries(rows.data(), fresh, 2, 24), dense_queries(rows.data(), fresh, 2, 16)};
        const KvScales scales = is_fp8(cache) ? KvScales{k_scale, v_scale, 0} : KvScales{};
        ASSERT_TRUE(append(host.view, scales, both, slots, 6, kReference).ok());
        const auto ignored = append(device.view, scales, both, slots, 6, on_cuda());
        ASSERT_TRUE(ignored.ok());
        EXPECT_EQ(device.k, host.k);
        EXPECT_EQ(device.v, host.v);
      }
    }
    if (kSlow) break;
  }
}

TEST_F(CudaCacheOps, OneLaunchCopiesThePagesOfAllLayersWideOrByteByByte) {
  for (const std::int64_t dim : {16, 12}) {  // rows of 32 and of 24 bytes
    for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
      FakeDevices::get().reset();
      const KvShape shape{DType::float16, 6, 4, 2, dim, 8};
      std::vector<Layer> device;
      std::vector<Layer> host;
      for (unsigned l = 0; l < 3; ++l) {
        device.emplace_back(shape, layout, l);
        host.emplace_back(shape, layout, l);
      }
      std::vector<PagedKvView> on_device;
      std::vector<PagedKvView> on_host;
      for (std::size_t l = 0; l < 3; ++l) {
        device[l].mark(cudaMemoryTypeDevice);
        on_device.push_back(device[l].view);
        on_host.push_back(host[l].view);
      }
      const PagePair pairs[] = {{0, 5}, {0, 2}, {3, 1}};
      ASSERT_TRUE(copy_pages(on_device, pairs, on_cuda()).ok());
      ASSERT_TRUE(copy_pages(on_host, pairs, kReference).ok());
      for (std::size_t l = 0; l < 3; ++l) EXPECT_TRUE(device[l].k == host[l].k && device[l].v == host[l].v) << l;
      EXPECT_EQ(count("copy wide"), dim == 16 ? 1U : 0U);
      EXPECT_EQ(count("copy bytes"), dim == 16 ? 0U : 1U);
    }
  }
}

TEST_F(CudaCacheOps, BetweenPoolsOfADeviceLayoutsMayDiffer) {
  const KvShape shape{DType::bfloat16, 4, 4, 3, 8, 16};
  const Layer from(shape, CacheLayout::nhd, 1);
  Layer to(shape, CacheLayout::hnd, 2);
  Layer want(shape, CacheLayout::hnd, 2);
  from.mark(cudaMemoryTypeDevice);
  to.mark(cudaMemoryTypeDevice);
  const PagePair pairs[] = {{3, 0}, {1, 2}};
  ASSERT_TRUE(transfer_pages({&from.view, 1}, {&to.view, 1}, pairs, on_cuda()).ok());
  ASSERT_TRUE(transfer_pages({&from.view, 1}, {&want.view, 1}, pairs, kReference).ok());
  EXPECT_EQ(to.k, want.k);
  EXPECT_EQ(to.v, want.v);
}

/// Page-locked memory and a stream of one's own: one call for all pages. Otherwise page by page.
TEST_F(CudaCacheOps, SwapMovesAllPagesOfAllLayersInOneCallWhereItCan) {
  int stream = 0;  // only its address is looked at
  for (const bool pinned : {true, false}) {
    FakeDevices::get().reset();
    KvShape shape{DType::bfloat16, 6, 4, 2, 8, 16};
    const Layer device[] = {Layer(shape, CacheLayout::hnd, 1), Layer(shape, CacheLayout::hnd, 50)};
    shape.num_pages = 2;
    Layer host[] = {Layer(shape, CacheLayout::hnd, 9), Layer(shape, CacheLayout::hnd, 90)};
    for (const Layer& layer : device) layer.mark(cudaMemoryTypeDevice);
    if (pinned) {
      for (const Layer& layer : host) layer.mark(cudaMemoryTypeHost);
    }
    const PagedKvView from[] = {device[0].view, device[1].view};
    const PagedKvView to[] = {host[0].view, host[1].view};
    const PagePair pairs[] = {{4, 1}, {2, 0}};
    ASSERT_TRUE(transfer_pages(from, to, pairs, on_cuda(&stream)).ok());
    EXPECT_EQ(count("copy batch"), pinned ? 1U : 0U);
    EXPECT_EQ(count("copy"), pinned ? 0U : 8U);
    for (std::size_t l = 0; l < 2; ++l) {
      const std::size_t page = host[l].k.size() / 2;
      EXPECT_EQ(0, std::memcmp(host[l].k.data() + page, device[l].k.data() + 4 * page, page));
      EXPECT_EQ(0, std::memcmp(host[l].k.data(), device[l].k.data() + 2 * page, page));
      EXPECT_EQ(0, std::memcmp(host[l].v.data(), device[l].v.data() + 4 * page, 2 * page));
    }
  }
}

TEST_F(CudaCacheOps, ASwapThatCannotBeDoneIsRefusedBeforeAnyPageMoves) {
  const KvShape shape{DType::bfloat16, 4, 4, 2, 8, 16};
  const Layer good(shape, CacheLayout::hnd, 1);
  const Layer bad(shape, CacheLayout::nhd, 1);
  Layer host[] = {Layer(shape, CacheLayout::hnd, 9), Layer(shape, CacheLayout::hnd, 90)};
  const auto before = host[0].k;
  good.mark(cudaMemoryTypeDevice);
  bad.mark(cudaMemoryTypeDevice);
  const PagedKvView from[] = {good.view, bad.view};
  const PagedKvView to[] = {host[0].view, host[1].view};
  const PagePair pairs[] = {{0, 1}};
  const Status status = transfer_pages(from, to, pairs, on_cuda());
  EXPECT_EQ(status.error().code, ErrorCode::unsupported);
  EXPECT_EQ(host[0].k, before);
  EXPECT_TRUE(FakeDevices::get().calls().empty());
}

TEST_F(CudaCacheOps, GatherTakesWholePagesAndAPartOfTheLast) {
  for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
    const Layer pool({DType::fp8_e4m3, 5, 4, 2, 16, 8}, layout, 3);
    const std::int32_t pages[] = {4, 0, 2};
    for (const std::int64_t len : {1, 4, 10, 12}) {
      std::vector<unsigned char> k(static_cast<std::size_t>(len) * 32 + 16, 0xEE);
      std::vector<unsigned char> v(static_cast<std::size_t>(len) * 16 + 16, 0xEE);
      auto want_k = k;
      auto want_v = v;
      ASSERT_TRUE(gather(pool.view, pages, len, k.data(), v.data(), on_cuda()).ok());
      ASSERT_TRUE(gather(pool.view, pages, len, want_k.data(), want_v.data(), kReference).ok());
      EXPECT_EQ(k, want_k) << len;
      EXPECT_EQ(v, want_v) << len;
    }
  }
}

TEST_F(CudaCacheOps, MergeJoinsPartsAsTheHostDoes) {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> a(5 * 40);
  std::vector<float> b(5 * 40);
  std::iota(a.begin(), a.end(), -90.0F);
  std::iota(b.begin(), b.end(), 3.0F);
  const std::vector<float> lse_a = {1.1F, 0.25F, -inf, -inf, 80.0F};
  const std::vector<float> lse_b = {-0.3F, -inf, 0.5F, -inf, -80.0F};
  std::vector<float> out(a.size(), -1);
  std::vector<float> lse(5, -1);
  auto want = out;
  auto want_lse = lse;
  ASSERT_TRUE(
      merge_attention(a.data(), lse_a.data(), b.data(), lse_b.data(), out.data(), lse.data(), 5, 40, on_cuda()).ok());
  ASSERT_TRUE(
      merge_attention(a.data(), lse_a.data(), b.data(), lse_b.data(), want.data(), want_lse.data(), 5, 40).ok());
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], want[i], 1e-6F * (1 + std::abs(want[i]))) << i;
  for (std::size_t i = 0; i < lse.size(); ++i)
    EXPECT_TRUE(lse[i] == want_lse[i] || std::abs(lse[i] - want_lse[i]) < 1e-6F);
}

}  // namespace
}  // namespace kvpool::kernels::test
