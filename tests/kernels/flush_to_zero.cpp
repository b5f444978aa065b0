// Sets "flush to zero" and "denormals are zero" for the whole program, as a host linked with -ffast-math would.
#include <gtest/gtest.h>
#include <xmmintrin.h>

namespace {

class FlushToZero final : public testing::Environment {
 public:
  void SetUp() override {
    constexpr unsigned kFtzAndDaz = 0x8040;
    _mm_setcsr(_mm_getcsr() | kFtzAndDaz);
  }
};

const auto* const kInstalled = testing::AddGlobalTestEnvironment(new FlushToZero);

}  // namespace
