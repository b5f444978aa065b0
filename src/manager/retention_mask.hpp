// Which blocks of a range are worth publishing under sparse retention.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvpool {

/// Everything, or a choice among the blocks [begin, end).
class RetentionMask {
 public:
  [[nodiscard]] static RetentionMask everything() { return {}; }
  [[nodiscard]] static RetentionMask nothing_of(std::int64_t begin, std::int64_t end) {
    RetentionMask mask;
    mask.begin_ = begin;
    mask.kept_.emplace(static_cast<std::size_t>(end - begin), false);
    return mask;
  }

  [[nodiscard]] bool keeps_everything() const noexcept { return !kept_; }
  [[nodiscard]] bool keeps(std::int64_t block) const {
    return !kept_ || (*kept_)[static_cast<std::size_t>(block - begin_)];
  }

  void keep(std::int64_t block) { keep_range(block, block + 1); }

  /// Keeps those of [first, last) that lie in the mask's range.
  void keep_range(std::int64_t first, std::int64_t last) {
    const auto size = static_cast<std::int64_t>(kept_->size());
    for (std::int64_t i = std::max<std::int64_t>(first - begin_, 0); i < std::min(last - begin_, size); ++i) {
      (*kept_)[static_cast<std::size_t>(i)] = true;
    }
  }

 private:
  std::int64_t begin_ = 0;
  std::optional<std::vector<bool>> kept_;
};

}  // namespace kvpool
