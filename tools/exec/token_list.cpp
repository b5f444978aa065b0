#include "tools/exec/token_list.hpp"

#include <fmt/core.h>

#include <cstdint>

namespace kvpool::tools {
namespace {

bool is_int64(const Json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX));
}

}  // namespace

std::vector<TokenId> read_tokens(Fields& fields, std::string_view name, std::int64_t most) {
  std::vector<TokenId> tokens;
  const auto check_room = [&](std::int64_t count, const Json& item) {
    if (count > most - static_cast<std::int64_t>(tokens.size())) {
      fields.refuse(name, fmt::format("makes the live requests longer than {} tokens together", kMaxLiveTokens), item);
    }
  };
  for (const Json& item : fields.list(name)) {
    if (is_int64(item)) {
      check_room(1, item);
      tokens.push_back(item.get<TokenId>());
      continue;
    }
    if (!item.is_array() || item.size() != 2 || !is_int64(item[0]) || !is_int64(item[1])) {
      fields.refuse(name, "has an item that is neither an integer nor a pair [first, count]", item);
    }
    const auto first = item[0].get<TokenId>();
    const auto count = item[1].get<std::int64_t>();
    if (count < 0 || first > INT64_MAX - count) {
      fields.refuse(name, "has a pair with a negative count or tokens beyond 64 bits", item);
    }
    check_room(count, item);
    for (std::int64_t i = 0; i < count; ++i) {
      tokens.push_back(first + i);
    }
  }
  return tokens;
}

}  // namespace kvpool::tools
