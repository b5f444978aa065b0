#include "kvpool/config/layout_text.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "config/overloaded.hpp"
#include "config/spec_access.hpp"

namespace kvpool {
namespace {

using config::Overloaded;

// White space would make a value look like two, so it is written as %XX.
std::string escaped(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  for (const char character : text) {
    const auto byte = static_cast<unsigned char>(character);
    if (byte > 0x20 && byte != '%' && byte != 0x7f) {
      result.push_back(character);
    } else {
      result.push_back('%');
      result.push_back(kHex[byte >> 4]);
      result.push_back(kHex[byte & 15]);
    }
  }
  return result.empty() ? "%" : result;
}

class Writer {
 public:
  void enter(std::string prefix) { prefix_ = std::move(prefix); }
  void text(std::string_view field, std::string_view value) {
    lines_.push_back({prefix_ + std::string(field), escaped(value)});
  }
  void number(std::string_view field, std::int64_t value) { text(field, std::to_string(value)); }
  void number(std::string_view field, const std::optional<std::int64_t>& value) {
    text(field, value ? std::to_string(*value) : "none");
  }
  [[nodiscard]] std::vector<LayoutLine> take() { return std::move(lines_); }

 private:
  std::string prefix_;
  std::vector<LayoutLine> lines_;
};

void write_shape(Writer& out, const AttentionShape& shape) {
  out.text("dtype", to_string(shape.dtype));
  out.number("num_kv_heads", shape.num_kv_heads);
  out.number("head_size", shape.head_size);
  out.number("head_size_v", shape.head_size_v);
  out.number("num_head_slots", shape.num_head_slots);
  out.number("head_content_bytes", shape.head_content_bytes);
}

template <class Window>
void write_window(Writer& out, const Window& window) {
  out.number("sliding_window", window.sliding_window);
  out.number("extra_retained_tokens", window.extra_retained_tokens);
}

template <class Latent>
void write_compression(Writer& out, const Latent& latent) {
  out.number("compress_ratio", latent.compress_ratio);
  out.number("alignment", latent.alignment);
}

void write_states(Writer& out, const MambaSpec& mamba) {
  out.text("mamba_cache_mode", to_string(mamba.cache_mode));
  out.number("num_speculative_blocks", mamba.num_speculative_blocks);
  for (std::size_t i = 0; i < mamba.states.size(); ++i) {
    std::string shape(to_string(mamba.states[i].dtype));
    for (const std::int64_t extent : mamba.states[i].shape) shape += "x" + std::to_string(extent);
    out.text("state_" + std::to_string(i), shape);
  }
}

void write_layer_spec(Writer& out, const LayerSpec& spec) {
  out.text("kind", spec_name(to_group_spec(spec)));
  out.number("block_size", config::layer_block_size(spec));
  out.number("page_size_bytes", config::layer_page_size_bytes(spec));
  if (const AttentionShape* shape = config::attention_shape(spec)) write_shape(out, *shape);
  std::visit(Overloaded{
                 [&](const FullAttentionSpec& full) {
                   out.number("sliding_window", full.sliding_window);
                   out.number("attention_chunk_size", full.attention_chunk_size);
                   out.text("causal", full.non_causal ? "no" : "yes");
                 },
                 [&](const MlaAttentionSpec& mla) { write_compression(out, mla); },
                 [&](const SlidingWindowSpec& window) { write_window(out, window); },
                 [&](const SlidingWindowMlaSpec& window) {
                   write_window(out, window);
                   write_compression(out, window);
                 },
                 [&](const ChunkedLocalAttentionSpec& chunked) {
                   out.number("attention_chunk_size", chunked.attention_chunk_size);
                 },
                 [&](const MambaSpec& mamba) { write_states(out, mamba); },
                 [&](const SinkFullAttentionSpec& sink) { out.number("sink_len", sink.sink_len); },
                 [&](const RswaSpec& rswa) { out.number("rswa_window", rswa.rswa_window); },
                 [](const CrossAttentionSpec&) {},
                 [](const EncoderOnlyAttentionSpec&) {},
                 [](const HiddenStateSpec&) {},
             },
             spec);
}

void write_group(Writer& out, const KVCacheGroup& group, const std::string& prefix) {
  out.enter(prefix);
  out.text("eagle", group.is_eagle_group ? "yes" : "no");
  out.number("layers", static_cast<std::int64_t>(group.layer_names.size()));
  std::visit(Overloaded{
                 [&](const UniformTypeSpec& uniform) {
                   out.text("kind", spec_name(group.spec));
                   for (std::size_t i = 0; i < uniform.layers.size(); ++i) {
                     out.enter(prefix + "layer " + std::to_string(i) + " ");
                     out.text("name", uniform.layers[i].name);
                     write_layer_spec(out, uniform.layers[i].spec);
                   }
                 },
                 [&](const auto& layer) {
                   write_layer_spec(out, LayerSpec{layer});
                   for (std::size_t i = 0; i < group.layer_names.size(); ++i) {
                     out.text("layer " + std::to_string(i) + " name", group.layer_names[i]);
                   }
                 },
             },
             group.spec);
}

void write_context(Writer& out, const LayoutContext& context, std::size_t num_groups) {
  out.text("layout_version", "1");
  out.number("max_model_len", context.max_model_len);
  out.number("scheduler_block_size", context.scheduler_block_size);
  out.number("hash_block_size", context.hash_block_size);
  out.number("dcp_world_size", context.dcp_world_size);
  out.text("block_order", context.block_order);
  out.number("groups", static_cast<std::int64_t>(num_groups));
}

void write_groups(Writer& out, std::span<const KVCacheGroup> groups) {
  for (std::size_t i = 0; i < groups.size(); ++i) write_group(out, groups[i], "group " + std::to_string(i) + " ");
}

}  // namespace

std::vector<LayoutLine> canonical_layout(std::span<const KVCacheGroup> groups, const LayoutContext& context) {
  Writer out;
  write_context(out, context, groups.size());
  write_groups(out, groups);
  return out.take();
}

std::vector<LayoutLine> canonical_layout(const KVCacheConfig& config, const LayoutContext& context) {
  Writer out;
  write_context(out, context, config.groups.size());
  out.number("prefix_cache_retention_interval", config.prefix_cache_retention_interval);
  write_groups(out, config.groups);
  return out.take();
}

std::string layout_text(std::span<const LayoutLine> lines) {
  std::string text;
  for (const LayoutLine& line : lines) {
    text += line.field;
    text += ' ';
    text += line.value;
    text += '\n';
  }
  return text;
}

std::optional<std::vector<LayoutLine>> parse_layout_text(std::string_view text) {
  std::vector<LayoutLine> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = text.substr(0, end);
    const std::size_t space = line.rfind(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) return std::nullopt;
    lines.push_back({std::string(line.substr(0, space)), std::string(line.substr(space + 1))});
    text.remove_prefix(end + 1);
  }
  return lines;
}

std::optional<LayoutDifference> first_difference(std::span<const LayoutLine> left, std::span<const LayoutLine> right) {
  std::map<std::string_view, std::string_view> theirs;
  for (const LayoutLine& line : right) theirs.emplace(line.field, line.value);
  for (const LayoutLine& line : left) {
    const auto found = theirs.find(line.field);
    if (found == theirs.end()) return LayoutDifference{line.field, line.value, {}};
    if (found->second != line.value) return LayoutDifference{line.field, line.value, std::string(found->second)};
    theirs.erase(found);
  }
  for (const LayoutLine& line : right) {
    if (theirs.contains(line.field)) return LayoutDifference{line.field, {}, line.value};
  }
  return std::nullopt;
}

}  // namespace kvpool
