#include <array>
#include <cstddef>

#include "kvpool/config/kv_cache_spec.hpp"

namespace kvpool {
namespace {

struct DTypeFacts {
  std::int64_t bytes;
  std::string_view name;
};

// In the order of the enumerators.
constexpr std::array<DTypeFacts, 6> kDTypes = {{
    {4, "float32"},
    {2, "float16"},
    {2, "bfloat16"},
    {1, "fp8_e4m3"},
    {1, "fp8_e5m2"},
    {1, "uint8"},
}};

constexpr std::array<std::string_view, 3> kMambaModes = {"none", "all", "align"};

}  // namespace

std::int64_t size_in_bytes(DType type) noexcept { return kDTypes.at(static_cast<std::size_t>(type)).bytes; }

std::string_view to_string(DType type) noexcept { return kDTypes.at(static_cast<std::size_t>(type)).name; }

std::string_view to_string(MambaCacheMode mode) noexcept { return kMambaModes.at(static_cast<std::size_t>(mode)); }

}  // namespace kvpool
