// What the KV cache of one layer looks like: one struct per attention type, joined in a variant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kvpool/foundation/error.hpp"

namespace kvpool {

/// Element types of cached keys, values and states.
enum class DType { float32, float16, bfloat16, fp8_e4m3, fp8_e5m2, uint8 };

[[nodiscard]] std::int64_t size_in_bytes(DType type) noexcept;
[[nodiscard]] std::string_view to_string(DType type) noexcept;

/// Per-rank shape of one token's K and V in one layer.
struct AttentionShape {
  std::int64_t num_kv_heads = 1;
  std::int64_t head_size = 64;              ///< elements of one K head
  std::optional<std::int64_t> head_size_v;  ///< elements of one V head; empty: as head_size
  DType dtype = DType::bfloat16;
  std::optional<std::int64_t> page_size_padded;  ///< bytes of one block, when padded up
  /// What a backend that packs its cache publishes: heads as stored, and bytes of one head of one token
  /// (data and scales of a quantised cache). Empty: num_kv_heads, and K and V elements of `dtype`.
  std::optional<std::int64_t> num_head_slots;
  std::optional<std::int64_t> head_content_bytes;
  /// The backend addresses blocks by a stride, so that a page may be padded up to a larger one.
  bool blocks_by_stride = true;
  bool operator==(const AttentionShape&) const = default;
};

struct FullAttentionSpec {
  std::int64_t block_size = 16;  ///< tokens per block, per rank
  AttentionShape shape;
  std::optional<std::int64_t> sliding_window;        ///< marker only: allocated as full attention
  std::optional<std::int64_t> attention_chunk_size;  ///< marker only
  bool non_causal = false;                           ///< marker only
  bool operator==(const FullAttentionSpec&) const = default;
};

/// Multi-head latent attention: one latent vector a token, no separate V.
struct MlaAttentionSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  std::int64_t compress_ratio = 1;        ///< tokens per stored entry
  std::optional<std::int64_t> alignment;  ///< pages are padded up to a multiple of this many bytes
  bool operator==(const MlaAttentionSpec&) const = default;
};

struct SlidingWindowSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  std::int64_t sliding_window = 0;         ///< tokens, the current one included
  std::int64_t extra_retained_tokens = 0;  ///< kept beyond the window for multi-module draft models
  bool operator==(const SlidingWindowSpec&) const = default;
};

struct SlidingWindowMlaSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  std::int64_t sliding_window = 0;
  std::int64_t extra_retained_tokens = 0;
  std::int64_t compress_ratio = 1;
  std::optional<std::int64_t> alignment;
  bool operator==(const SlidingWindowMlaSpec&) const = default;
};

struct ChunkedLocalAttentionSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  std::int64_t attention_chunk_size = 0;  ///< tokens
  bool operator==(const ChunkedLocalAttentionSpec&) const = default;
};

enum class MambaCacheMode { none, all, align };

[[nodiscard]] std::string_view to_string(MambaCacheMode mode) noexcept;

struct MambaStateTensor {
  std::vector<std::int64_t> shape;  ///< elements per dimension, per rank
  DType dtype = DType::float32;
  bool operator==(const MambaStateTensor&) const = default;
};

/// Recurrent state: a block holds the state at its last token.
struct MambaSpec {
  std::int64_t block_size = 16;  ///< tokens between two states
  std::vector<MambaStateTensor> states;
  MambaCacheMode cache_mode = MambaCacheMode::none;
  std::int64_t num_speculative_blocks = 0;
  std::optional<std::int64_t> page_size_padded;
  bool operator==(const MambaSpec&) const = default;
};

/// Encoder-decoder attention: blocks for the encoder's tokens, allocated once, never shared.
struct CrossAttentionSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  bool operator==(const CrossAttentionSpec&) const = default;
};

/// Full attention with the first `sink_len` tokens kept in blocks of their own for ever.
struct SinkFullAttentionSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  std::int64_t sink_len = 0;  ///< tokens
  bool operator==(const SinkFullAttentionSpec&) const = default;
};

