// Append, page copies, transfers and gather: exactly the named bytes change, and a refused call changes none.
#include "kvpool/kernels/cache_ops.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "kvpool/kernels/host_memory.hpp"
#include "tests/kernels/attention_case.hpp"

namespace kvpool::kernels::test {
namespace {

/// Two pools in one allocation each, full of a canary byte.
struct Pools {
  Pools(const KvShape& s, CacheLayout l, unsigned char canary) : shape(s), layout(l) {
    const std::int64_t dim_v = s.head_dim_v == 0 ? s.head_dim : s.head_dim_v;
    const std::int64_t rows = s.num_pages * s.page_size * s.num_kv_heads;
    k.assign(static_cast<std::size_t>(rows * s.head_dim * element_bytes(s.dtype)), canary);
    v.assign(static_cast<std::size_t>(rows * dim_v * element_bytes(s.dtype)), canary);
  }
  [[nodiscard]] PagedKvView view() { return contiguous_kv_view(shape, layout, k.data(), v.data()); }

  KvShape shape;
  CacheLayout layout;
  std::vector<unsigned char> k;
  std::vector<unsigned char> v;
};

std::vector<float> ramp(std::size_t count, float start) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = start + 0.37F * static_cast<float>(i % 101) - 17.0F;
  return values;
}

template <class T>
std::vector<unsigned char> expected_row(const float* source, std::int64_t dim, float scale) {
  std::vector<unsigned char> row(static_cast<std::size_t>(dim) * sizeof(T));
  for (std::size_t i = 0; i < static_cast<std::size_t>(dim); ++i) {
    const T stored = stored_form<T>(source[i], scale);
    std::memcpy(row.data() + i * sizeof(T), &stored, sizeof(T));
  }
  return row;
}

TEST(Append, WritesExactlyTheNamedRowsInEveryTypeAndLayout) {
  for (const DType type : kCacheTypes) {
    for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
      for (const std::int64_t dim : {46, 72, 80, 120, 64}) {
        SCOPED_TRACE(std::string(to_string(type)) + " dim " + std::to_string(dim));
        const KvShape shape{type, 8, 4, 3, dim, 40};
        Pools pools(shape, layout, 0xA5);
        std::vector<std::int64_t> slots(32);
        std::iota(slots.begin(), slots.end(), 0);
        for (const std::size_t skipped : {3U, 17U, 31U}) slots[skipped] = kSkipSlot;
        const auto k = ramp(static_cast<std::size_t>(32 * 3 * dim), 1.0F);
        const auto v = ramp(32 * 3 * 40, -2.0F);
        const std::vector<float> k_scale = {0.5F, 0.1F, 2.0F};
        const KvScales scales = is_fp8(type) ? KvScales{k_scale, {}, 0} : KvScales{};
        const NewRows rows{dense_queries(k.data(), DType::float32, 3, dim),
                           dense_queries(v.data(), DType::float32, 3, 40)};
        const auto outside = append(pools.view(), scales, rows, slots.data(), 32);
        ASSERT_TRUE(outside.ok());
        EXPECT_EQ(*outside, 0);

        Pools want(shape, layout, 0xA5);
        with_cache_type(type, [&](auto tag) {
          using T = typename decltype(tag)::type;
          const PagedKvView view = want.view();
          for (std::int64_t t = 0; t < 32; ++t) {
            if (slots[static_cast<std::size_t>(t)] == kSkipSlot) continue;
            for (std::int64_t h = 0; h < 3; ++h) {
              const float scale = is_fp8(type) ? k_scale[static_cast<std::size_t>(h)] : 1;
              const auto row_k = expected_row<T>(k.data() + (t * 3 + h) * dim, dim, scale);
              const auto row_v = expected_row<T>(v.data() + (t * 3 + h) * 40, 40, 1);
              std::memcpy(static_cast<T*>(view.k.data) + row_offset(view.k, t / 4, t % 4, h), row_k.data(),
                          row_k.size());
              std::memcpy(static_cast<T*>(view.v.data) + row_offset(view.v, t / 4, t % 4, h), row_v.data(),
                          row_v.size());
            }
          }
        });
        EXPECT_EQ(pools.k, want.k);
        EXPECT_EQ(pools.v, want.v);
      }
    }
  }
}

