// Integer ids that cannot be mixed up: a BlockId is no GroupId, although both are small numbers.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>

namespace kvpool {

/// A number with a meaning. `Tag` makes types distinct; `Rep` is the representation.
/// Conversion is explicit in both directions; `value()` gives the number back.
template <class Tag, class Rep>
class StrongId {
 public:
  using representation = Rep;

  constexpr StrongId() noexcept = default;
  constexpr explicit StrongId(Rep value) noexcept : value_(value) {}

  [[nodiscard]] constexpr Rep value() const noexcept { return value_; }

  friend constexpr auto operator<=>(StrongId, StrongId) noexcept = default;

 private:
  Rep value_{};
};

}  // namespace kvpool

template <class Tag, class Rep>
struct std::hash<kvpool::StrongId<Tag, Rep>> {
  std::size_t operator()(kvpool::StrongId<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value()); }
};