/// Full attention over the prompt, a window over generated tokens.
struct RswaSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  std::int64_t rswa_window = 0;  ///< tokens
  bool operator==(const RswaSpec&) const = default;
};

struct EncoderOnlyAttentionSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  bool operator==(const EncoderOnlyAttentionSpec&) const = default;
};

/// Hidden states kept beside the KV (draft models): one vector a token, no V.
struct HiddenStateSpec {
  std::int64_t block_size = 16;
  AttentionShape shape;
  bool operator==(const HiddenStateSpec&) const = default;
};

using LayerSpec = std::variant<FullAttentionSpec, MlaAttentionSpec, SlidingWindowSpec, SlidingWindowMlaSpec,
                               ChunkedLocalAttentionSpec, MambaSpec, CrossAttentionSpec, SinkFullAttentionSpec,
                               RswaSpec, EncoderOnlyAttentionSpec, HiddenStateSpec>;

/// Layers of one type and block size whose pages differ: managed as one group.
struct UniformTypeSpec {
  struct Layer {
    std::string name;
    LayerSpec spec;
    bool operator==(const Layer&) const = default;
  };
  std::vector<Layer> layers;  ///< never empty; all with the same block size
  bool operator==(const UniformTypeSpec&) const = default;
};

using KVCacheSpec = std::variant<FullAttentionSpec, MlaAttentionSpec, SlidingWindowSpec, SlidingWindowMlaSpec,
                                 ChunkedLocalAttentionSpec, MambaSpec, CrossAttentionSpec, SinkFullAttentionSpec,
                                 RswaSpec, EncoderOnlyAttentionSpec, HiddenStateSpec, UniformTypeSpec>;

/// What bounds the memory of one request.
struct RequestLimits {
  std::int64_t max_model_len = 0;         ///< tokens
  std::int64_t max_in_flight_tokens = 0;  ///< tokens scheduled and not yet processed
  std::int64_t max_num_encoder_input_tokens = 0;
  std::int64_t dcp_world_size = 1;  ///< decode context parallelism
};

/// Tokens per block on one rank. O(1).
[[nodiscard]] std::int64_t block_size(const KVCacheSpec& spec);

/// Bytes of one block of one layer (of all layers for UniformTypeSpec). O(layers).
/// Sums and products of this file saturate at the largest int64 instead of wrapping.
[[nodiscard]] std::int64_t page_size_bytes(const KVCacheSpec& spec);

/// Upper bound of the bytes that one request can hold in one layer of this type (in all layers for
/// UniformTypeSpec): max_blocks_per_request x page_size_bytes.
[[nodiscard]] std::int64_t max_memory_usage_bytes(const KVCacheSpec& spec, const RequestLimits& limits);

/// Upper bound of the blocks that one request can hold in one group of this type. Start-up sizing,
/// admission and reports all use this one formula.
[[nodiscard]] std::int64_t max_blocks_per_request(const KVCacheSpec& spec, const RequestLimits& limits);

/// Blocks that a group of this type takes out of the pool for ever (attention sinks).
[[nodiscard]] std::int64_t permanent_blocks(const KVCacheSpec& spec);

/// Name used in KV events: "full_attention", "sliding_window", ... ("unknown" for a mixed group).
[[nodiscard]] std::string_view event_kind(const KVCacheSpec& spec);

/// Name of the spec itself, for messages and layout texts: "full_attention", "mla_attention", "rswa",
/// "uniform_type", ...; unlike event_kind no two types share a name.
[[nodiscard]] std::string_view spec_name(const KVCacheSpec& spec);

/// Errors: invalid_config naming the field and its value (block size < 1, a window < 1, a padded page
/// smaller than the raw one, a block size that the compression ratio does not divide, ...).
[[nodiscard]] Status validate_spec(const KVCacheSpec& spec);

/// The alternative of a single layer as a group's spec.
[[nodiscard]] KVCacheSpec to_group_spec(const LayerSpec& spec);

}  // namespace kvpool
