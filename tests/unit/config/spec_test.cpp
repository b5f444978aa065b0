// Bytes of a page, blocks of a request, names.
#include <gtest/gtest.h>

#include <limits>

#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {
namespace {

AttentionShape shape(std::int64_t heads, std::int64_t head_size, DType dtype = DType::float32) {
  AttentionShape result;
  result.num_kv_heads = heads;
  result.head_size = head_size;
  result.dtype = dtype;
  return result;
}

FullAttentionSpec full(std::int64_t block_size = 16) {
  FullAttentionSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(2, 64);
  return spec;
}

SlidingWindowSpec window(std::int64_t width, std::int64_t block_size = 16) {
  SlidingWindowSpec spec;
  spec.block_size = block_size;
  spec.shape = shape(2, 64);
  spec.sliding_window = width;
  return spec;
}

RequestLimits limits(std::int64_t max_model_len, std::int64_t in_flight) {
  RequestLimits result;
  result.max_model_len = max_model_len;
  result.max_in_flight_tokens = in_flight;
  return result;
}

TEST(PageSize, FullAttentionStoresKAndVOfEveryHead) { EXPECT_EQ(page_size_bytes(full()), 16384); }

TEST(PageSize, LlamaTwo13B) {
  FullAttentionSpec spec;
  spec.shape = shape(40, 128, DType::float16);
  EXPECT_EQ(page_size_bytes(spec), 327'680);
}

TEST(PageSize, VHeadsMayBeNarrower) {
  FullAttentionSpec spec = full();
  spec.shape.head_size_v = 32;
  EXPECT_EQ(page_size_bytes(spec), 16 * 2 * (64 + 32) * 4);
}

TEST(PageSize, LatentAttentionHasNoV) {
  MlaAttentionSpec spec;
  spec.shape = shape(1, 576);
  EXPECT_EQ(page_size_bytes(spec), 36'864);
  spec.shape.head_size_v = 512;
  EXPECT_EQ(page_size_bytes(spec), 36'864);
}

TEST(PageSize, CompressionStoresFewerEntriesAndAlignmentPadsThePage) {
  MlaAttentionSpec spec;
  spec.block_size = 64;
  spec.compress_ratio = 4;
  spec.shape = shape(1, 584, DType::uint8);
  EXPECT_EQ(block_size(spec), 64);
  EXPECT_EQ(page_size_bytes(spec), 16 * 584);
  spec.alignment = 576;
  EXPECT_EQ(page_size_bytes(spec), 17 * 576);
}

TEST(PageSize, PaddedPageIsThePage) {
  FullAttentionSpec spec = full();
  spec.shape.page_size_padded = 20'000;
  EXPECT_EQ(page_size_bytes(spec), 20'000);
  EXPECT_TRUE(validate_spec(spec).ok());
  spec.shape.page_size_padded = 16'383;
  const Status status = validate_spec(spec);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("page_size_padded 16383"), std::string::npos);
}

TEST(PageSize, PackedQuantisedContentReplacesTheElements) {
  FullAttentionSpec spec;
  spec.shape = shape(8, 128, DType::fp8_e4m3);
  EXPECT_EQ(page_size_bytes(spec), 16 * 8 * 256);
  spec.shape.head_content_bytes = 256 + 8;  // a fp32 scale for K and for V
  EXPECT_EQ(page_size_bytes(spec), 16 * 8 * 264);
  spec.shape.num_head_slots = 16;
  EXPECT_EQ(page_size_bytes(spec), 16 * 16 * 264);
}

TEST(PageSize, StateIsTheSumOfItsTensors) {
  MambaSpec spec;
  spec.states = {{{2, 512}, DType::bfloat16}, {{3, 32, 32}, DType::float32}};
  EXPECT_EQ(page_size_bytes(spec), 2 * 512 * 2 + 3 * 32 * 32 * 4);
  spec.page_size_padded = 16384;
  EXPECT_EQ(page_size_bytes(spec), 16384);
}

TEST(PageSize, UniformTypeIsTheSumOfItsLayers) {
  FullAttentionSpec wide = full();
  wide.shape.head_size = 128;
  const UniformTypeSpec uniform{{{"a", full()}, {"b", wide}}};
  EXPECT_EQ(page_size_bytes(uniform), 3 * 16384);
  EXPECT_EQ(block_size(uniform), 16);
}

TEST(PageSize, OverflowSaturatesAndIsRefused) {
  FullAttentionSpec spec = full();
  spec.shape.head_size = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_EQ(page_size_bytes(spec), std::numeric_limits<std::int64_t>::max());
  EXPECT_FALSE(validate_spec(spec).ok());
}

TEST(RequestNeed, FullAttentionHoldsTheWholeSequence) {
  EXPECT_EQ(max_blocks_per_request(full(), limits(4096, 1024)), 256);
  EXPECT_EQ(max_blocks_per_request(full(), limits(4097, 1024)), 257);
  EXPECT_EQ(max_memory_usage_bytes(full(), limits(4096, 1024)), 256 * 16384);
}

TEST(RequestNeed, FullAttentionIsSplitByDecodeContextParallelism) {
  RequestLimits parallel = limits(4096, 1024);
  parallel.dcp_world_size = 4;
  EXPECT_EQ(max_blocks_per_request(full(), parallel), 64);
  parallel.dcp_world_size = 3;
  EXPECT_EQ(max_blocks_per_request(full(), parallel), 86);
}

TEST(RequestNeed, BlockSizeOneCountsTokens) {
  for (const std::int64_t tokens : {1, 3, 8, 17}) EXPECT_EQ(max_blocks_per_request(full(1), limits(tokens, 1)), tokens);
}

TEST(RequestNeed, WindowHoldsWindowAndTokensInFlightAndOneBlock) {
  EXPECT_EQ(max_blocks_per_request(window(1024), limits(16384, 1024)), 129);
  EXPECT_EQ(max_blocks_per_request(window(128), limits(16384, 1024)), 73);
}

TEST(RequestNeed, WindowIsBoundedByTheSequence) {
  EXPECT_EQ(max_blocks_per_request(window(1024), limits(64, 1024)), 4 + 1);
}

TEST(RequestNeed, RetainedTokensWidenTheWindow) {
  SlidingWindowSpec spec = window(1024);
  spec.extra_retained_tokens = 2;
  EXPECT_EQ(max_blocks_per_request(spec, limits(16384, 1024)), 130);
}

TEST(RequestNeed, ChunkedLocalHoldsChunkAndTokensInFlight) {
  ChunkedLocalAttentionSpec spec;
  spec.attention_chunk_size = 8192;
  EXPECT_EQ(max_blocks_per_request(spec, limits(131'072, 8192)), 1024);
  EXPECT_EQ(max_blocks_per_request(spec, limits(4096, 8192)), 256);
}

TEST(RequestNeed, StateBlocksFollowTheMode) {
  MambaSpec spec;
  spec.states = {{{64}, DType::float32}};
  spec.num_speculative_blocks = 3;
  EXPECT_EQ(max_blocks_per_request(spec, limits(1000, 100)), 1 + 3);
  spec.cache_mode = MambaCacheMode::align;
  EXPECT_EQ(max_blocks_per_request(spec, limits(1000, 100)), 2 + 3);
  spec.cache_mode = MambaCacheMode::all;
  EXPECT_EQ(max_blocks_per_request(spec, limits(1000, 100)), 63 + 3);
}

TEST(RequestNeed, EncoderOnlyHoldsNothing) {
  EXPECT_EQ(max_blocks_per_request(EncoderOnlyAttentionSpec{}, limits(1000, 100)), 0);
}

TEST(RequestNeed, UniformTypeCountsBlocksOnce) {
  FullAttentionSpec wide = full();
  wide.shape.head_size = 128;
  const UniformTypeSpec uniform{{{"a", full()}, {"b", wide}}};
  EXPECT_EQ(max_memory_usage_bytes(uniform, limits(160, 16)), 10 * 3 * 16384);
}

TEST(RequestNeed, SinkKeepsItsOwnBlocksForEver) {
  SinkFullAttentionSpec sink;
  sink.sink_len = 40;
  EXPECT_EQ(permanent_blocks(sink), 2);
  EXPECT_EQ(permanent_blocks(full()), 0);
}

TEST(RequestNeed, HugeLengthsDoNotOverflow) {
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(max_memory_usage_bytes(full(), limits(huge, huge)), huge);
  EXPECT_GT(max_blocks_per_request(window(1024, 1), limits(huge, huge)), 0);
}

TEST(SpecNames, EventKindsFollowTheWireFormat) {
  EXPECT_EQ(event_kind(FullAttentionSpec{}), "full_attention");
  EXPECT_EQ(event_kind(MlaAttentionSpec{}), "mla_attention");
  EXPECT_EQ(event_kind(SlidingWindowSpec{}), "sliding_window");
  EXPECT_EQ(event_kind(SlidingWindowMlaSpec{}), "sliding_window_mla");
  EXPECT_EQ(event_kind(MambaSpec{}), "mamba");
  EXPECT_EQ(event_kind(ChunkedLocalAttentionSpec{}), "chunked_local_attention");
  EXPECT_EQ(event_kind(SinkFullAttentionSpec{}), "sink_full_attention");
  EXPECT_EQ(event_kind(EncoderOnlyAttentionSpec{}), "encoder_only_attention");
  EXPECT_EQ(event_kind(CrossAttentionSpec{}), "cross_attention");
  EXPECT_EQ(event_kind(RswaSpec{}), "full_attention");
}

TEST(SpecNames, UniformGroupsHaveTheirLayersKind) {
  EXPECT_EQ(event_kind(UniformTypeSpec{{{"a", window(8)}, {"b", window(8)}}}), "sliding_window");
  EXPECT_EQ(event_kind(UniformTypeSpec{{{"a", full()}, {"b", MlaAttentionSpec{}}}}), "full_attention");
  EXPECT_EQ(event_kind(UniformTypeSpec{{{"a", full()}, {"b", window(8)}}}), "unknown");
}

TEST(SpecNames, DTypesAndModes) {
  EXPECT_EQ(to_string(DType::fp8_e4m3), "fp8_e4m3");
  EXPECT_EQ(size_in_bytes(DType::float32), 4);
  EXPECT_EQ(size_in_bytes(DType::fp8_e5m2), 1);
  EXPECT_EQ(to_string(MambaCacheMode::align), "align");
}

TEST(Validation, NamesFieldAndValue) {
  const auto message = [](const KVCacheSpec& spec) {
    const Status status = validate_spec(spec);
    return status ? std::string{} : status.error().message;
  };
  EXPECT_EQ(message(full(0)), "full_attention: block_size 0 must be at least 1");
  EXPECT_EQ(message(window(0)), "sliding_window: sliding_window 0 must be at least 1");
  FullAttentionSpec headless = full();
  headless.shape.num_kv_heads = 0;
  EXPECT_EQ(message(headless), "full_attention: num_kv_heads 0 must be at least 1");
  MlaAttentionSpec odd;
  odd.compress_ratio = 3;
  EXPECT_EQ(message(odd), "mla_attention: block_size 16 is no multiple of compress_ratio 3");
  EXPECT_EQ(message(MambaSpec{}), "mamba: states 0 must be at least 1");
  EXPECT_EQ(message(UniformTypeSpec{}), "uniform_type: no layers");
  EXPECT_EQ(message(UniformTypeSpec{{{"a", full(16)}, {"b", full(32)}}}),
            "uniform_type: block_size 32 of layer 'b' differs from 16");
}

TEST(Validation, AcceptsEveryBlockSizeFromOne) {
  for (const std::int64_t size : {1, 3, 8, 16, 17, 256}) EXPECT_TRUE(validate_spec(full(size)).ok()) << size;
}

}  // namespace
}  // namespace kvpool
