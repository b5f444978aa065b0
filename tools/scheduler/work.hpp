// What a scheduler is given: requests with their lengths, and where their tokens come from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvpool/prefix/block_hasher.hpp"

namespace kvpool::scheduler {

struct WorkItem {
  std::int64_t index = 0;          ///< arrival order, and age: a greater index is younger
  std::int64_t session = -1;       ///< requests of one session stay with one scheduler thread; -1: none
  std::int64_t prompt_tokens = 0;  ///< at least 1
  std::int64_t output_tokens = 0;
};

/// Tokens of the requests. Called from several scheduler threads at the same time, for different requests.
class TokenSource {
 public:
  TokenSource() = default;
  TokenSource(const TokenSource&) = delete;
  TokenSource& operator=(const TokenSource&) = delete;
  virtual ~TokenSource() = default;

  [[nodiscard]] virtual std::vector<TokenId> prompt(std::int64_t index) const = 0;
  /// Output token `position` (from 0): depends on the request alone, never on how it was scheduled.
  [[nodiscard]] virtual TokenId output(std::int64_t index, std::int64_t position) const = 0;
};

/// A request that cannot run even when it is alone.
struct Refusal {
  WorkItem item;
  std::int64_t blocks_needed = 0;
  std::int64_t blocks_usable = 0;
  std::string reason;  ///< one sentence with the numbers
};

}  // namespace kvpool::scheduler