/// Every bf16 and every fp16 number, and fp32 bits at random, by every scale: each tier's cast has the reference's
/// bits.
TEST(Append, EveryTierCastsToFp8AsTheFormatsSay) {
  std::mt19937 rng(4);
  for (const DType from : {DType::bfloat16, DType::float16, DType::float32}) {
    std::vector<std::uint32_t> words(from == DType::float32 ? 65536 : 32768);
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = from == DType::float32 ? static_cast<std::uint32_t>(rng())
                                        : static_cast<std::uint32_t>(2 * i + (((2 * i) + 1) << 16));
    constexpr std::int64_t kDim = 88;  // one vector chunk and a rest
    const std::int64_t tokens = 65536 / kDim;
    const QueryRows rows = dense_queries(words.data(), from, 1, kDim);
    std::vector<std::int64_t> slots(static_cast<std::size_t>(tokens));
    std::iota(slots.begin(), slots.end(), 0);
    for (const DType type : {DType::fp8_e4m3, DType::fp8_e5m2}) {
      const KvShape shape{type, tokens, 1, 1, kDim, kDim};
      for (const float scale : {1.0F, 0.5F, 0.01F, 3.14159F, 1.0F / 448.0F, 1e-3F, 123.456F}) {
        Pools want(shape, CacheLayout::nhd, 0);
        const KvScales scales{{&scale, 1}, {&scale, 1}, 0};
        ASSERT_TRUE(append(want.view(), scales, {rows, rows}, slots.data(), tokens, kReference).ok());
        for (const CpuTier tier : available_tiers()) {
          Pools got(shape, CacheLayout::nhd, 0);
          ASSERT_TRUE(
              append(got.view(), scales, {rows, rows}, slots.data(), tokens, {Backend::cpu, tier, 1, 0, nullptr}).ok());
          EXPECT_TRUE(got.k == want.k && got.v == want.v)
              << to_string(from) << " to " << to_string(type) << " by " << scale << " on " << to_string(tier);
        }
      }
    }
  }
}

TEST(Append, SlotsOutsideThePoolAreCountedAndNeverWritten) {
  const KvShape shape{DType::bfloat16, 2, 4, 1, 8, 8};
  Pools pools(shape, CacheLayout::nhd, 0x5A);
  const Pools before = pools;
  const auto rows = ramp(6 * 8, 0);
  const NewRows fresh{dense_queries(rows.data(), DType::float32, 1, 8),
                      dense_queries(rows.data(), DType::float32, 1, 8)};
  const std::int64_t slots[] = {8,
                                -2,
                                std::numeric_limits<std::int64_t>::max(),
                                std::numeric_limits<std::int64_t>::min(),
                                kSkipSlot,
                                std::int64_t{1} << 32};
  const auto outside = append(pools.view(), {}, fresh, slots, 6);
  ASSERT_TRUE(outside.ok());
  EXPECT_EQ(*outside, 5);
  EXPECT_EQ(pools.k, before.k);
  EXPECT_EQ(pools.v, before.v);
}

TEST(Append, OfTheCachesOwnTypeCopiesBits) {
  const KvShape shape{DType::bfloat16, 4, 16, 2, 16, 16};
  for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
    Pools pools(shape, layout, 0);
    std::vector<std::uint16_t> rows(20 * 2 * 16);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i * 977);  // NaNs among them
    const NewRows fresh{dense_queries(rows.data(), DType::bfloat16, 2, 16),
                        dense_queries(rows.data(), DType::bfloat16, 2, 16)};
    std::vector<std::int64_t> slots(20);
    std::iota(slots.begin(), slots.end(), 30);
    ASSERT_TRUE(append(pools.view(), {}, fresh, slots.data(), 20).ok());
    std::vector<std::uint16_t> k(rows.size());
    std::vector<std::uint16_t> v(rows.size());
    const std::int32_t pages[] = {1, 2, 3};
    PagedKvView view = pools.view();
    ASSERT_TRUE(gather(view, pages, 34, nullptr, nullptr).error().code == ErrorCode::invalid_argument);
    k.resize(34 * 32);
    v.resize(34 * 32);
    ASSERT_TRUE(gather(view, pages, 34, k.data(), v.data()).ok());
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), k.begin() + 14 * 32));
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), v.begin() + 14 * 32));
  }
}

