// F036, F057, F100 and the invariants of the whole request level, on random models and random requests.
#include <cstdlib>
#include <string>

#include "tests/unit/manager/random_engine.hpp"

namespace kvpool::test {
namespace {

unsigned scale() {
  const char* value = std::getenv("KVPOOL_TEST_SCALE");
  return value != nullptr && std::string(value) == "long" ? 50 : 1;
}

class RandomConfigurations : public testing::TestWithParam<unsigned> {};

TEST_P(RandomConfigurations, EveryInvariantHoldsAfterEveryStep) {
  for (unsigned round = 0; round < 10 * scale(); ++round) {
    const unsigned seed = 1000 * GetParam() + round;
    RandomEngine engine(seed);
    for (int step = 0; step < 120; ++step) {
      engine.step();
      if (testing::Test::HasFailure()) FAIL() << "seed " << seed << ", step " << step << ": " << engine.description();
    }
    engine.finish();
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed << " at the end: " << engine.description();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomConfigurations, testing::Range(0U, 12U));

}  // namespace
}  // namespace kvpool::test
