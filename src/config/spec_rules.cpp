#include "config/spec_rules.hpp"

#include <algorithm>
#include <string>

#include "config/overloaded.hpp"
#include "config/spec_access.hpp"

namespace kvpool::config {
namespace {

// What must agree within one block table. `base` names the manager's family.
struct TableKind {
  enum class Base { full, sink, rswa, window, chunked, state, cross, encoder_only };
  Base base;
  std::int64_t first = 0;
  std::int64_t second = 0;
  bool operator==(const TableKind&) const = default;
};

using Base = TableKind::Base;

const auto kTableKind = Overloaded{
    [](const FullAttentionSpec&) { return TableKind{Base::full}; },
    [](const MlaAttentionSpec&) { return TableKind{Base::full}; },
    [](const HiddenStateSpec&) { return TableKind{Base::full}; },
    [](const SinkFullAttentionSpec& sink) {
      return TableKind{Base::sink, sink.sink_len};
    },
    [](const RswaSpec& rswa) {
      return TableKind{Base::rswa, rswa.rswa_window};
    },
    [](const SlidingWindowSpec& window) {
      return TableKind{Base::window, window.sliding_window, window.extra_retained_tokens};
    },
    [](const SlidingWindowMlaSpec& window) {
      return TableKind{Base::window, window.sliding_window, window.extra_retained_tokens};
    },
    [](const ChunkedLocalAttentionSpec& chunked) {
      return TableKind{Base::chunked, chunked.attention_chunk_size};
    },
    [](const MambaSpec& mamba) {
      return TableKind{Base::state, mamba.num_speculative_blocks, static_cast<std::int64_t>(mamba.cache_mode)};
    },
    [](const CrossAttentionSpec&) { return TableKind{Base::cross}; },
    [](const EncoderOnlyAttentionSpec&) { return TableKind{Base::encoder_only}; },
};

// Takes over what `mine` lacks; false when both have a value and they differ.
bool merge_marker(std::optional<std::int64_t>& mine, const std::optional<std::int64_t>& other) {
  if (!mine) mine = other;
  return !other || *mine == *other;
}

bool markers_agree(FullAttentionSpec& mine, const FullAttentionSpec& other) {
  return merge_marker(mine.sliding_window, other.sliding_window) &&
         merge_marker(mine.attention_chunk_size, other.attention_chunk_size);
}

Status contradiction(const FullAttentionSpec& a, const FullAttentionSpec& b) {
  const auto text = [](const std::optional<std::int64_t>& value) { return value ? std::to_string(*value) : "none"; };
  if (a.sliding_window != b.sliding_window) {
    return {ErrorCode::invalid_config, "full attention layers of one group have different sliding_window values " +
                                           text(a.sliding_window) + " and " + text(b.sliding_window)};
  }
  return {ErrorCode::invalid_config, "full attention layers of one group have different attention_chunk_size values " +
                                         text(a.attention_chunk_size) + " and " + text(b.attention_chunk_size)};
}

Status check_markers(std::span<const LayerSpec> specs) {
  FullAttentionSpec joined = std::get<FullAttentionSpec>(specs.front());
  for (const LayerSpec& spec : specs) {
    const auto& full = std::get<FullAttentionSpec>(spec);
    const FullAttentionSpec before = joined;
    if (!markers_agree(joined, full)) return contradiction(before, full);
  }
  if (joined.sliding_window && joined.attention_chunk_size) {
    return {ErrorCode::invalid_config, "one group cannot have both sliding_window " +
                                           std::to_string(*joined.sliding_window) + " and attention_chunk_size " +
                                           std::to_string(*joined.attention_chunk_size)};
  }
  return {};
}

}  // namespace

bool is_full_family(const LayerSpec& spec) {
  const Base base = std::visit(kTableKind, spec).base;
  return base == Base::full || base == Base::sink || base == Base::rswa;
}

bool is_window_mla(const LayerSpec& spec) { return std::holds_alternative<SlidingWindowMlaSpec>(spec); }

bool is_local(const LayerSpec& spec) {
  const Base base = std::visit(kTableKind, spec).base;
  return base == Base::window || base == Base::chunked;
}

std::optional<LayerSpec> merge(const LayerSpec& a, const LayerSpec& b) {
  if (a == b) return a;
  const auto* left = std::get_if<FullAttentionSpec>(&a);
  const auto* right = std::get_if<FullAttentionSpec>(&b);
  if (left == nullptr || right == nullptr) return std::nullopt;
  FullAttentionSpec joined = *left;
  FullAttentionSpec other = *right;
  if (!markers_agree(joined, other)) return std::nullopt;
  if (joined.sliding_window && joined.attention_chunk_size) return std::nullopt;
  other.sliding_window = joined.sliding_window;
  other.attention_chunk_size = joined.attention_chunk_size;
  if (joined != other) return std::nullopt;
  return LayerSpec{joined};
}

Result<std::optional<LayerSpec>> merge_all(std::span<const LayerSpec> specs) {
  const auto is_full = [](const LayerSpec& spec) { return std::holds_alternative<FullAttentionSpec>(spec); };
  if (std::all_of(specs.begin(), specs.end(), is_full)) {
    if (const Status status = check_markers(specs); !status) return status.error();
  }
  std::optional<LayerSpec> joined = specs.front();
  for (const LayerSpec& spec : specs.subspan(1)) {
    joined = merge(*joined, spec);
    if (!joined) break;
  }
  return joined;
}

bool same_uniform_type(const LayerSpec& a, const LayerSpec& b) {
  return layer_block_size(a) == layer_block_size(b) && std::visit(kTableKind, a) == std::visit(kTableKind, b);
}

bool all_uniform_type(std::span<const LayerSpec> specs) {
  return std::all_of(specs.begin(), specs.end(),
                     [&specs](const LayerSpec& spec) { return same_uniform_type(specs.front(), spec); });
}

LayerSpec promote_to_full(const LayerSpec& spec, std::optional<std::int64_t> new_block_size) {
  if (!is_local(spec)) return spec;
  const std::int64_t block_size = new_block_size.value_or(layer_block_size(spec));
  LayerSpec full = std::visit(Overloaded{
                                  [block_size](const SlidingWindowSpec& window) -> LayerSpec {
                                    return FullAttentionSpec{.block_size = block_size,
                                                             .shape = window.shape,
                                                             .sliding_window = window.sliding_window,
                                                             .attention_chunk_size = {}};
                                  },
                                  [block_size](const ChunkedLocalAttentionSpec& chunked) -> LayerSpec {
                                    return FullAttentionSpec{.block_size = block_size,
                                                             .shape = chunked.shape,
                                                             .sliding_window = {},
                                                             .attention_chunk_size = chunked.attention_chunk_size};
                                  },
                                  [block_size](const SlidingWindowMlaSpec& window) -> LayerSpec {
                                    return MlaAttentionSpec{.block_size = block_size,
                                                            .shape = window.shape,
                                                            .compress_ratio = window.compress_ratio,
                                                            .alignment = window.alignment};
                                  },
                                  [](const auto& other) -> LayerSpec { return other; },
                              },
                              spec);
  if (const auto padded = page_size_padded(full)) {
    full = with_page_size_padded(full, std::max(*padded, raw_page_size_bytes(full)));
  }
  return full;
}

}  // namespace kvpool::config