TEST(Append, RefusesBadScalesAndLeavesEveryByte) {
  const KvShape shape{DType::fp8_e4m3, 2, 4, 2, 8, 8};
  Pools pools(shape, CacheLayout::nhd, 0x33);
  const Pools before = pools;
  const auto rows = ramp(2 * 8, 0);
  const NewRows fresh{dense_queries(rows.data(), DType::float32, 2, 8),
                      dense_queries(rows.data(), DType::float32, 2, 8)};
  const std::int64_t slot = 0;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const float bad : {0.0F, -1.0F, nan, inf, -0.0F}) {
    for (const std::vector<float>& list : {std::vector<float>{bad}, std::vector<float>{1.0F, bad}}) {
      for (const KvScales& scales : {KvScales{list, {}, 0}, KvScales{{}, list, 0}}) {
        const auto answer = append(pools.view(), scales, fresh, &slot, 1);
        ASSERT_FALSE(answer.ok());
        EXPECT_EQ(answer.error().code, ErrorCode::invalid_argument);
        EXPECT_NE(answer.error().message.find("_scale"), std::string::npos);
      }
    }
  }
  const std::vector<float> one_layer = {1.0F, 1.0F};
  EXPECT_FALSE(append(pools.view(), {one_layer, {}, 1}, fresh, &slot, 1).ok()) << "no row for layer 1";
  EXPECT_EQ(pools.k, before.k);
  EXPECT_EQ(pools.v, before.v);
}

TEST(CopyPages, MovesPagesOfAllLayersAndNothingElse) {
  for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
    std::vector<Pools> layers(3, Pools({DType::float16, 6, 4, 2, 8, 12}, layout, 0));
    std::vector<PagedKvView> views;
    for (auto& layer : layers) {
      for (std::size_t i = 0; i < layer.k.size(); ++i) layer.k[i] = static_cast<unsigned char>(i * 7 + layers.size());
      for (std::size_t i = 0; i < layer.v.size(); ++i) layer.v[i] = static_cast<unsigned char>(i * 11);
      views.push_back(layer.view());
    }
    const std::vector<Pools> before = layers;
    const PagePair pairs[] = {{0, 5}, {0, 2}, {3, 1}};
    ASSERT_TRUE(copy_pages(views, pairs).ok());
    for (std::size_t l = 0; l < 3; ++l) {
      for (std::size_t page = 0; page < 6; ++page) {
        const std::size_t source = page == 5 || page == 2 ? 0 : page == 1 ? 3 : page;
        const auto same = [&](const std::vector<unsigned char>& now, const std::vector<unsigned char>& then) {
          const std::size_t bytes = now.size() / 6;
          return std::memcmp(now.data() + page * bytes, then.data() + source * bytes, bytes) == 0;
        };
        EXPECT_TRUE(same(layers[l].k, before[l].k) && same(layers[l].v, before[l].v)) << "page " << page;
      }
    }
  }
}

TEST(CopyPages, RefusesPairsWhoseOrderWouldMatter) {
  Pools pools({DType::float16, 4, 4, 1, 8, 8}, CacheLayout::nhd, 1);
  const PagedKvView views[] = {pools.view()};
  for (const std::vector<PagePair>& pairs :
       {std::vector<PagePair>{{0, 1}, {1, 2}}, {{0, 1}, {2, 1}}, {{0, 0}}, {{0, 4}}, {{-1, 0}}}) {
    const Status status = copy_pages(views, pairs);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
  }
}

