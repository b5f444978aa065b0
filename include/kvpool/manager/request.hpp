// A request as the KV cache sees it: tokens, what else its KV depends on, progress.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvpool/block/block_hash.hpp"
#include "kvpool/foundation/error.hpp"
#include "kvpool/prefix/block_hasher.hpp"

namespace kvpool {

/// Order matters: statuses from `finished` on are final.
enum class RequestStatus {
  waiting,
  waiting_for_structured_output_grammar,
  waiting_for_remote_kvs,
  waiting_for_streaming_req,
  running,
  preempted,
  finished,
};

/// A span of the prompt that stands for an image, a sound, ...
///
/// Two spans with equal identifiers share KV. So everything that changes the embedding must be part of the
/// identifier, unshortened: the full content digest, decode options, and the span's length where one content can
/// be embedded in different lengths (content_identity.hpp joins them).
struct MultimodalFeature {
  std::string identifier;   ///< content id, not empty
  std::int64_t offset = 0;  ///< first placeholder token
  std::int64_t length = 0;  ///< placeholder tokens
};

/// Rows of the prompt's embedding tensor, for requests that bring embeddings instead of tokens.
struct PromptEmbeddings {
  std::vector<std::uint8_t> data;    ///< row-major, native dtype
  std::int64_t bytes_per_token = 0;  ///< one row
};

/// What identifies a request's content; see Request for the rest.
struct RequestOptions {
  std::string id;
  std::vector<TokenId> prompt;  ///< not empty
  /// The adapter's identity: hashes depend on it and on nothing else of the adapter. An adapter whose weights can
  /// change under one name needs a version in its name (content_identity.hpp).
  std::optional<std::string> lora_name = {};
  std::optional<std::int64_t> lora_id = {};  ///< only passed on in events
  std::optional<std::string> cache_salt = {};
  std::vector<MultimodalFeature> mm_features = {};  ///< sorted by offset, inside the prompt, not overlapping
  std::optional<PromptEmbeddings> prompt_embeddings = {};
  /// Look-ups answer 0 (prompt logprobs, pooling over all tokens); own blocks are published all the same.
  bool skip_reading_prefix_cache = false;
  /// Announce the blocks of a hit again at look-up time ("full" report mode).
  bool full_event_report = false;
  std::optional<std::string> session_id = {};
};

/// Turns tokens into hashes of `hash_block_size` tokens each. Shared by all requests of one engine.
struct RequestHashing {
  BlockHasher hasher;
  std::int64_t hash_block_size = 16;  ///< tokens per hash unit

  /// What all requests of an engine share. `seed`: as for BlockHasher.
  [[nodiscard]] static std::shared_ptr<const RequestHashing> shared(HashAlgorithm algorithm, std::string_view seed) {
    return std::make_shared<const RequestHashing>(RequestHashing{BlockHasher(algorithm, seed)});
  }
};

/// One request. Not thread-safe: one scheduler thread at a time.
class Request {
 public:
  /// `hashing` empty: no hashes (caching off and no connector). Otherwise full units are hashed now and
  /// after every append. O(prompt). Errors: invalid_argument (empty prompt; hash units of no tokens; multimodal
  /// spans that are unsorted, overlapping, empty, without identifier or outside the prompt; embeddings of
  /// another length than the prompt).
  [[nodiscard]] static Result<Request> create(RequestOptions options, std::shared_ptr<const RequestHashing> hashing);

  [[nodiscard]] const std::string& id() const noexcept { return options_.id; }
  /// As given, except that the prompt has moved to tokens().
  [[nodiscard]] const RequestOptions& options() const noexcept { return options_; }

  [[nodiscard]] std::int64_t num_tokens() const noexcept { return static_cast<std::int64_t>(tokens_.size()); }
  [[nodiscard]] std::int64_t num_prompt_tokens() const noexcept { return num_prompt_tokens_; }
  [[nodiscard]] std::span<const TokenId> tokens() const noexcept { return tokens_; }

  /// Hashes of all full units so far; only grows. Cost of an append: O(new tokens).
  [[nodiscard]] std::span<const BlockHash> block_hashes() const noexcept { return block_hashes_; }

  /// Adds output tokens and hashes the units they complete. `tokens` is not a part of this request's own tokens.
  void append_tokens(std::span<const TokenId> tokens);

  /// Extra keys of tokens [start, end): adapter, multimodal items, salt (at start 0 only), embeddings, in this
  /// order. `cursor` is the first multimodal item to look at (-1: the last one) and is advanced. Used for
  /// hashing and for events. Precondition: 0 <= start <= end.
  [[nodiscard]] ExtraKeys extra_keys(std::int64_t start, std::int64_t end, std::int64_t& cursor) const;

  // Progress, kept by the scheduler.
  std::int64_t num_computed_tokens = 0;
  std::int64_t num_in_flight_tokens = 0;  ///< scheduled, output not yet processed
  std::int64_t num_preemptions = 0;
  RequestStatus status = RequestStatus::waiting;
  /// Prefix that only some groups still have, found by the latest look-up; 0: none. Kept for sparse
  /// retention, which then stores a checkpoint there.
  std::int64_t shared_prefix_boundary = 0;

 private:
  Request(RequestOptions options, std::shared_ptr<const RequestHashing> hashing);
  void hash_new_units();
  [[nodiscard]] bool has_extra_keys() const noexcept;
  [[nodiscard]] const BlockHash& embeddings_digest(std::int64_t start, std::int64_t end) const;

  RequestOptions options_;
  std::shared_ptr<const RequestHashing> hashing_;
  std::vector<TokenId> tokens_;
  std::int64_t num_prompt_tokens_ = 0;
  std::vector<BlockHash> block_hashes_;
  std::int64_t multimodal_cursor_ = 0;  ///< first item that the next unit can overlap
  /// Digests of embedding rows [first, second): hashing and events ask for the same spans.
  mutable std::map<std::pair<std::int64_t, std::int64_t>, BlockHash> embeddings_digests_;
};

}  // namespace kvpool
