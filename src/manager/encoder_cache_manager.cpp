#include "kvpool/manager/encoder_cache_manager.hpp"

#include <algorithm>
#include <utility>

namespace kvpool {
namespace {

const MultimodalFeature& item(const Request& request, std::size_t input) {
  return request.options().mm_features[input];
}

}  // namespace

EncoderBudget encoder_budget(std::int64_t max_num_encoder_input_tokens, std::int64_t encoder_cache_size,
                             std::int64_t largest_item) noexcept {
  return {std::max(max_num_encoder_input_tokens, largest_item), std::max(encoder_cache_size, largest_item)};
}

// --- EncoderCacheManager ------------------------------------------------------------------------------------------

EncoderCacheManager::EncoderCacheManager(std::int64_t cache_size)
    : cache_size_(cache_size), num_free_(cache_size), num_freeable_(cache_size) {}

bool EncoderCacheManager::check_and_update(const Request& request, std::size_t input) {
  const auto found = cached_.find(item(request, input).identifier);
  if (found == cached_.end()) return false;
  Output& output = found->second;
  if (output.holders.empty()) {
    num_freeable_ -= output.position->size;
    unreferenced_.erase(output.position);
  }
  output.holders.insert(request.id());
  inputs_[request.id()].insert(input);
  return true;
}

bool EncoderCacheManager::can_allocate(const Request& request, std::size_t input, std::int64_t compute_budget,
                                       std::int64_t already_scheduled) {
  const std::int64_t size = item(request, input).length;
  if (size > compute_budget) return false;
  const std::int64_t needed = size + already_scheduled;
  if (needed <= num_free_) return true;
  if (needed > num_freeable_) return false;
  while (needed > num_free_) {
    Unreferenced oldest = std::move(unreferenced_.front());
    unreferenced_.pop_front();
    cached_.erase(oldest.content);
    num_free_ += oldest.size;
    freed_.push_back(std::move(oldest.content));
  }
  return true;
}

void EncoderCacheManager::allocate(const Request& request, std::size_t input) {
  const MultimodalFeature& feature = item(request, input);
  cached_[feature.identifier].holders.insert(request.id());
  inputs_[request.id()].insert(input);
  num_free_ -= feature.length;
  num_freeable_ -= feature.length;
}

void EncoderCacheManager::free_encoder_input(const Request& request, std::size_t input) {
  const auto owned = inputs_.find(request.id());
  if (owned == inputs_.end() || owned->second.erase(input) == 0) return;
  const MultimodalFeature& feature = item(request, input);
  // Another item of the request with the same content keeps the reference.
  const bool still_used = std::any_of(owned->second.begin(), owned->second.end(), [&](std::size_t other) {
    return item(request, other).identifier == feature.identifier;
  });
  if (owned->second.empty()) inputs_.erase(owned);
  const auto found = cached_.find(feature.identifier);
  if (still_used || found == cached_.end() || found->second.holders.erase(request.id()) == 0) return;
  if (!found->second.holders.empty()) return;
  found->second.position = unreferenced_.insert(unreferenced_.end(), {feature.identifier, feature.length});
  num_freeable_ += feature.length;
}

void EncoderCacheManager::free(const Request& request) {
  for (const std::size_t input : cached_inputs(request)) free_encoder_input(request, input);
}

std::set<std::size_t> EncoderCacheManager::cached_inputs(const Request& request) const {
  const auto owned = inputs_.find(request.id());
  return owned == inputs_.end() ? std::set<std::size_t>{} : owned->second;
}

std::vector<std::string> EncoderCacheManager::take_freed() {
  std::vector<std::string> gone = std::exchange(freed_, {});
  gone.erase(std::remove_if(gone.begin(), gone.end(),
                            [this](const std::string& content) { return cached_.count(content) != 0; }),
             gone.end());
  return gone;
}

void EncoderCacheManager::reset() {
  cached_.clear();
  inputs_.clear();
  unreferenced_.clear();
  freed_.clear();
  num_free_ = cache_size_;
  num_freeable_ = cache_size_;
}

// --- EncoderDecoderCacheManager -----------------------------------------------------------------------------------

EncoderDecoderCacheManager::EncoderDecoderCacheManager(std::int64_t cache_size) noexcept
    : cache_size_(cache_size), num_free_(cache_size) {}

bool EncoderDecoderCacheManager::can_allocate(const Request& request, std::size_t input, std::int64_t compute_budget,
                                              std::int64_t already_scheduled) const {
  const std::int64_t size = item(request, input).length;
  return size <= compute_budget && size + already_scheduled <= num_free_;
}

void EncoderDecoderCacheManager::allocate(const Request& request, std::size_t input) {
  num_free_ -= item(request, input).length;
  allocated_.push_back(item(request, input).identifier);
}

void EncoderDecoderCacheManager::free_encoder_input(const Request& request, std::size_t input) {
  num_free_ += item(request, input).length;
}

void EncoderDecoderCacheManager::free(const Request& request) {
  for (std::size_t input = 0; input < request.options().mm_features.size(); ++input) {
    free_encoder_input(request, input);
  }
}

std::vector<std::string> EncoderDecoderCacheManager::take_freed() {
  return std::exchange(leaving_, std::exchange(allocated_, {}));
}

void EncoderDecoderCacheManager::reset() {
  num_free_ = cache_size_;
  allocated_.clear();
  leaving_.clear();
}

}  // namespace kvpool
