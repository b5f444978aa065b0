// One call into each of the other components, so that the package's link lines are complete.
#include <kvpool/foundation/error.hpp>

#include <cstdio>

int main() {
  std::printf("components linked: %s\n", std::string(kvpool::to_string(kvpool::ErrorCode::unsupported)).c_str());
  return 0;
}
