// SHA-256 of a text, in hex.
#pragma once

#include <string>
#include <string_view>

namespace kvpool::multigpu {

[[nodiscard]] std::string sha256_hex(std::string_view text);

}  // namespace kvpool::multigpu
