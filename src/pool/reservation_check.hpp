// Whether a reservation covers what is asked of it; the same for both pools.
#pragma once

#include <cstddef>
#include <string>

#include "kvpool/foundation/contract.hpp"

namespace kvpool {

/// `own`: made by the pool that is asked. A reservation without units belongs to every pool.
inline bool covers(bool own, std::size_t remaining, std::size_t count, const char* function) {
  if ((own || remaining == 0) && count <= remaining) return true;
  report_contract_violation({ContractBreach::reservation_misuse,
                             std::string(function) + ": " + std::to_string(count) + " blocks on a reservation of " +
                                 std::to_string(remaining) + (own ? "" : " of another pool")});
  return false;
}

}  // namespace kvpool
