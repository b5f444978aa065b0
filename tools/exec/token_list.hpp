// Token lists of op scripts: integers and [first, count] pairs.
#pragma once

#include <cstdint>
#include <vector>

#include "kvpool/prefix/block_hasher.hpp"
#include "tools/exec/fields.hpp"

namespace kvpool::tools {

/// Tokens that all live requests of one script may have together: 512 MiB of them.
inline constexpr std::int64_t kMaxLiveTokens = std::int64_t{1} << 26;

/// Reads member `name`; a pair stands for first, first + 1, ... Throws InputError for anything else and for a list of
/// more than `most` tokens, before it makes room for them.
[[nodiscard]] std::vector<TokenId> read_tokens(Fields& fields, std::string_view name, std::int64_t most);

}  // namespace kvpool::tools
