#include "kvpool/manager/request.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "manager/multimodal_keys.hpp"
#include "prefix/digest.hpp"

namespace kvpool {
namespace {

Status invalid(std::string message) { return Status(ErrorCode::invalid_argument, std::move(message)); }

// A span that does not describe its image exactly must not pass: its blocks would be taken for plain text.
Status check_features(std::span<const MultimodalFeature> features, std::int64_t num_prompt_tokens) {
  std::int64_t previous_end = 0;
  for (std::size_t i = 0; i < features.size(); ++i) {
    const MultimodalFeature& feature = features[i];
    if (feature.identifier.empty()) return invalid(fmt::format("multimodal item {} has no identifier", i));
    if (feature.offset < 0 || feature.length <= 0) {
      return invalid(
          fmt::format("multimodal item {} has offset {} and length {} tokens", i, feature.offset, feature.length));
    }
    if (feature.length > num_prompt_tokens || feature.offset > num_prompt_tokens - feature.length) {
      return invalid(fmt::format("multimodal item {} (offset {}, {} tokens) is outside the prompt of {} tokens", i,
                                 feature.offset, feature.length, num_prompt_tokens));
    }
    if (feature.offset < previous_end) {
      return invalid(fmt::format("multimodal item {} starts at token {}, before the end {} of the one before it", i,
                                 feature.offset, previous_end));
    }
    previous_end = feature.offset + feature.length;
  }
  return {};
}

Status check_embeddings(const PromptEmbeddings& embeddings, std::int64_t num_prompt_tokens) {
  const std::int64_t row = embeddings.bytes_per_token;
  const auto size = static_cast<std::uint64_t>(embeddings.data.size());
  // Dividing instead of multiplying: the product of two foreign numbers may overflow.
  if (row <= 0 || size % static_cast<std::uint64_t>(row) != 0 ||
      size / static_cast<std::uint64_t>(row) != static_cast<std::uint64_t>(num_prompt_tokens)) {
    return invalid(
        fmt::format("prompt embeddings have {} bytes, not {} rows of {} bytes", size, num_prompt_tokens, row));
  }
  return {};
}

Status check(const RequestOptions& options, const RequestHashing* hashing) {
  if (options.prompt.empty()) return invalid("the prompt is empty");
  if (hashing != nullptr && hashing->hash_block_size <= 0) {
    return invalid(fmt::format("a hash unit of {} tokens", hashing->hash_block_size));
  }
  const auto num_prompt_tokens = static_cast<std::int64_t>(options.prompt.size());
  if (Status status = check_features(options.mm_features, num_prompt_tokens); !status) return status;
  if (options.prompt_embeddings) return check_embeddings(*options.prompt_embeddings, num_prompt_tokens);
  return {};
}

}  // namespace

Result<Request> Request::create(RequestOptions options, std::shared_ptr<const RequestHashing> hashing) {
  if (Status status = check(options, hashing.get()); !status) return status.error();
  return Request(std::move(options), std::move(hashing));
}

Request::Request(RequestOptions options, std::shared_ptr<const RequestHashing> hashing)
    : options_(std::move(options)),
      hashing_(std::move(hashing)),
      tokens_(std::move(options_.prompt)),
      num_prompt_tokens_(static_cast<std::int64_t>(tokens_.size())) {
  hash_new_units();
}

void Request::append_tokens(std::span<const TokenId> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  hash_new_units();
}

bool Request::has_extra_keys() const noexcept {
  return options_.lora_name || options_.cache_salt || !options_.mm_features.empty() || options_.prompt_embeddings;
}

// The cursor stays where it is between calls. Starting over at the last item would miss the other images of a
// unit that the prompt left incomplete, and two requests with different images would share its hash.
void Request::hash_new_units() {
  if (!hashing_) return;
  const std::int64_t unit = hashing_->hash_block_size;
  std::int64_t start = static_cast<std::int64_t>(block_hashes_.size()) * unit;
  if (num_tokens() - start < unit) return;
  if (start == 0) block_hashes_.reserve(static_cast<std::size_t>(num_tokens() / unit));
  const bool plain = !has_extra_keys();
  const std::span<const TokenId> all = tokens_;
  BlockHash parent = block_hashes_.empty() ? BlockHash{} : block_hashes_.back();
  for (; num_tokens() - start >= unit; start += unit) {
    const auto tokens = all.subspan(static_cast<std::size_t>(start), static_cast<std::size_t>(unit));
    parent = plain ? hashing_->hasher.hash_unit(parent, tokens, {})
                   : hashing_->hasher.hash_unit(parent, tokens, extra_keys(start, start + unit, multimodal_cursor_));
    block_hashes_.push_back(parent);
  }
}

ExtraKeys Request::extra_keys(std::int64_t start, std::int64_t end, std::int64_t& cursor) const {
  ExtraKeys keys;
  if (options_.lora_name) keys.emplace_back(LoraKey{*options_.lora_name});
  append_multimodal_keys(options_.mm_features, start, end, cursor, keys);
  if (start == 0 && options_.cache_salt && !options_.cache_salt->empty()) {
    keys.emplace_back(SaltKey{*options_.cache_salt});
  }
  if (options_.prompt_embeddings) {
    const auto digest = embeddings_digest(start, end).digest();
    keys.emplace_back(PromptEmbedsKey{{digest.begin(), digest.end()}});
  }
  return keys;
}

const BlockHash& Request::embeddings_digest(std::int64_t start, std::int64_t end) const {
  const auto [entry, is_new] = embeddings_digests_.try_emplace({start, end});
  if (is_new) {
    // Output tokens have no rows: spans behind the prompt have the digest of nothing.
    const PromptEmbeddings& embeddings = *options_.prompt_embeddings;
    const auto first = static_cast<std::size_t>(std::min(start, num_prompt_tokens_) * embeddings.bytes_per_token);
    const auto last = static_cast<std::size_t>(std::min(end, num_prompt_tokens_) * embeddings.bytes_per_token);
    entry->second = sha256(std::span(embeddings.data).subspan(first, last - first));
  }
  return entry->second;
}

}  // namespace kvpool
