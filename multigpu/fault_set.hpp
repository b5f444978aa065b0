// What ranks saw going wrong, as a set that only grows, and the one verdict that follows from it.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "kvpool/multigpu/communicator.hpp"

namespace kvpool::multigpu {

/// In order of weight: the verdict speaks of the first kind that occurs.
enum class FaultKind : std::uint8_t {
  aborted = 1,  ///< the rank said that it gives up
  garbage,      ///< it sent something that cannot be used
  absent,       ///< it took no part in finding the verdict
  silent,       ///< it did not contribute to an operation in time
  left,         ///< it left an operation because another rank had failed
};

struct Fault {
  FaultKind kind = FaultKind::silent;
  int subject = 0;
  int reporter = 0;
  std::string detail;
  auto operator<=>(const Fault&) const = default;
};

/// Merging is commutative, associative and idempotent, so ranks that exchange sets converge.
class FaultSet {
 public:
  void add(Fault fault);
  void merge(const FaultSet& other) { faults_.insert(other.faults_.begin(), other.faults_.end()); }
  [[nodiscard]] bool empty() const noexcept { return faults_.empty(); }
  [[nodiscard]] bool says(FaultKind kind, int subject) const noexcept;
  [[nodiscard]] const std::set<Fault>& faults() const noexcept { return faults_; }

  void encode(Bytes& out) const;
  /// Empty when the bytes are no fault set of a world of this size.
  [[nodiscard]] static std::optional<FaultSet> decode(std::span<const std::byte> bytes, int world_size);

  /// A function of the set alone: ranks with equal sets name equal culprits in equal words. Among the
  /// faults of the weightiest kind the culprits are the ranks that most ranks complain about.
  /// Precondition: !empty().
  [[nodiscard]] Error verdict() const;

 private:
  std::set<Fault> faults_;
};

/// "rank 3", "ranks 0-2, 5".
[[nodiscard]] std::string format_ranks(const std::set<int>& ranks);

}  // namespace kvpool::multigpu
