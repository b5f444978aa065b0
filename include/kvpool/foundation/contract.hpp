// Broken contracts: what happens when a caller frees twice or hands in an id of another pool.
//
// The checks cost O(1) and stay on in release builds. A violation is reported to one process-wide,
// replaceable handler. The call that found it then refuses the operation and leaves the state as it
// was; where the state can no longer be trusted the process aborts, whatever the handler did.
#pragma once

#include <string>
#include <string_view>

namespace kvpool {

enum class ContractBreach {
  double_free,         ///< a reference was given back that nobody held
  unknown_block,       ///< a block id outside the pool
  stale_handle,        ///< a handle whose block has been recycled since
  foreign_handle,      ///< a handle, or a draft of an event, of another pool
  ref_overflow,        ///< more references than the state word can count
  reservation_misuse,  ///< more blocks than a reservation holds, or a reservation of another pool
  wrong_thread,        ///< one request used by two threads at the same time
  corrupted_state,     ///< an invariant does not hold: not recoverable
};

[[nodiscard]] std::string_view to_string(ContractBreach breach) noexcept;

struct ContractViolation {
  ContractBreach breach;
  std::string detail;  ///< the function, the block's snapshot, the numbers
};

using ContractHandler = void (*)(const ContractViolation&);

/// Installs `handler` and returns the former one; nullptr restores the default, which writes one line
/// to stderr. Thread-safe, lock-free. The handler may be called from any thread, also concurrently.
ContractHandler set_contract_handler(ContractHandler handler) noexcept;

/// Reports a violation after which the caller refuses the operation and goes on.
void report_contract_violation(const ContractViolation& violation);

/// Reports a violation after which nothing can be trusted: calls the handler, then aborts.
[[noreturn]] void fail_contract(const ContractViolation& violation);

}  // namespace kvpool
