// Numbers that name a place: which ring, which position. Registrations of keys share the number space.
#pragma once

#include <cstdint>

namespace kvpool {

/// ticket = position * identities + identity, cut to 32 bits. Two places of different rings never get the
/// same number until one of them wraps; after that a stale entry may be taken for a live one, which costs
/// its place in the order and nothing else.
class TicketCodec {
 public:
  static constexpr std::uint32_t kRingsPerShard = 3;

  constexpr explicit TicketCodec(std::uint32_t shards) noexcept : identities_((kRingsPerShard * shards) + 2) {}

  [[nodiscard]] constexpr std::uint32_t order(std::uint32_t shard, std::uint32_t ring,
                                              std::uint64_t position) const noexcept {
    return of(position, (shard * kRingsPerShard) + ring);
  }
  [[nodiscard]] constexpr std::uint32_t fence(std::uint64_t position) const noexcept {
    return of(position, identities_ - 2);
  }
  /// `version` counts the registrations of one block.
  [[nodiscard]] constexpr std::uint32_t registration(std::uint32_t version) const noexcept {
    return of(version, identities_ - 1);
  }

 private:
  [[nodiscard]] constexpr std::uint32_t of(std::uint64_t position, std::uint32_t identity) const noexcept {
    return static_cast<std::uint32_t>((position * identities_) + identity);
  }
  std::uint32_t identities_;
};

}  // namespace kvpool
