// Rules that every spec must meet before anything is computed from it.
#include <string>

#include "config/overloaded.hpp"
#include "config/saturating.hpp"
#include "config/spec_access.hpp"
#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {
namespace {

using config::Overloaded;

// Collects the first broken rule.
class Checker {
 public:
  explicit Checker(std::string_view spec) : spec_(spec) {}

  void at_least(std::string_view field, std::int64_t value, std::int64_t least) {
    if (value < least) fail(field, value, "must be at least " + std::to_string(least));
  }
  void at_least(std::string_view field, const std::optional<std::int64_t>& value, std::int64_t least) {
    if (value) at_least(field, *value, least);
  }
  void fail(std::string_view field, std::int64_t value, const std::string& rule) {
    if (!status_) return;
    status_ = {ErrorCode::invalid_config,
               std::string(spec_) + ": " + std::string(field) + " " + std::to_string(value) + " " + rule};
  }
  [[nodiscard]] bool ok() const noexcept { return status_.ok(); }
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  std::string_view spec_;
  Status status_;
};

void check_compression(Checker& check, std::int64_t block_size, std::int64_t ratio,
                       const std::optional<std::int64_t>& alignment) {
  check.at_least("compress_ratio", ratio, 1);
  check.at_least("alignment", alignment, 1);
  if (check.ok() && block_size % ratio != 0) {
    check.fail("block_size", block_size, "is no multiple of compress_ratio " + std::to_string(ratio));
  }
}

template <class Window>
void check_window(Checker& check, const Window& window) {
  check.at_least("sliding_window", window.sliding_window, 1);
  check.at_least("extra_retained_tokens", window.extra_retained_tokens, 0);
}

void check_states(Checker& check, const MambaSpec& mamba) {
  check.at_least("states", static_cast<std::int64_t>(mamba.states.size()), 1);
  check.at_least("num_speculative_blocks", mamba.num_speculative_blocks, 0);
  for (const MambaStateTensor& state : mamba.states) {
    for (const std::int64_t extent : state.shape) check.at_least("states.shape", extent, 1);
  }
}

void check_shape(Checker& check, const AttentionShape& shape) {
  check.at_least("num_kv_heads", shape.num_kv_heads, 1);
  check.at_least("head_size", shape.head_size, 1);
  check.at_least("head_size_v", shape.head_size_v, 0);
  check.at_least("num_head_slots", shape.num_head_slots, 1);
  check.at_least("head_content_bytes", shape.head_content_bytes, 1);
}

void check_type(Checker& check, const LayerSpec& spec) {
  std::visit(Overloaded{
                 [&](const FullAttentionSpec& full) {
                   check.at_least("sliding_window", full.sliding_window, 1);
                   check.at_least("attention_chunk_size", full.attention_chunk_size, 1);
                 },
                 [&](const MlaAttentionSpec& mla) {
                   check_compression(check, mla.block_size, mla.compress_ratio, mla.alignment);
                 },
                 [&](const SlidingWindowSpec& window) { check_window(check, window); },
                 [&](const SlidingWindowMlaSpec& window) {
                   check_window(check, window);
                   check_compression(check, window.block_size, window.compress_ratio, window.alignment);
                 },
                 [&](const ChunkedLocalAttentionSpec& chunked) {
                   check.at_least("attention_chunk_size", chunked.attention_chunk_size, 1);
                 },
                 [&](const MambaSpec& mamba) { check_states(check, mamba); },
                 [&](const SinkFullAttentionSpec& sink) { check.at_least("sink_len", sink.sink_len, 0); },
                 [&](const RswaSpec& rswa) { check.at_least("rswa_window", rswa.rswa_window, 1); },
                 [](const CrossAttentionSpec&) {},
                 [](const EncoderOnlyAttentionSpec&) {},
                 [](const HiddenStateSpec&) {},
             },
             spec);
}

Status validate_layer(const LayerSpec& spec) {
  Checker check(spec_name(to_group_spec(spec)));
  check.at_least("block_size", config::layer_block_size(spec), 1);
  if (const AttentionShape* shape = config::attention_shape(spec)) check_shape(check, *shape);
  if (check.ok()) check_type(check, spec);
  if (!check.ok()) return check.status();

  const std::int64_t raw = config::raw_page_size_bytes(spec);
  if (raw == config::kSaturated) check.fail("page_size_bytes", raw, "is too large to be counted");
  if (const auto padded = config::page_size_padded(spec); padded && *padded < raw) {
    check.fail("page_size_padded", *padded, "is smaller than the " + std::to_string(raw) + " bytes of a block");
  }
  return check.status();
}

Status validate_uniform(const UniformTypeSpec& uniform) {
  if (uniform.layers.empty()) return {ErrorCode::invalid_config, "uniform_type: no layers"};
  const std::int64_t expected = config::layer_block_size(uniform.layers.front().spec);
  for (const auto& layer : uniform.layers) {
    if (const Status status = validate_layer(layer.spec); !status) return status;
    if (const std::int64_t size = config::layer_block_size(layer.spec); size != expected) {
      return {ErrorCode::invalid_config, "uniform_type: block_size " + std::to_string(size) + " of layer '" +
                                             layer.name + "' differs from " + std::to_string(expected)};
    }
  }
  return {};
}

}  // namespace

Status validate_spec(const KVCacheSpec& spec) {
  return std::visit(Overloaded{
                        [](const UniformTypeSpec& uniform) { return validate_uniform(uniform); },
                        [](const auto& layer) { return validate_layer(LayerSpec{layer}); },
                    },
                    spec);
}

}  // namespace kvpool
