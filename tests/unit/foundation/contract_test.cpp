#include "kvpool/foundation/contract.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace kvpool {
namespace {

std::vector<ContractViolation> seen;
void remember(const ContractViolation& violation) { seen.push_back(violation); }

TEST(ContractHandler, ReplacedHandlerSeesTheViolationAndTheFormerOneComesBack) {
  seen.clear();
  const ContractHandler former = set_contract_handler(&remember);
  report_contract_violation({ContractBreach::double_free, "block 7"});
  EXPECT_EQ(set_contract_handler(former), &remember);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].breach, ContractBreach::double_free);
  EXPECT_EQ(seen[0].detail, "block 7");
}

TEST(ContractHandlerDeathTest, CorruptionAbortsWhateverTheHandlerDoes) {
  EXPECT_DEATH(
      {
        set_contract_handler(+[](const ContractViolation&) {});
        fail_contract({ContractBreach::corrupted_state, "free count -1"});
      },
      "");
  EXPECT_DEATH(fail_contract({ContractBreach::corrupted_state, "free count -1"}), "corrupted_state.*free count -1");
}

}  // namespace
}  // namespace kvpool