TEST(TransferPages, GoesOutAndComesBackAlsoThroughAnotherLayout) {
  const KvShape shape{DType::bfloat16, 6, 4, 3, 8, 16};
  Pools device(shape, CacheLayout::nhd, 0);
  for (std::size_t i = 0; i < device.k.size(); ++i) device.k[i] = static_cast<unsigned char>(i * 13);
  for (std::size_t i = 0; i < device.v.size(); ++i) device.v[i] = static_cast<unsigned char>(i * 29);
  const Pools before = device;
  KvShape small = shape;
  small.num_pages = 2;
  for (const CacheLayout layout : {CacheLayout::nhd, CacheLayout::hnd}) {
    Pools host(small, layout, 0);
    const PagedKvView from[] = {device.view()};
    const PagedKvView to[] = {host.view()};
    const PagePair out[] = {{4, 0}, {1, 1}};
    const PagePair back[] = {{0, 2}, {1, 3}};
    ASSERT_TRUE(transfer_pages(from, to, out).ok());
    ASSERT_TRUE(transfer_pages(to, from, back).ok());
    const std::size_t page = device.k.size() / 6;
    EXPECT_EQ(0, std::memcmp(device.k.data() + 2 * page, before.k.data() + 4 * page, page));
    EXPECT_EQ(0, std::memcmp(device.k.data() + 3 * page, before.k.data() + 1 * page, page));
    const PagePair outside[] = {{0, 2}};
    EXPECT_FALSE(transfer_pages(from, to, outside).ok());
  }
  KvShape other = small;
  other.head_dim = 4;
  Pools narrow(other, CacheLayout::nhd, 0);
  const PagedKvView from[] = {device.view()};
  const PagedKvView to[] = {narrow.view()};
  EXPECT_EQ(transfer_pages(from, to, {}).error().code, ErrorCode::invalid_argument);
}

TEST(HostMemory, IsAlignedZeroedAndAsksForHugePages) {
  EXPECT_EQ(HostMemory::allocate(0).error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(HostMemory::allocate(std::size_t{1} << 60).error().code, ErrorCode::out_of_memory);
  auto memory = HostMemory::allocate(std::size_t{5} << 20);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->data()) % (std::size_t{2} << 20), 0U);
  const auto* bytes = static_cast<const unsigned char*>(memory->data());
  EXPECT_TRUE(std::all_of(bytes, bytes + memory->size(), [](unsigned char b) { return b == 0; }));
  const HostMemory moved = std::move(*memory);
  EXPECT_EQ(moved.data(), bytes);
}

TEST(MergeAttention, JoinsTwoDisjointSetsOfKeys) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> a = {1, 2, 3, 4, 9, 9, 9, 9};
  const std::vector<float> b = {5, 6, 7, 8, 5, 6, 9, 9};
  const std::vector<float> lse_a = {std::log(3.0F), 0.25F, -inf, -inf};
  const std::vector<float> lse_b = {std::log(1.0F), -inf, 0.5F, -inf};
  std::vector<float> out(8);
  std::vector<float> lse(4);
  ASSERT_TRUE(merge_attention(a.data(), lse_a.data(), b.data(), lse_b.data(), out.data(), lse.data(), 4, 2).ok());
  EXPECT_NEAR(out[0], 0.75F * 1 + 0.25F * 5, 1e-6F);
  EXPECT_NEAR(lse[0], std::log(4.0F), 1e-6F);
  EXPECT_EQ(out[2], 3.0F);
  EXPECT_EQ(lse[1], 0.25F);
  EXPECT_EQ(out[4], 5.0F);
  EXPECT_EQ(lse[2], 0.5F);
  EXPECT_EQ(out[6], 0.0F);
  EXPECT_EQ(lse[3], -inf);
  EXPECT_FALSE(merge_attention(nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, 1, 2).ok());
}

}  // namespace
}  // namespace kvpool::kernels::test
