#include "kvpool/foundation/contract.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace kvpool {
namespace {

void print_violation(const ContractViolation& violation) {
  std::fprintf(stderr, "kvpool: contract broken (%s): %s\n", std::string(to_string(violation.breach)).c_str(),
               violation.detail.c_str());
}

std::atomic<ContractHandler> current_handler{&print_violation};
static_assert(std::atomic<ContractHandler>::is_always_lock_free);

}  // namespace

std::string_view to_string(ContractBreach breach) noexcept {
  switch (breach) {
    case ContractBreach::double_free: return "double_free";
    case ContractBreach::unknown_block: return "unknown_block";
    case ContractBreach::stale_handle: return "stale_handle";
    case ContractBreach::foreign_handle: return "foreign_handle";
    case ContractBreach::ref_overflow: return "ref_overflow";
    case ContractBreach::reservation_misuse: return "reservation_misuse";
    case ContractBreach::wrong_thread: return "wrong_thread";
    case ContractBreach::corrupted_state: return "corrupted_state";
  }
  return "unknown";
}

ContractHandler set_contract_handler(ContractHandler handler) noexcept {
  return current_handler.exchange(handler != nullptr ? handler : &print_violation, std::memory_order_acq_rel);
}

void report_contract_violation(const ContractViolation& violation) {
  current_handler.load(std::memory_order_acquire)(violation);
}

void fail_contract(const ContractViolation& violation) {
  report_contract_violation(violation);
  std::abort();
}

}  // namespace kvpool
