// Which encoder outputs (of images, sounds, ...) are kept, counted in embeddings.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvpool/manager/request.hpp"

namespace kvpool {

/// How many embeddings a step may compute and the cache may hold; never less than the largest item.
struct EncoderBudget {
  std::int64_t compute = 0;
  std::int64_t cache = 0;
};

[[nodiscard]] EncoderBudget encoder_budget(std::int64_t max_num_encoder_input_tokens, std::int64_t encoder_cache_size,
                                           std::int64_t largest_item) noexcept;

/// Outputs by content id, shared between requests. An output that nobody references stays until its room
/// is needed; the one unreferenced for longest goes first. `input` counts a request's multimodal items
/// from 0. Not thread-safe: one scheduler thread. All calls are O(1) apart from what they evict or list.
class EncoderCacheManager {
 public:
  /// `cache_size` in embeddings.
  explicit EncoderCacheManager(std::int64_t cache_size);

  /// Takes a reference for the request if the output is there.
  [[nodiscard]] bool check_and_update(const Request& request, std::size_t input);

  /// Whether the item fits, on top of `already_scheduled` embeddings of this step; `compute_budget` limits the
  /// item alone. Evicts unreferenced outputs to make room.
  [[nodiscard]] bool can_allocate(const Request& request, std::size_t input, std::int64_t compute_budget,
                                  std::int64_t already_scheduled);

  /// Takes room and a reference for an output that is going to be computed. Precondition: can_allocate.
  void allocate(const Request& request, std::size_t input);

  void free_encoder_input(const Request& request, std::size_t input);
  void free(const Request& request);

  [[nodiscard]] std::set<std::size_t> cached_inputs(const Request& request) const;

  /// Content ids evicted since the last call whose outputs have not come back.
  [[nodiscard]] std::vector<std::string> take_freed();

  void reset();

  [[nodiscard]] std::int64_t cache_size() const noexcept { return cache_size_; }
  [[nodiscard]] std::int64_t num_free() const noexcept { return num_free_; }          ///< empty room
  [[nodiscard]] std::int64_t num_freeable() const noexcept { return num_freeable_; }  ///< with unreferenced outputs

 private:
  struct Unreferenced {
    std::string content;
    std::int64_t size = 0;
  };
  struct Output {
    std::set<std::string> holders;                 ///< request ids
    std::list<Unreferenced>::iterator position{};  ///< valid while nobody holds it
  };

  std::int64_t cache_size_;
  std::int64_t num_free_;
  std::int64_t num_freeable_;
  std::unordered_map<std::string, Output> cached_;
  std::unordered_map<std::string, std::set<std::size_t>> inputs_;  ///< per request id
  std::list<Unreferenced> unreferenced_;                           ///< oldest first
  std::vector<std::string> freed_;
};

/// For encoder-decoder models: outputs go straight into cross-attention blocks, so none is kept for others.
class EncoderDecoderCacheManager {
 public:
  explicit EncoderDecoderCacheManager(std::int64_t cache_size) noexcept;

  [[nodiscard]] bool can_allocate(const Request& request, std::size_t input, std::int64_t compute_budget,
                                  std::int64_t already_scheduled) const;
  void allocate(const Request& request, std::size_t input);
  void free_encoder_input(const Request& request, std::size_t input);
  void free(const Request& request);

  /// Content ids allocated before the previous call: the step that used them is over by now.
  [[nodiscard]] std::vector<std::string> take_freed();
  void reset();

  [[nodiscard]] std::int64_t num_free() const noexcept { return num_free_; }

 private:
  std::int64_t cache_size_;
  std::int64_t num_free_;
  std::vector<std::string> allocated_;
  std::vector<std::string> leaving_;
};

}  // namespace kvpool
